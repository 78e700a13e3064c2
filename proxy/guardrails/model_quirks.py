"""What the guardrails need to know of a model: its habits, and what its chat template refuses.

Profiles fill this in; the guardrails read it and know no model by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from proxy.guardrails.offer import TextPolicy

# Which earlier thoughts of the model go back to it: none, those since the user spoke, all.
Replay: TypeAlias = Literal["none", "last", "full"]


# Where a chat template takes system messages.
SystemRole: TypeAlias = Literal["anywhere", "first", "nowhere"]


@dataclass(frozen=True, slots=True)
class Template:
    """What a chat template takes.

    With `alternates` it demands user and assistant in turns; without `prefill` the last message
    must not be the model's own. `control_tokens` are the strings that structure its prompts and
    must not come from anywhere else.
    """

    has_developer: bool = True
    system: SystemRole = "anywhere"
    alternates: bool = False
    control_tokens: tuple[str, ...] = ()
    prefill: bool = True


@dataclass(frozen=True, slots=True)
class Quirks:
    """One model, as far as judging its replies and asking it again goes.

    `syntaxes` are tried first, in this order. `convention` names the way in which tools are
    described in the prompt, empty where the chat template does it. `aliases` lead from names that
    the model writes to the tools it may mean by them. With `resets_state` the backend must not
    continue from a cached prompt but that of the same conversation, unaltered. With
    `offers_respond` a `convention` also describes the synthetic tool for answers where the
    `text_policy` is AUTO. A prompt that `opens_thoughts` leaves their end to the reply.
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


GENERIC = Quirks()
