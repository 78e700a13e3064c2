"""The ReAct convention: a reply consists of labeled lines (Yao et al., 2022).

    Thought: I need the weather.
    Action: weather
    Action Input: {"city": "Rome"}

    Final Answer: It is sunny.

Agents used this format before models were trained to call tools. The final answer replaces the
synthetic answer tool, so this tool is not listed. If the prompt prescribes the labels, they count
as the marks of a call.
"""

import re
from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.tools import Tool, ToolCall, WrittenCall
from proxy.guardrails.rescue.formats import FORMATS, Format
from proxy.guardrails.rescue.rows import FENCE, read_consecutive, skip_fence
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reading, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.envelope import read_arguments
from proxy.guardrails.rescue.values.cursor import Cursor
from proxy.guardrails.tool_prompts import fragments

_NAME = re.compile(r"[\w.:/-]+")
_WRITTEN_NAME = re.compile(r"[\w.:/\\-]+")
_ACTION = (
    "Thought: what you think about the next step\n"
    "Action: the name of one tool\n"
    'Action Input: {"PARAMETER": "VALUE"}'
)
_FINAL = "Thought: what you think about the answer\nFinal Answer: your complete answer to the user"
_RESULTS = "You get the result as `Observation:`. Never write one yourself: stop behind the input."


class ReActConvention(fragments.Convention):
    """A reply is an action in labeled lines, or a final answer."""

    name = "react"
    syntaxes = ("react",)
    stops = ("\nObservation:",)
    answer_label = "Final Answer: "

    def describe(self, tools: Sequence[Tool], respond: Tool | None) -> str:
        listed = f"Tools, one a line:\n{fragments.write_tools(tools, ())}\n\n"
        call = f"To call a tool, write three labelled lines, the last with JSON:\n{_ACTION}\n"
        final = "" if respond is None else f"\n\nTo answer the user, write:\n{_FINAL}"
        return f"{listed}{call}{_RESULTS}{final}"

    def write_calls(self, text: str, calls: Sequence[ToolCall]) -> str:
        thought = f"Thought: {text.strip()}\n" if text.strip() else ""
        return thought + "\n".join(map(_write_action, calls))

    def write_result(self, name: str, call_id: str, text: str) -> str:
        """Write a result as JSON on a single line, so that it cannot contain a label."""
        return f"Observation: {fragments.write_content(text, ())}"


def _write_action(call: ToolCall) -> str:
    name = call.name if _NAME.fullmatch(call.name) else json.dump_text(call.name)
    return f"Action: {name}\nAction Input: {fragments.write_arguments(call, ())}"


_INPUT = FORMATS["react"].part("input")
_LANGUAGE = re.compile(r"\w+", re.ASCII)


def _read_action(cursor: Cursor, *, is_prompted: bool) -> Reading:
    """Read an action. If `is_prompted`, its input may be missing or be in a code fence."""
    yield from cursor.whitespace()
    name = yield from cursor.take(_WRITTEN_NAME)
    yield from cursor.whitespace()
    has_input = yield from cursor.literal(_INPUT)
    yield from cursor.whitespace()
    if not name or not (has_input or is_prompted):
        raise NoCall
    if is_prompted and (yield from cursor.peek()) == "":
        return Calls((WrittenCall(name, {}),))
    is_fenced = is_prompted and (yield from skip_fence(cursor, _LANGUAGE))
    if not (yield from cursor.is_next("{")):
        raise NoCall(Reason.BROKEN if is_prompted else Reason.NOT_A_CALL)
    calls = yield from read_arguments(cursor, name)
    if is_fenced:
        yield from cursor.whitespace()
        yield from cursor.literal(FENCE)
    return calls


def react(row: Format, *, is_prompted: bool = False) -> Syntax:
    """Return the syntax of actions. `is_prompted` if the prompt prescribes the format."""

    def read(cursor: Cursor, opening: str) -> Reading:
        read_action = partial(_read_action, is_prompted=is_prompted)
        return read_consecutive(cursor, read_action, lambda cursor: cursor.literal(opening))

    return Syntax.of(row, read)


# If the prompt prescribes actions, a broken action is rejected; otherwise it is prose.
REACT_CONTRACT = react(
    replace(FORMATS["react"], name="react_contract", is_marked=True), is_prompted=True
)
