"""`{"type": "tool_call", ...}` or `{"type": "final", ...}`: a contract for models with no habit.

The synthetic answer tool is not listed: the final form stands for it. The syntax is in no registry:
the forms mean something only to a model that was asked for them. Anything that does not begin with
a known type, lists included, is left to the readers of plain JSON.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool, ToolCall, WrittenCall
from proxy.guardrails.rescue.syntax import (
    MOST_CALLS,
    Calls,
    NotACall,
    Place,
    Reading,
    Reason,
    Syntax,
)
from proxy.guardrails.rescue.syntaxes.envelope import calls_in
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.reader import read_value
from proxy.guardrails.rescue.values.scalars import Unreadable
from proxy.guardrails.tool_prompts.fragments import write_arguments, write_content, write_tools

_CALL_FORM = '{"type": "tool_call", "name": "TOOL", "arguments": {"PARAMETER": "VALUE"}}'
_FINAL_FORM = '{"type": "final", "content": "YOUR COMPLETE ANSWER"}'
_SEVERAL = "one object a line for several calls"
_RESULTS = 'You get the results as objects of the type "tool_result".'


class JsonContractConvention:
    """The whole reply is one JSON object, or one a line for several calls."""

    name = "json"
    syntaxes = ("bare_json", "fenced_json")
    stops = ()
    answer_label = ""

    def describe(self, tools: Sequence[Tool], respond: Tool | None) -> str:
        listed = f"Tools, one a line:\n{write_tools(tools, ())}\n\n"
        if respond is None:
            form = f"To call a tool, reply with JSON and nothing else, {_SEVERAL}:\n{_CALL_FORM}"
        else:
            form = (
                "Always reply with JSON and nothing else. "
                f"To call a tool, {_SEVERAL}:\n{_CALL_FORM}\n"
                f"To answer the user:\n{_FINAL_FORM}"
            )
        return f"{listed}{form}\n{_RESULTS}"

    def write_calls(self, text: str, calls: Sequence[ToolCall]) -> str:
        """Write each call on a line of its own; what was said is the `content` of the first."""
        said = [text if text.strip() else "", *("" for _ in calls)]
        return "\n".join(map(_write_call, calls, said))

    def write_result(self, name: str, call_id: str, text: str) -> str:
        tool = json.dump_text(name)
        return f'{{"type": "tool_result", "name": {tool}, "content": {write_content(text, ())}}}'


def _write_call(call: ToolCall, said: str) -> str:
    content = f'"content": {json.dump_text(said)}, ' if said else ""
    name = json.dump_text(call.name)
    arguments = write_arguments(call, ())
    return f'{{"type": "tool_call", {content}"name": {name}, "arguments": {arguments}}}'


_FENCE = "```"
_LANGUAGE = re.compile(r"[\w+.-]+", re.ASCII)
_TYPE = "type"
_CALL, _FINAL, _RESULT = "tool_call", "final", "tool_result"
_SAID = "content"
_MESSAGE = "message"  # the parameter of the synthetic tool


@dataclass(frozen=True, slots=True)
class JsonContract(Syntax):
    """JSON objects from the first character of the reply to the last, or a fence around them.

    A final answer is a call of the tool `respond_name`; without that tool it is no call. What
    was said beside a call is an answer, too. Results that the model invents, and what it makes of
    them, count for nothing.
    """

    respond_name: str | None = None
    name = "json_contract"
    openings = ("{", _FENCE)
    place = Place.REPLY_START

    def read(self, cursor: Cursor, opening: str) -> Reading:
        is_fenced = opening == _FENCE
        if is_fenced:
            if (yield from cursor.take(_LANGUAGE)) not in ("", "json"):
                return NotACall(Reason.NOT_A_CALL)
            yield from cursor.whitespace()
        else:
            cursor.rewind()
        found = yield from self._read_objects(cursor)
        if is_fenced and isinstance(found, Calls):
            is_closed = yield from cursor.literal(_FENCE)
            return Calls(found.calls, found.closed and is_closed)
        return found

    def _read_objects(self, cursor: Cursor) -> Waiting[Calls | NotACall]:
        items: list[JsonObject] = []
        is_closed = True
        while len(items) <= MOST_CALLS and (yield from cursor.peek()) == "{":
            watcher = _ContractWatcher(cursor, self.respond_name)
            value = yield from read_value(cursor, watcher)
            if isinstance(value, Unreadable) or not isinstance(value.value, dict):
                return NotACall(Reason.BROKEN if watcher.is_ours else Reason.NOT_A_CALL)
            items.append(value.value)
            is_closed = value.is_closed
            yield from cursor.whitespace()
        calls = self._calls_in(items)
        return Calls(calls, is_closed) if calls else NotACall(Reason.NOT_A_CALL)

    def _calls_in(self, items: Sequence[JsonObject]) -> tuple[WrittenCall, ...]:
        """Return what the objects up to the first invented result ask for; none if one is odd."""
        calls: list[WrittenCall] = []
        for item in items:
            if item.get(_TYPE) == _RESULT and calls:
                break
            found = self._calls_of(item)
            if not found:
                return ()
            calls += found
        return tuple(calls)

    def _calls_of(self, item: JsonObject) -> tuple[WrittenCall, ...]:
        kind, said = item.get(_TYPE), item.get(_SAID)
        answer: tuple[WrittenCall, ...] = ()
        if self.respond_name is not None and said not in (None, ""):
            answer = (WrittenCall(self.respond_name, {_MESSAGE: said}),)
        if kind != _CALL:
            return answer if kind == _FINAL else ()
        rest = {key: value for key, value in item.items() if key not in (_TYPE, _SAID)}
        calls = calls_in(rest, is_marked=True)
        return (*answer, *calls) if calls else ()


class _ContractWatcher:
    """Ends the reading of what does not begin with a type that the contract knows.

    Tells the cursor where the final answer begins, as if it were the argument of the tool.
    """

    def __init__(self, cursor: Cursor, respond_name: str | None) -> None:
        self._cursor = cursor
        self._respond_name = respond_name
        self.is_ours = False

    def enters(self, path: Sequence[str | None], members: JsonObject) -> bool:
        if len(path) > 1 or (path[-1] == _TYPE and not members):
            return True
        kind, name = members.get(_TYPE), self._respond_name
        self.is_ours = kind in (_CALL, _RESULT) or (kind == _FINAL and name is not None)
        if kind == _FINAL and name is not None and path[-1] == _SAID:
            self._cursor.start_arguments(name, f'{{"{_MESSAGE}":')
        return self.is_ours

    def leaves(self, path: Sequence[str | None]) -> None:
        if path == [_SAID]:
            self._cursor.end_arguments()
