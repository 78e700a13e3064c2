"""`<tools>{"name": ..., "arguments": {...}}</tools>`, as Qwen2.5-Coder writes it.

Prompts list definitions between the same marks, and models repeat them. So an object counts that
has a name, `arguments` and nothing else: a definition has `parameters`, a description, or a type.
"""

from collections.abc import Mapping

from proxy.conversation.json import JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, NotACall, Place, Reading, Reason
from proxy.guardrails.rescue.values.cursor import Cursor
from proxy.guardrails.rescue.values.reader import Style, Unreadable, read_value

_CLOSER = "</tools>"
_STYLE = Style((_CLOSER,))
_CALL = {"name", "arguments"}


class ToolsTag:
    """Objects or lists of them, one behind the other, between the marks of definitions."""

    name = "tools_tag"
    openings = ("<tools>",)
    place = Place.ANYWHERE
    is_marked = True

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read calls up to the closing mark; a mark may follow instead, or nothing."""
        calls: list[WrittenCall] = []
        is_closed = True
        yield from cursor.whitespace()
        while is_closed and (yield from cursor.peek()) in ("{", "["):
            value = yield from read_value(cursor, None, _STYLE)
            if isinstance(value, Unreadable):
                return NotACall(Reason.NOT_A_CALL)
            found = [_call_in(item) for item in _items(value.value)]
            calls += (call for call in found if call is not None)
            if None in found or len(calls) > MOST_CALLS:
                return NotACall(Reason.NOT_A_CALL)
            is_closed = value.is_closed
            yield from cursor.whitespace()
        is_marked_off = yield from cursor.literal(_CLOSER)
        behind = yield from cursor.peek()
        if not calls or not (is_marked_off or behind in ("", "<")):
            return NotACall(Reason.NOT_A_CALL)
        return Calls(tuple(calls), is_closed and is_marked_off)


def _items(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else [value]


def _call_in(item: JsonValue) -> WrittenCall | None:
    if not isinstance(item, Mapping) or item.keys() != _CALL:
        return None
    name, arguments = item["name"], item["arguments"]
    is_call = isinstance(name, str) and bool(name.strip()) and isinstance(arguments, dict)
    return WrittenCall(str(name).strip(), arguments) if is_call else None
