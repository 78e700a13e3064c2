"""What the guardrails need to know of a model: its habits, and what its chat template refuses.

Profiles fill this in; the guardrails know no model by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from proxy.guardrails.offer import TextPolicy

# Which earlier thoughts are sent back to the model: none, those since the last user message, all.
Replay: TypeAlias = Literal["none", "last", "full"]


# Where a chat template takes system messages.
SystemRole: TypeAlias = Literal["anywhere", "first", "nowhere"]


@dataclass(frozen=True, slots=True)
class Template:
    """What a chat template accepts.

    With `alternates` it demands user and assistant in turns; without `prefill` the last message
    must not be the model's own. `control_tokens` are strings that structure its prompts and must
    not come from anywhere else.
    """

    has_developer: bool = True
    system: SystemRole = "anywhere"
    alternates: bool = False
    control_tokens: tuple[str, ...] = ()
    prefill: bool = True


@dataclass(frozen=True, slots=True)
class Quirks:
    """One model, as far as it matters for judging its replies and asking it again.

    `syntaxes` are tried first, in this order. `convention` names the way in which tools are
    described in the prompt, "" if the chat template does it. `aliases` map names that the model
    writes to the tools it may mean. With `resets_state` the backend must not continue from a cached
    prompt, except that of the same conversation, unchanged. With `offers_respond` a `convention`
    also describes the synthetic answer tool if the `text_policy` is AUTO. A prompt that
    `opens_thoughts` leaves their end to the reply. `efforts` are the words for how much to think
    that its chat template takes, () where nobody knows, by its own `effort_variable` if it has one;
    with the variables `kept_by` it keeps all earlier thoughts.
    """

    syntaxes: tuple[str, ...] = ()
    text_policy: TextPolicy = TextPolicy.AUTO
    convention: str = ""
    replay: Replay = "full"
    template: Template = Template()
    calls_in_parallel: bool = True
    resets_state: bool = False
    aliases: Mapping[str, str] = field(default_factory=dict)
    offers_respond: bool = True
    opens_thoughts: bool = False
    efforts: tuple[str, ...] = ()
    effort_variable: str = ""
    kept_by: Mapping[str, bool] = field(default_factory=dict)


GENERIC = Quirks()
