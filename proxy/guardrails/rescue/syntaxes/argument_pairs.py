"""`<tool_call>NAME<arg_key>KEY</arg_key><arg_value>value</arg_value></tool_call>`.

GLM writes it; LongCat, K2-Horizon and others use the same grammar with other words. Hunyuan has a
suffix in all tags, `<tool_call:SUFFIX>`, and a wrapper, `<tool_calls:SUFFIX>`. Without the wrapper
its calls count at the beginning of a reply only: nobody could tell elsewhere whether it was quoted.
"""

import re
from dataclasses import dataclass
from functools import cache

from proxy.conversation.json import JsonObject
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.marks import THOUGHT_ENDS, ends_here, holds_mark
from proxy.guardrails.rescue.syntax import Calls, NotACall, Place, Reading, Reason, Syntax, read_row
from proxy.guardrails.rescue.syntaxes.envelope import read_arguments
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting, literals_of
from proxy.guardrails.rescue.values.reader import read_whole
from proxy.guardrails.rescue.values.scalars import Value
from proxy.guardrails.rescue.values.tag_values import is_pair_text, is_surplus, unescape_entities

_PREFIXES = ("", "longcat_", "ifm|")
_NAME = re.compile(r"[^\s<>{}\[\]()\"'`\\]+")
_KEY = r"[^<>]{1,100}"
_NO_KEY = frozenset('<>{}[]"\n')
_ANY_SPACE = r"(?:\s|\\n)*"
_SPACE = re.compile(r"\s+")
_ESCAPED_SPACE = re.compile(r"[\sn\\]+")
_PAIR_LIMIT = 100
_ESCAPED_LINE = "\\n"
_SIGHT = 240  # how far to look for what makes a mark one
_OTHER = "call:"  # Gemma's
PAIRS_BEGIN = "<arg_key>"


class ArgumentPairs(Syntax):
    """A name, then keys and values in tags by turns, or one JSON object."""

    name = "argument_pairs"
    openings = tuple(f"<{prefix}tool_call>" for prefix in _PREFIXES)

    def read(self, cursor: Cursor, opening: str) -> Reading:
        return (yield from read_call(cursor, Tags(opening[1:].removesuffix("tool_call>"))))


def read_call(cursor: Cursor, tags: "Tags") -> Reading:
    """Read one call from behind its opening tag, in a family that spells its tags so."""
    return (yield from _PairsReader(cursor, tags).read())


def read_pairs(cursor: Cursor, name: str) -> Reading:
    """Read the pairs of a call to `name` whose opening mark is missing."""
    return (yield from _PairsReader(cursor, Tags("")).read_arguments(name))


@dataclass(frozen=True, slots=True)
class Tags:
    """How a family spells its tags."""

    prefix: str
    suffix: str = ""

    def pair(self, word: str) -> tuple[str, str]:
        tag = f"{self.prefix}{word}{self.suffix}>"
        return f"<{tag}", f"</{tag}"


@cache
def _pair_of(tags: Tags) -> re.Pattern[str]:
    """Write a pattern for a key up to the beginning of its value; its end may be missing."""
    (key, key_end), (value, _), (kind, _) = map(tags.pair, ("arg_key", "arg_value", "arg_type"))
    end = f"(?:{re.escape(key_end)})?{_ANY_SPACE}(?:{re.escape(value)}|{re.escape(kind)})"
    return re.compile(f"{re.escape(key)}{_ANY_SPACE}{_KEY}{end}")


class _PairsReader:
    """Reads one call from behind its opening.

    A reply that was escaped once too often shows it between the tags: a backslash and an n stand
    for a line end there. Its values are read as escaped too.
    """

    def __init__(self, cursor: Cursor, tags: Tags) -> None:
        self._cursor = cursor
        self._opening, self._closer = tags.pair("tool_call")
        self._key, self._key_end = tags.pair("arg_key")
        self._value, self._value_end = tags.pair("arg_value")
        self._type, self._type_end = tags.pair("arg_type")
        self._separator = f"<tool_sep{tags.suffix}>"
        self._arguments: JsonObject = {}
        self._is_escaped = False
        self._begins_pair = _pair_of(tags)
        self._lacks_mark = False
        self._has_inner_mark = False

    def read(self) -> Reading:
        cursor = self._cursor
        yield from cursor.whitespace()
        name = yield from cursor.take(_NAME)
        yield from self._pass_space()
        if name and (yield from cursor.literal(self._separator)):
            yield from self._pass_space()
        if name and not name.startswith(_OTHER) and (yield from cursor.is_next("{")):
            return (yield from self._read_json(name))
        return (yield from self.read_arguments(name))

    def read_arguments(self, name: str) -> Reading:
        count = 0
        while name and (yield from self._cursor.literal(self._key)):
            count += 1
            if count > _PAIR_LIMIT or not (yield from self._read_pair()):
                return NotACall(Reason.BROKEN)
            yield from self._pass_space()
        is_closed = bool(name) and (yield from self._cursor.literal(self._closer))
        if self._lacks_mark and self._has_inner_mark:
            return NotACall(Reason.BROKEN)
        if not is_closed and not self._arguments:
            return NotACall(Reason.NOT_A_CALL)
        return Calls((WrittenCall(name, self._arguments),), is_closed)

    def _read_json(self, name: str) -> Reading:
        found = yield from read_arguments(self._cursor, name, (self._closer,))
        if isinstance(found, NotACall):
            return found
        yield from self._pass_space()
        is_closed = yield from self._cursor.literal(self._closer)
        return Calls(found.calls, found.closed and is_closed)

    def _pass_space(self) -> Waiting[None]:
        yield from self._cursor.whitespace()
        while (yield from self._cursor.literal(_ESCAPED_LINE)):
            self._is_escaped = True
            yield from self._cursor.whitespace()

    def _read_pair(self) -> Waiting[bool]:
        key = (yield from self._read_until(self._key_end, self._value)).strip()
        yield from self._pass_space()
        if (yield from self._cursor.literal(self._type)):
            yield from self._read_until(self._type_end, self._value)
            yield from self._pass_space()
        if not key or set(key) & _NO_KEY or not (yield from self._cursor.literal(self._value)):
            return False
        text = yield from self._read_text()
        value = self._interpret(text) if text is not None else None
        if value is None or self._arguments.get(key, value) != value:
            return False  # cut off, or two values of which one would have to be guessed
        self._arguments[key] = value
        return True

    def _interpret(self, text: str) -> str:
        if not self._is_escaped:
            return unescape_entities(text)
        match read_whole(f'"{text}"'):
            case Value(str() as value, is_strict=True):
                return value
            case _:
                return text

    def _read_until(self, end: str, other: str) -> Waiting[str]:
        text = yield from self._cursor.take_until(literals_of(end, other))
        yield from self._cursor.literal(end)
        return text

    def _read_text(self) -> Waiting[str | None]:
        """Read a value; a mark in it ends it only if something follows that fits."""
        marks = (self._value_end, self._key, self._closer)
        pieces: list[str] = []
        while True:
            pieces.append((yield from self._cursor.take_until(literals_of(*marks))))
            mark = next((one for one in marks if self._cursor.stands_at(one)), "")
            if mark == self._value_end:
                self._cursor.advance(len(mark))
                mark += yield from self._cursor.take(_ESCAPED_SPACE if self._is_escaped else _SPACE)
                if (yield from self._fits()):
                    text = "".join(pieces)
                    return None if self._may_have_ended(text) else text
                self._has_inner_mark = True
            elif not mark or (yield from self._ends_at(mark)):
                return self._accept_unended("".join(pieces)) if mark else None
            else:
                self._cursor.advance(len(mark))
            pieces.append(mark)

    def _ends_at(self, mark: str) -> Waiting[bool]:
        """Return whether the value ends at the mark that comes next, its own being missing."""
        if mark == self._key:
            return (yield from self._is_key())
        return not (yield from is_surplus(self._cursor, self._value, self._value_end))

    def _may_have_ended(self, text: str) -> bool:
        """Return whether a call may have ended within its value, and something else begun there."""
        _, mark, rest = text.partition(self._closer)
        return bool(mark) and (holds_mark(rest) or any(end in rest for end in THOUGHT_ENDS))

    def _accept_unended(self, text: str) -> str | None:
        """Return a value without closing mark, unless it runs into another call."""
        self._lacks_mark = True
        return None if holds_mark(text) else text.removesuffix("\n")

    def _fits(self) -> Waiting[bool]:
        if (yield from self._cursor.is_next(self._closer)):
            return not (yield from is_pair_text(self._cursor, self._value_end, self._closer))
        if (yield from self._cursor.is_next(self._key)):
            return (yield from self._is_key())
        is_next = yield from self._cursor.is_next(self._opening)
        return is_next or (yield from ends_here(self._cursor))

    def _is_key(self) -> Waiting[bool]:
        """Return whether a key and its value begin here, and no text that mentions the mark."""
        while True:
            text, is_all = self._cursor.glimpse(_SIGHT)
            is_key = self._begins_pair.match(text) is not None
            if is_key or is_all:
                return is_key
            yield


_SUFFIX = re.compile(r"[\w.-]+")


class SuffixedPairs(Syntax):
    """All calls in one wrapper."""

    name = "suffixed_pairs"
    openings = ("<tool_calls:",)

    def read(self, cursor: Cursor, opening: str) -> Reading:
        tags = yield from _read_tags(cursor)
        yield from cursor.whitespace()
        if not (yield from cursor.literal(tags.pair("tool_call")[0])):
            return NotACall(Reason.NOT_A_CALL)
        found = yield from _read_calls(cursor, tags)
        if isinstance(found, NotACall):
            return found
        is_closed = yield from cursor.literal(tags.pair("tool_calls")[1])
        return Calls(found.calls, is_closed)


class SuffixedPairsAtStart(SuffixedPairs):
    """The same without the wrapper."""

    name = "suffixed_pairs_at_start"
    openings = ("<tool_call:",)
    place = Place.REPLY_START

    def read(self, cursor: Cursor, opening: str) -> Reading:
        return (yield from _read_calls(cursor, (yield from _read_tags(cursor))))


def _read_calls(cursor: Cursor, tags: Tags) -> Reading:
    call, _ = tags.pair("tool_call")
    return (
        yield from read_row(cursor, lambda: read_call(cursor, tags), lambda: cursor.literal(call))
    )


def _read_tags(cursor: Cursor) -> Waiting[Tags]:
    """Read the suffix of the first tag; what follows decides whether it was one."""
    suffix = yield from cursor.take(_SUFFIX)
    yield from cursor.literal(">")
    return Tags("", f":{suffix}")
