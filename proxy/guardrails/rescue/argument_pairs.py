"""`<tool_call>NAME<arg_key>KEY</arg_key><arg_value>value</arg_value></tool_call>`.

GLM writes it; LongCat, Hunyuan and others use the same grammar with other words.
"""

import re

from proxy.conversation.json import JsonObject
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.cursor import Cursor, Waiting
from proxy.guardrails.rescue.entities import unescaped
from proxy.guardrails.rescue.envelope import read_arguments
from proxy.guardrails.rescue.halves import ends_here
from proxy.guardrails.rescue.literals import literals_of
from proxy.guardrails.rescue.syntax import Calls, NotACall, Place, Reading, Reason
from proxy.guardrails.rescue.values import Value, read_whole

_PREFIXES = ("", "longcat_", "ifm|")
_NAME = re.compile(r"[^\s<>{}\[\]()\"'`\\]+")
_SPACE = re.compile(r"\s+")
_ESCAPED_SPACE = re.compile(r"[\sn\\]+")
_SEPARATOR = "<tool_sep>"
_PAIR_LIMIT = 100
_ESCAPED_LINE = "\\n"
_OTHER = "call:"  # Gemma's
PAIRS_BEGIN = "<arg_key>"


class ArgumentPairs:
    """A name, then keys and values in tags by turns, or one JSON object."""

    name = "argument_pairs"
    openings = tuple(f"<{prefix}tool_call>" for prefix in _PREFIXES)
    place = Place.ANYWHERE
    is_marked = True

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read one call."""
        return (yield from _Call(cursor, opening).read())


def read_pairs(cursor: Cursor, name: str) -> Reading:
    """Read the pairs of a call to `name` whose opening mark is missing."""
    return (yield from _Call(cursor, ArgumentPairs.openings[0]).read_arguments(name))


class _Call:
    """Reads one call from behind its opening.

    A reply that was escaped once too often shows it between the tags: a backslash and an n stand
    for a line end there. Its values are read as escaped too.
    """

    def __init__(self, cursor: Cursor, opening: str) -> None:
        prefix = opening.removeprefix("<").removesuffix("tool_call>")
        self._cursor = cursor
        self._opening = opening
        self._closer = f"</{opening[1:]}"
        self._key, self._key_end = f"<{prefix}arg_key>", f"</{prefix}arg_key>"
        self._value, self._value_end = f"<{prefix}arg_value>", f"</{prefix}arg_value>"
        self._type, self._type_end = f"<{prefix}arg_type>", f"</{prefix}arg_type>"
        self._arguments: JsonObject = {}
        self._is_escaped = False

    def read(self) -> Reading:
        cursor = self._cursor
        yield from cursor.whitespace()
        name = yield from cursor.take(_NAME)
        yield from self._space()
        if name and (yield from cursor.literal(_SEPARATOR)):
            yield from self._space()
        if name and not name.startswith(_OTHER) and (yield from cursor.is_next("{")):
            return (yield from self._json(name))
        return (yield from self.read_arguments(name))

    def read_arguments(self, name: str) -> Reading:
        """Read everything behind the name."""
        count = 0
        while name and (yield from self._cursor.literal(self._key)):
            count += 1
            if count > _PAIR_LIMIT or not (yield from self._pair()):
                return NotACall(Reason.BROKEN)
            yield from self._space()
        is_closed = bool(name) and (yield from self._cursor.literal(self._closer))
        if not is_closed and not self._arguments:
            return NotACall(Reason.NOT_A_CALL)
        return Calls((WrittenCall(name, self._arguments),), is_closed)

    def _json(self, name: str) -> Reading:
        found = yield from read_arguments(self._cursor, name, (self._closer,))
        if isinstance(found, NotACall):
            return found
        yield from self._space()
        is_closed = yield from self._cursor.literal(self._closer)
        return Calls(found.calls, found.closed and is_closed)

    def _space(self) -> Waiting[None]:
        yield from self._cursor.whitespace()
        while (yield from self._cursor.literal(_ESCAPED_LINE)):
            self._is_escaped = True
            yield from self._cursor.whitespace()

    def _pair(self) -> Waiting[bool]:
        key = (yield from self._until(self._key_end, self._value)).strip()
        yield from self._space()
        if (yield from self._cursor.literal(self._type)):
            yield from self._until(self._type_end, self._value)
            yield from self._space()
        if not key or not (yield from self._cursor.literal(self._value)):
            return False
        text = yield from self._text()
        value = self._meant(text) if text is not None else None
        if value is None or self._arguments.get(key, value) != value:
            return False  # cut off, or two values of which one would have to be guessed
        self._arguments[key] = value
        return True

    def _meant(self, text: str) -> str:
        if not self._is_escaped:
            return unescaped(text)
        match read_whole(f'"{text}"'):
            case Value(str() as value, is_strict=True):
                return value
            case _:
                return text

    def _until(self, end: str, other: str) -> Waiting[str]:
        text = yield from self._cursor.take_until(literals_of(end, other))
        yield from self._cursor.literal(end)
        return text

    def _text(self) -> Waiting[str | None]:
        """Read a value; a mark in it ends it only if something follows that fits."""
        marks = literals_of(self._value_end, self._key, self._closer)
        pieces: list[str] = []
        while True:
            pieces.append((yield from self._cursor.take_until(marks)))
            if (yield from self._cursor.is_next(self._key)):
                return "".join(pieces)
            if (yield from self._cursor.is_next(self._closer)):
                return "".join(pieces)
            if not (yield from self._cursor.literal(self._value_end)):
                return None
            space = yield from self._cursor.take(_ESCAPED_SPACE if self._is_escaped else _SPACE)
            if (yield from self._fits()):
                return "".join(pieces)
            pieces += (self._value_end, space)

    def _fits(self) -> Waiting[bool]:
        for mark in (self._key, self._closer, self._opening):
            if (yield from self._cursor.is_next(mark)):
                return True
        return (yield from ends_here(self._cursor))
