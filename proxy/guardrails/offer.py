"""The tools and rules that apply to one request, such as whether prose is an answer.

`OfferedTools` is created once per request. All guardrails judge the replies against it.
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

# The prompts of these conventions prescribe a format for answers, so the synthetic tool is not
# listed in them.
_FINAL_FORMS = {
    json_contract().name: 'an object of the type "final"',
    REACT_CONTRACT.name: '"Final Answer:" and what you say behind it',
}


class TextPolicy(Enum):
    """The rule for accepting prose as an answer while tools are offered.

    - AUTO streams prose at once and accepts it as an answer. If the prose only announces a call, or
      is a call in an unknown syntax, the model is prompted once for the call. After a rejected
      call, prose is an answer only if it asks the user a question.
    - RESPOND offers a synthetic answer tool and retries once after prose.
    - ACCEPT accepts prose as an answer, and REQUIRE rejects it.

    With RESPOND as the default, 8 of 34 clients finished their tool loop. With ACCEPT, all of the
    32 clients that use chat completions finished it (decision 0003).
    """

    AUTO = "auto"
    RESPOND = "respond"
    ACCEPT = "accept"
    REQUIRE = "require"


class Mode(Enum):
    """Whether the guardrails are active; OBSERVE only reports the changes that ON would make."""

    OFF = "off"
    OBSERVE = "observe"
    ON = "on"


# The parts of the guardrails that can be switched off for measurements.
Part: TypeAlias = Literal[
    "rescue", "repair", "nudge", "constrained", "respond", "loops", "compaction"
]


class OfferedTools(msgspec.Struct, frozen=True):
    """The tools and rules that apply to one request.

    - `tools` are the client's tools; `respond` is the synthetic answer tool, if it is offered.
      With `allowed`, only these tools may be called. The calls in `denied` must not be made.
    - `user_texts`, `results` and `instructions` are the texts of user messages, of tool results and
      of all other messages.
    - `completed` are the calls in the history that have a result. `executed` are the completed
      calls since the user's last message. If the history ends with a loop, `loop` describes it. If
      loop detection is switched off, `executed` is empty.
    - `aliases` map a name in a reply to the name of the tool that the model means by it.
      `own_syntaxes` are the call syntaxes that the prompt demands or the model's profile names. If
      the prompt `opens_thoughts`, a reply may begin within reasoning.
    - With an `answer_schema`, an answer must satisfy the schema, and plain JSON is never a call.
    - Without `repairs`, names and arguments must be exact; without `rescues`, text is never a call.
    - While a rejected call is corrected (`is_correction`), prose is an answer only if it asks the
      user a question, or if the model `may_withdraw` because it called only unknown tools.
    - Invented values are rejected once; then they are accepted (`accepts_invented_values`).
    """

    tools: tuple[Tool, ...]
    text_policy: TextPolicy
    syntaxes: tuple[Syntax, ...]
    respond: Tool | None = None
    choice: ToolChoice = ToolUse.AUTO
    parallel: bool = True
    user_texts: tuple[str, ...] = ()
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
    def request(self) -> str:
        """The last text of the user; "" if the user has written none."""
        return self.user_texts[-1] if self.user_texts else ""

    @property
    def quotable(self) -> tuple[str, ...]:
        """The texts that a reply may quote: user messages and tool results."""
        return self.user_texts + self.results

    def after_bad_call(self, *, may_withdraw: bool) -> "OfferedTools":
        """Return the rules for the reply after a bad call; the reply may also call `respond`."""
        respond = self.respond or make_respond_tool(tuple([tool.name for tool in self.tools]))
        return replace(self, respond=respond, is_correction=True, may_withdraw=may_withdraw)

    def for_ending(self) -> "OfferedTools":
        """Return the rules for a reply that must answer, in prose or through the answer tool."""
        respond = self.respond or make_respond_tool(tuple([tool.name for tool in self.tools]))
        return replace(self, respond=respond, text_policy=TextPolicy.ACCEPT)

    @property
    def everything(self) -> tuple[Tool, ...]:
        """All tools that the model is shown, the synthetic tool last."""
        return self.tools if self.respond is None else (*self.tools, self.respond)

    @property
    def readable_syntaxes(self) -> tuple[Syntax, ...]:
        if not self.rescues:
            return ()
        if self.answer_schema is not None:  # the answer is JSON, and plain JSON looks like a call
            return tuple(syntax for syntax in self.syntaxes if syntax.is_marked)
        return self.syntaxes

    @property
    def callable_names(self) -> tuple[str, ...]:
        """The tools that a call may name: the client's choice, or all offered tools."""
        if isinstance(self.choice, NamedTool):
            return (self.choice.name,)
        return tuple(tool.name for tool in self.everything)

    @property
    def written_names(self) -> tuple[str, ...]:
        """The names that a call in the text may have: tools, aliases, and names of answer tools."""
        return (*self.callable_names, *self.aliases, *ANSWER_TOOLS)

    @property
    def final_form(self) -> str:
        """The answer format that the prompt prescribes instead of the answer tool; "" if none."""
        forms = (_FINAL_FORMS.get(syntax.name, "") for syntax in self.syntaxes)
        return next(filter(None, forms), "")

    @property
    def has_labels(self) -> bool:
        """Whether the prompt demands ReAct's labels, such as `Action:`, in the reply."""
        return REACT_CONTRACT in self.syntaxes

    @property
    def missing_steps(self) -> tuple[str, ...]:
        """The required steps that are still missing; while there are any, no text is an answer."""
        return missing_steps(self.workflow, self.completed)

    @property
    def may_answer(self) -> bool:
        """Whether text may be an answer now: no call is required, and no step is missing."""
        return self.text_policy is not TextPolicy.REQUIRE and not self.missing_steps

    @property
    def due(self) -> tuple[Tool, ...]:
        """The tools that the client and the required steps permit to be called next."""
        permitted = tuple(tool for tool in self.everything if self.may_call(tool.name))
        # The client's choice of a tool outranks the order of the steps. Otherwise no call would be
        # possible if the chosen tool has to wait for an earlier step.
        if isinstance(self.choice, NamedTool) or not self.missing_steps:
            return permitted
        later = self.workflow.terminal_tools
        due = (tool for tool in permitted if tool.name not in later)
        return tuple(tool for tool in due if not self.is_respond(tool.name))

    def is_free(self, name: str) -> bool:
        """Return whether no rule about steps or loops can reject a call of this tool."""
        is_looping = self.loop is not None and self.loop.name == name
        has_prerequisites = any(rule.tool == name for rule in self.workflow.prerequisites)
        is_early = name in self.workflow.terminal_tools and bool(self.missing_steps)
        return not (is_looping or has_prerequisites or is_early)

    def may_call(self, name: str) -> bool:
        """Return whether the client allows this tool; the synthetic tool is always allowed."""
        if isinstance(self.choice, NamedTool):
            return name == self.choice.name
        return self.allowed is None or name in self.allowed or self.is_respond(name)

    def tool_named(self, name: str) -> Tool | None:
        """Return the client's tool that a name means; None unless exactly one tool fits."""
        if not self.repairs:  # accepting a similar name would be a repair
            return next((tool for tool in self.tools if tool.name == name), None)
        tool = find_tool(name, self.tools)
        return tool or find_tool(self.aliases.get(name, ""), self.tools)

    def is_answer(self, call: WrittenCall) -> bool:
        """Return whether a call is an answer, although the tool that it names was not offered.

        Models call `final_answer` and the other `ANSWER_TOOLS` without an offer.
        """
        return self.may_be_answer(call.name) and only_text(call.arguments) is not None

    def may_be_answer(self, name: str) -> bool:
        """Return whether a call of this name, with a text as its only argument, is an answer.

        The call is not an answer if the client has a tool of that name, or if the answer must
        satisfy a schema, because such an answer arrives as text.
        """
        is_answer_due = self.text_policy is not TextPolicy.REQUIRE and self.answer_schema is None
        is_unknown = is_answer_tool(name) and not self.is_respond(name)
        return is_answer_due and is_unknown and self.tool_named(name) is None

    def is_respond(self, name: str) -> bool:
        return self.respond is not None and self.respond.name == name
