"""`<|open|>call tool="NAME"<|sep|>...<|close|>call<|sep|>`, as Kimi K3 writes it."""

import re

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls, NotACall, Place, Reading, Reason
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.entities import unescaped
from proxy.guardrails.rescue.values.literals import Literals
from proxy.guardrails.rescue.values.reader import Value, read_whole

_SEPARATOR = Literals(("<|sep|>",))
_ARGUMENT = '<|open|>argument key="'
_ARGUMENT_END = Literals(("<|close|>argument<|sep|>",))
_CALL_END = "<|close|>call<|sep|>"
_HEAD = re.compile(r'(?P<name>[^"]+)"(?P<attributes>(?:\s+[\w:-]+="[^"]*")*)\s*')


class KimiK3:
    """Elements made of control tokens, an argument each with its type."""

    name = "kimi_k3"
    openings = ('<|open|>call tool="',)
    place = Place.ANYWHERE
    is_marked = True

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read one call."""
        name, _ = yield from _head(cursor)
        arguments: JsonObject = {}
        while name and (yield from cursor.literal(_ARGUMENT)):
            key, attributes = yield from _head(cursor)
            text = yield from cursor.take_until(_ARGUMENT_END)
            is_ended = yield from cursor.one_of(_ARGUMENT_END)
            if not key or not is_ended or _begins_element(text):
                return NotACall(Reason.BROKEN)
            arguments[key] = _typed(text, attributes)
            yield from cursor.whitespace()
        is_closed = bool(name) and (yield from cursor.literal(_CALL_END))
        if not is_closed and not arguments:
            return NotACall(Reason.NOT_A_CALL)
        return Calls((WrittenCall(name, arguments),), is_closed)


def _head(cursor: Cursor) -> Waiting[tuple[str, str]]:
    text = yield from cursor.take_until(_SEPARATOR)
    yield from cursor.one_of(_SEPARATOR)
    yield from cursor.whitespace()
    match = _HEAD.fullmatch(text)
    return (unescaped(match["name"]), match["attributes"]) if match else ("", "")


def _begins_element(text: str) -> bool:
    """Whether a value runs into another argument or call: its own closing mark is missing."""
    return _ARGUMENT in text or KimiK3.openings[0] in text


def _typed(text: str, attributes: str) -> JsonValue:
    if 'type="string"' in attributes:
        return text
    match read_whole(text):
        case Value(value, is_closed=True):
            return value
        case _:
            return text
