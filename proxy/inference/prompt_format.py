"""How a conversation and the tools on offer are worded: for the chat template, or in the prompt.

Pure and append-only: what is made of some messages is the beginning of what is made of more.
"""

import msgspec

from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool
from proxy.guardrails.history_repair.history import fit_roles
from proxy.guardrails.model_quirks import Template
from proxy.guardrails.tool_prompts.conventions import Convention
from proxy.guardrails.tool_prompts.history import describe_in_prompt

_TOOL_FIELDS = frozenset(("tools", "tool_choice", "parallel_tool_calls"))


class FormattedPrompt(msgspec.Struct, frozen=True):
    """What is sent of a conversation; `omits` names the fields that went into the messages.

    At one of the `stops` the reply is to end.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    omits: frozenset[str] = frozenset()
    stops: tuple[str, ...] = ()


class PromptFormat(msgspec.Struct, frozen=True):
    """The client's own `tools`, and `respond` if it is offered.

    With a `convention` they, their calls and their results are described in the prompt; without
    one the chat template does that. Neighbours of one role are merged where it demands turns.
    """

    tools: tuple[Tool, ...]
    respond: Tool | None = None
    convention: Convention | None = None
    template: Template = msgspec.field(default_factory=Template)

    @property
    def offered(self) -> tuple[Tool, ...]:
        """All tools that the model is told of, the synthetic one last."""
        return self.tools if self.respond is None else (*self.tools, self.respond)

    def apply(self, messages: tuple[Message, ...]) -> FormattedPrompt:
        """Word a conversation."""
        if self.convention is None:
            if self.template.alternates:
                messages = fit_roles(messages, self.template, [])
            return FormattedPrompt(messages, self.offered)
        described = describe_in_prompt(
            messages,
            self.tools,
            self.respond,
            convention=self.convention,
            template=self.template,
        )
        stops = self.convention.stops if self.tools else ()
        return FormattedPrompt(described, (), _TOOL_FIELDS, stops)
