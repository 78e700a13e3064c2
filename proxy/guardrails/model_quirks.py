"""The properties of a model and of its chat template on which the guardrails depend.

Profiles provide these properties, so that the guardrails do not depend on the names of models.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from proxy.guardrails.offer import TextPolicy

# The earlier reasoning that the prompt contains: none, the reasoning since the last user message
# ("last"), or all.
Replay: TypeAlias = Literal["none", "last", "full"]


# Where a chat template takes system messages.
SystemRole: TypeAlias = Literal["anywhere", "first", "nowhere"]


@dataclass(frozen=True, slots=True)
class Template:
    """The messages that a chat template accepts.

    If it `alternates`, user and assistant messages must alternate. If `prefill` is False, the last
    message must not be from the assistant. The template's `control_tokens` structure its prompts,
    so in the texts of users and tools a zero-width space breaks them.
    """

    has_developer: bool = True
    system: SystemRole = "anywhere"
    alternates: bool = False
    control_tokens: tuple[str, ...] = ()
    prefill: bool = True


@dataclass(frozen=True, slots=True)
class Quirks:
    """The properties of one model.

    - The call syntaxes in `syntaxes` are tried first, in this order. `aliases` map names that the
      model writes to the tools that it may mean.
    - `convention` names the format in which the prompt describes tools; "" if the chat template
      describes them. With `offers_respond` and the `text_policy` AUTO, the description includes the
      synthetic answer tool.
    - With `resets_state` the backend may reuse a cached prompt only if the new prompt continues the
      same conversation without changes.
    - If the prompt `opens_thoughts`, it ends with the beginning of a reasoning block, which the
      reply closes.
    - `efforts` are the values of reasoning effort that the chat template accepts in its
      `effort_variable`; () if unknown.
    - `kept_by` are the template variables with which the template keeps all earlier reasoning.
    - If `renders_reasoning`, the template writes the reasoning of earlier messages into the prompt.
      None means unknown.
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
    renders_reasoning: bool | None = None


GENERIC = Quirks()
