"""The terms of one request: the tools that a reply may call, and whether prose is an answer.

`OfferedTools` is made once per request; every part of the guardrails judges a reply against it.
`TextPolicy` decides the worth of prose, `Mode` how much the guardrails may change.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from proxy.conversation.json import JsonSchema
from proxy.conversation.tools import NamedTool, Tool, ToolChoice, ToolUse, WrittenCall
from proxy.conversation.workflows import NO_RULES, Workflow
from proxy.guardrails.names import find_tool
from proxy.guardrails.rescue.syntax import Syntax
from proxy.guardrails.respond import ANSWER_TOOLS, is_answer_tool, make_respond_tool, only_text
from proxy.guardrails.steps import missing_steps
from proxy.guardrails.tool_prompts.json_contract import json_contract
from proxy.guardrails.tool_prompts.react import REACT_CONTRACT
from proxy.guardrails.transcript import CompletedCall, Loop

_FINAL_FORMS = {
    json_contract().name: 'an object of the type "final"',
    REACT_CONTRACT.name: '"Final Answer:" and what you say behind it',
}


class TextPolicy(Enum):
    """What prose is worth while tools are offered.

    AUTO shows it at once and accepts it as an answer. If it only announces a call, or is a call
    that nobody can read, the model is asked once for the call. After a rejected call only a
    question to the user ends the turn at once. RESPOND offers a synthetic answer tool and asks once
    more after prose; ACCEPT accepts prose as an answer; REQUIRE rejects it.
    """

    AUTO = "auto"
    RESPOND = "respond"
    ACCEPT = "accept"
    REQUIRE = "require"


class Mode(Enum):
    """How much the guardrails may do; OBSERVE only reports what ON would have done."""

    OFF = "off"
    OBSERVE = "observe"
    ON = "on"


# The parts of the guardrails that can be switched off for measurements.
Part: TypeAlias = Literal[
    "rescue", "repair", "nudge", "constrained", "respond", "loops", "compaction"
]


class OfferedTools(msgspec.Struct, frozen=True):
    """The terms of one request.

    `tools` are the client's own; `respond` is the synthetic one, if it is offered. `quotable` holds
    the texts that are not the model's own words: `spoken` by users, and `results` of tools;
    `instructions` are the texts of all other messages. `executed` are the calls with a result since
    the user's last message, where a repetition matters. Calls
    that are `denied` must not be made. The model's profile or the prompt names its `own_syntaxes`.
    If there is an `answer_schema`, an answer has to satisfy it,
    and JSON is not taken for a call. `completed` are the calls in the history that have a result;
    `loop` is the one it ends in. `aliases` map names that this model writes to the tools it may
    mean; `allowed` names the only client tools that may be called, if it is set. Unless it
    `repairs`, names and arguments count as written; unless it `rescues`, text is never a call. If
    the prompt `opens_thoughts`, a reply may begin inside them. When a rejected call is being
    corrected, prose is no answer unless it asks the user something, or the model `may_withdraw`,
    because there is no tool of that name. Once a call with invented values was questioned, another
    one counts (`accepts_invented_values`).
    """

    tools: tuple[Tool, ...]
    text_policy: TextPolicy
    syntaxes: tuple[Syntax, ...]
    respond: Tool | None = None
    choice: ToolChoice = ToolUse.AUTO
    parallel: bool = True
    spoken: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    stop_strings: bool = False
    answer_schema: JsonSchema | None = None
    completed: tuple[CompletedCall, ...] = ()
    workflow: Workflow = NO_RULES
    loop: Loop | None = None
    aliases: Mapping[str, str] = msgspec.field(default_factory=dict)
    allowed: frozenset[str] | None = None
    repairs: bool = True
    rescues: bool = True
    denied: tuple[WrittenCall, ...] = ()
    is_correction: bool = False
    may_withdraw: bool = False
    opens_thoughts: bool = False
    instructions: tuple[str, ...] = ()
    executed: tuple[CompletedCall, ...] = ()
    accepts_invented_values: bool = False
    own_syntaxes: frozenset[str] = frozenset()

    @property
    def quotable(self) -> tuple[str, ...]:
        return self.spoken + self.results

    def after_bad_call(self, *, may_withdraw: bool) -> "OfferedTools":
        """Return the terms of a correction, with the answer tool for a model that has no call."""
        way_out = self.respond or make_respond_tool(tuple([tool.name for tool in self.tools]))
        return replace(self, respond=way_out, is_correction=True, may_withdraw=may_withdraw)

    def for_ending(self) -> "OfferedTools":
        """Return the terms of an answer in words, which comes through the answer tool."""
        way_out = self.respond or make_respond_tool(tuple([tool.name for tool in self.tools]))
        return replace(self, respond=way_out, text_policy=TextPolicy.ACCEPT)

    @property
    def everything(self) -> tuple[Tool, ...]:
        """All tools the model is shown, the synthetic one last."""
        return self.tools if self.respond is None else (*self.tools, self.respond)

    @property
    def readable_syntaxes(self) -> tuple[Syntax, ...]:
        if not self.rescues:
            return ()
        if self.answer_schema is not None:
            return tuple(syntax for syntax in self.syntaxes if syntax.is_marked)
        return self.syntaxes

    @property
    def callable_names(self) -> tuple[str, ...]:
        """The names a call may have: the one that the client named, or all that are offered."""
        if isinstance(self.choice, NamedTool):
            return (self.choice.name,)
        return tuple(tool.name for tool in self.everything)

    @property
    def written_names(self) -> tuple[str, ...]:
        """The names that a call in the text may have: tools, aliases, and names of answer tools."""
        return (*self.callable_names, *self.aliases, *ANSWER_TOOLS)

    @property
    def final_form(self) -> str:
        """A phrase for the form of answers that replaces the tool; "" if there is none."""
        forms = (_FINAL_FORMS.get(syntax.name, "") for syntax in self.syntaxes)
        return next(filter(None, forms), "")

    @property
    def has_labels(self) -> bool:
        return REACT_CONTRACT in self.syntaxes

    @property
    def missing_steps(self) -> tuple[str, ...]:
        """The required steps that are still missing; until they are taken nothing is an answer."""
        return missing_steps(self.workflow, self.completed)

    @property
    def may_answer(self) -> bool:
        """Whether the model may answer now: no call is demanded, and no step is missing."""
        return self.text_policy is not TextPolicy.REQUIRE and not self.missing_steps

    @property
    def due(self) -> tuple[Tool, ...]:
        """The tools that may be called next: all, unless the client or missing steps limit them."""
        permitted = tuple(tool for tool in self.everything if self.may_call(tool.name))
        if isinstance(self.choice, NamedTool) or not self.missing_steps:
            return permitted
        later = self.workflow.terminal_tools
        kept = (tool for tool in permitted if tool.name not in later)
        return tuple(tool for tool in kept if not self.is_respond(tool.name))

    def is_free(self, name: str) -> bool:
        """Return whether no rule of order or of loops can object to a call of this tool."""
        is_looping = self.loop is not None and self.loop.name == name
        has_prerequisites = any(one.tool == name for one in self.workflow.prerequisites)
        is_early = name in self.workflow.terminal_tools and bool(self.missing_steps)
        return not (is_looping or has_prerequisites or is_early)

    def may_call(self, name: str) -> bool:
        """Return whether the client allows this tool; the synthetic one is no call."""
        if isinstance(self.choice, NamedTool):
            return name == self.choice.name
        return self.allowed is None or name in self.allowed or self.is_respond(name)

    def tool_named(self, written: str) -> Tool | None:
        """Return the client's tool that a written name means, if it can only mean one."""
        if not self.repairs:
            return next((tool for tool in self.tools if tool.name == written), None)
        found = find_tool(written, self.tools)
        return found or find_tool(self.aliases.get(written, ""), self.tools)

    def is_answer(self, call: WrittenCall) -> bool:
        """Return whether a call of a tool that was not offered only says something to the user."""
        if (
            not is_answer_tool(call.name)
            or self.text_policy is TextPolicy.REQUIRE
            or self.is_respond(call.name)
        ):
            return False
        return self.tool_named(call.name) is None and only_text(call.arguments) is not None

    def is_respond(self, name: str) -> bool:
        return self.respond is not None and self.respond.name == name
