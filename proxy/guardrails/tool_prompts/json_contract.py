"""The JSON contract: a convention in which each reply is an object with a type.

    {"type": "tool_call", "name": "weather", "arguments": {"city": "Rome"}}
    {"type": "final", "content": "It is sunny."}

The contract is for models that were not trained on a format for calls. The object of type "final"
replaces the synthetic answer tool, so this tool is not listed. The syntax is not in the registry,
because these objects are calls only if the prompt prescribes them. A reply that begins differently,
for example with a list, is read by the syntaxes for plain JSON.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool, ToolCall, WrittenCall
from proxy.guardrails.rescue.rows import FENCE
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, NoCall, Reading, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.envelope import calls_in
from proxy.guardrails.rescue.values.cursor import Cursor
from proxy.guardrails.rescue.values.reader import read_value
from proxy.guardrails.rescue.values.scalars import MemberWatcher, Unreadable
from proxy.guardrails.tool_prompts import fragments

_CALL_FORM = '{"type": "tool_call", "name": "TOOL", "arguments": {"PARAMETER": "VALUE"}}'
_FINAL_FORM = '{"type": "final", "content": "YOUR COMPLETE ANSWER"}'
_SEVERAL = "one object a line for several calls"
_RESULTS = 'You get the results as objects of the type "tool_result".'


class JsonContractConvention(fragments.Convention):
    """A reply is a JSON object. Several calls are written as one object per line."""

    name = "json"
    syntaxes = ("bare_json", "fenced_json")

    def describe(self, tools: Sequence[Tool], respond: Tool | None) -> str:
        listed = f"Tools, one a line:\n{fragments.write_tools(tools, ())}\n\n"
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
        """Write each call on a separate line; the text is the `content` of the first call."""
        contents = [text if text.strip() else "", *("" for _ in calls)]
        return "\n".join(map(_write_call, calls, contents))

    def write_result(self, name: str, call_id: str, text: str) -> str:
        tool, content = json.dump_text(name), fragments.write_content(text, ())
        return f'{{"type": "tool_result", "name": {tool}, "content": {content}}}'


def _write_call(call: ToolCall, text: str) -> str:
    content = f'"content": {json.dump_text(text)}, ' if text else ""
    name = json.dump_text(call.name)
    arguments = fragments.write_arguments(call, ())
    return f'{{"type": "tool_call", {content}"name": {name}, "arguments": {arguments}}}'


_LANGUAGE = re.compile(r"[\w+.-]+", re.ASCII)
_TYPE = "type"
_CALL, _FINAL, _RESULT = "tool_call", "final", "tool_result"
_CONTENT = "content"
_MESSAGE = "message"  # the parameter of the synthetic tool


@lru_cache(maxsize=64)
def json_contract(respond_name: str | None = None) -> Syntax:
    """Return the syntax of replies that consist of JSON objects, perhaps in a code fence.

    A final answer is read as a call of the tool `respond_name`, and so is the `content` of a call.
    If `respond_name` is None, answers and contents are not read. An invented result and all text
    after it are ignored.
    """

    def read(cursor: Cursor, opening: str) -> Reading:
        if opening != FENCE:
            cursor.rewind()
            return (yield from _read_objects(cursor, respond_name))
        if (yield from cursor.take(_LANGUAGE)) not in ("", "json"):
            raise NoCall
        yield from cursor.whitespace()
        calls = yield from _read_objects(cursor, respond_name)
        is_closed = yield from cursor.literal(FENCE)
        return Calls(calls.calls, calls.closed and is_closed)

    return Syntax("json_contract", ("{", FENCE), read, "reply_start")


def _read_objects(cursor: Cursor, respond_name: str | None) -> Reading:
    items: list[JsonObject] = []
    is_closed = True
    while len(items) <= MOST_CALLS and (yield from cursor.peek()) == "{":
        watcher = _ContractWatcher(cursor, respond_name)
        try:
            value = yield from read_value(cursor, watcher)
        except Unreadable as failure:
            raise NoCall(Reason.BROKEN if watcher.is_contract else Reason.NOT_A_CALL) from failure
        items += [value.value] if isinstance(value.value, dict) else []
        is_closed = value.is_closed
        yield from cursor.whitespace()
    calls: list[WrittenCall] = []
    for item in items:
        if item.get(_TYPE) == _RESULT and calls:
            break  # an invented result; the later calls depend on it
        calls_of_item = _read_object(item, respond_name)
        if not calls_of_item:
            raise NoCall
        calls += calls_of_item
    if not calls:
        raise NoCall
    return Calls(tuple(calls), is_closed)


def _read_object(item: JsonObject, respond_name: str | None) -> tuple[WrittenCall, ...]:
    kind, content = item.get(_TYPE), item.get(_CONTENT)
    answer: tuple[WrittenCall, ...] = ()
    if respond_name is not None and content not in (None, ""):
        answer = (WrittenCall(respond_name, {_MESSAGE: content}),)
    if kind != _CALL:
        return answer if kind == _FINAL else ()
    call = {key: value for key, value in item.items() if key not in (_TYPE, _CONTENT)}
    calls = calls_in(call, is_marked=True)
    return (*answer, *calls) if calls else ()


class _ContractWatcher(MemberWatcher):
    """Stops the reading of an object that does not begin with a type of the contract.

    The text of a final answer is announced to the cursor as the argument of a call of the synthetic
    tool, so that the text is streamed while it arrives.
    """

    def __init__(self, cursor: Cursor, respond_name: str | None) -> None:
        self._cursor = cursor
        self._respond_name = respond_name
        self.is_contract = False

    def enters(self, path: Sequence[str | None], members: JsonObject) -> bool:
        # The type must be the first member, so at any later member `members` contains the type.
        if len(path) > 1 or (path[-1] == _TYPE and not members):
            return True
        kind, name = members.get(_TYPE), self._respond_name
        self.is_contract = kind in (_CALL, _RESULT) or (kind == _FINAL and name is not None)
        if kind == _FINAL and name is not None and path[-1] == _CONTENT:
            self._cursor.start_arguments(name, f'{{"{_MESSAGE}":')
        return self.is_contract

    def leaves(self, path: Sequence[str | None]) -> None:
        if path == [_CONTENT]:
            self._cursor.end_arguments()
