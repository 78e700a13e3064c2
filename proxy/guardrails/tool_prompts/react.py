"""ReAct: `Thought:`, `Action:`, `Action Input:`, `Final Answer:`, reasoning and acting in turns.

Agents used this form before models had tools (Yao et al., 2022). The synthetic answer tool is not
listed, because the final answer replaces it. If Temper asked for the labels, they count as marks.

    Thought: I need the weather.
    Action: weather
    Action Input: {"city": "Rome"}
"""

import re
from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.tools import Tool, ToolCall, WrittenCall
from proxy.guardrails.rescue.formats import FORMATS, Format
from proxy.guardrails.rescue.rows import FENCE, pass_fence, read_row
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
    """One action at a time, each on labeled lines."""

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
        """Write a result as JSON on its own line: no label can begin within it."""
        return f"Observation: {fragments.write_content(text, ())}"


def _write_action(call: ToolCall) -> str:
    name = call.name if _NAME.fullmatch(call.name) else json.dump_text(call.name)
    return f"Action: {name}\nAction Input: {fragments.write_arguments(call, ())}"


_INPUT = FORMATS["react"].part("input")
_LANGUAGE = re.compile(r"\w+", re.ASCII)


def _read_action(cursor: Cursor, *, is_demanded: bool) -> Reading:
    """Read an action; a demanded one may lack its input, or have it in a code fence."""
    yield from cursor.whitespace()
    name = yield from cursor.take(_WRITTEN_NAME)
    yield from cursor.whitespace()
    has_input = yield from cursor.literal(_INPUT)
    yield from cursor.whitespace()
    if not name or not (has_input or is_demanded):
        raise NoCall
    if is_demanded and (yield from cursor.peek()) == "":
        return Calls((WrittenCall(name, {}),))
    is_fenced = is_demanded and (yield from pass_fence(cursor, _LANGUAGE))
    if not (yield from cursor.is_next("{")):
        raise NoCall(Reason.BROKEN if is_demanded else Reason.NOT_A_CALL)
    calls = yield from read_arguments(cursor, name)
    if is_fenced:
        yield from cursor.whitespace()
        yield from cursor.literal(FENCE)
    return calls


def react(row: Format, *, is_demanded: bool = False) -> Syntax:
    """Return the syntax of actions with a JSON object as input, at the end of the reply."""

    def read(cursor: Cursor, opening: str) -> Reading:
        read_one = partial(_read_action, is_demanded=is_demanded)
        return read_row(cursor, read_one, lambda cursor: cursor.literal(opening))

    return Syntax.of(row, read)


# For a model that was asked for actions: a broken action is rejected, not shown as prose.
REACT_CONTRACT = react(
    replace(FORMATS["react"], name="react_contract", is_marked=True), is_demanded=True
)
