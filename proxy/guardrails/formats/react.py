"""ReAct: `Thought:`, `Action:`, `Action Input:`, `Final Answer:`, reasoning and acting in turns.

The form that agents used before models had tools. The synthetic answer tool is not listed: the
final answer stands for it. Where Temper asked for the labels itself, they are as good as marks.
"""

import re
from collections.abc import Sequence

from proxy.conversation import json
from proxy.conversation.tools import Tool, ToolCall, WrittenCall
from proxy.guardrails.rescue.syntax import Calls, NotACall, Place, Reading, Reason, Syntax, read_row
from proxy.guardrails.rescue.syntaxes.envelope import read_arguments
from proxy.guardrails.rescue.values.cursor import Cursor
from proxy.guardrails.tool_prompts.fragments import write_arguments, write_content, write_tools

_NAME = re.compile(r"[\w.:/-]+")
_ACTION = (
    "Thought: what you think about the next step\n"
    "Action: the name of one tool\n"
    'Action Input: {"PARAMETER": "VALUE"}'
)
_FINAL = "Thought: what you think about the answer\nFinal Answer: your complete answer to the user"
_RESULTS = "You get the result as `Observation:`. Never write one yourself: stop behind the input."


class ReActConvention:
    """One action at a time, each on labelled lines."""

    name = "react"
    syntaxes = ("react",)
    stops = ("\nObservation:",)
    answer_label = "Final Answer: "

    def describe(self, tools: Sequence[Tool], respond: Tool | None) -> str:
        listed = f"Tools, one a line:\n{write_tools(tools, ())}\n\n"
        call = f"To call a tool, write three labelled lines, the last with JSON:\n{_ACTION}\n"
        final = "" if respond is None else f"\n\nTo answer the user, write:\n{_FINAL}"
        return f"{listed}{call}{_RESULTS}{final}"

    def write_calls(self, text: str, calls: Sequence[ToolCall]) -> str:
        thought = f"Thought: {text.strip()}\n" if text.strip() else ""
        return thought + "\n".join(map(_write_action, calls))

    def write_result(self, name: str, call_id: str, text: str) -> str:
        """Write a result as JSON on its own line: no label can begin within it."""
        return f"Observation: {write_content(text, ())}"


def _write_action(call: ToolCall) -> str:
    name = call.name if _NAME.fullmatch(call.name) else json.dump_text(call.name)
    return f"Action: {name}\nAction Input: {write_arguments(call, ())}"


_INPUT = "Action Input:"
_FENCE = "```"
_LANGUAGE = re.compile(r"\w+", re.ASCII)


class ReAct(Syntax):
    """Actions with a JSON object as input, one behind the other, at the end of the reply."""

    name = "react"
    openings = ("Action:",)
    place = Place.LINE_START
    is_marked = False

    def read(self, cursor: Cursor, opening: str) -> Reading:
        return (
            yield from read_row(
                cursor, lambda: self._read_one(cursor), lambda: cursor.literal(opening)
            )
        )

    def _read_one(self, cursor: Cursor) -> Reading:
        return _read_action(cursor)


def _read_action(cursor: Cursor) -> Reading:
    yield from cursor.whitespace()
    name = yield from cursor.take(_NAME)
    yield from cursor.whitespace()
    has_input = yield from cursor.literal(_INPUT)
    yield from cursor.whitespace()
    if not name or not has_input or not (yield from cursor.is_next("{")):
        return NotACall(Reason.NOT_A_CALL)
    return (yield from read_arguments(cursor, name))


class ReActContract(ReAct):
    """The same of a model that was asked for it: a broken action is one that has to be mended.

    An action without an input has no arguments; the input may stand in a fence.
    """

    name = "react_contract"
    is_marked = True

    def _read_one(self, cursor: Cursor) -> Reading:
        return _read_demanded(cursor)


def _read_demanded(cursor: Cursor) -> Reading:
    yield from cursor.whitespace()
    name = yield from cursor.take(_NAME)
    yield from cursor.whitespace()
    if not name:
        return NotACall(Reason.NOT_A_CALL)
    if (yield from cursor.literal(_INPUT)):
        yield from cursor.whitespace()
    if (yield from cursor.peek()) == "":
        return Calls((WrittenCall(name, {}),))
    is_fenced = yield from cursor.literal(_FENCE)
    if is_fenced:
        yield from cursor.take(_LANGUAGE)
        yield from cursor.whitespace()
    if not (yield from cursor.is_next("{")):
        return NotACall(Reason.BROKEN)
    found = yield from read_arguments(cursor, name)
    if is_fenced:
        yield from cursor.whitespace()
        yield from cursor.literal(_FENCE)
    return found
