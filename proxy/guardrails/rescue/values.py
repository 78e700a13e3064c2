"""The one lenient reader of JSON values, for text that is still arriving.

Beyond RFC 8259 it accepts what models write and can mean only one thing: Python's literals, single
quotes, trailing commas, bare keys, raw control characters in strings, unknown escapes (kept as
they are) and closing brackets missing at the end. It never completes or guesses a value.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from math import isinf
from typing import Protocol, TypeAlias

from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.rescue.cursor import Cursor, Waiting

DEPTH_LIMIT = 64
_DIGITS_LIMIT = 1000

_NUMERIC = re.compile(r"[-+.0-9eE]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_FIRST_LETTER = re.compile(r"[A-Za-z_$]")
_LETTERS = re.compile(r"[\w$.-]+", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f]")
_PLAIN = {'"': re.compile(r'[^"\\]+'), "'": re.compile(r"[^'\\]+")}
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "/": "/"}
_HEX = frozenset("0123456789abcdefABCDEF")
_STRICT_WORDS: dict[str, JsonValue] = {"true": True, "false": False, "null": None}
_PYTHON_WORDS: dict[str, JsonValue] = {"True": True, "False": False, "None": None}


class Problem(StrEnum):
    """Why a value could not be read."""

    CUT_OFF = "cut_off"
    UNEXPECTED = "unexpected"
    TOO_DEEP = "too_deep"
    TOO_LONG = "too_long"
    UNWANTED = "unwanted"


@dataclass(frozen=True, slots=True)
class Value:
    """A value; `is_closed` is false where closing brackets were missing at the end."""

    value: JsonValue
    is_strict: bool = True
    is_closed: bool = True


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What was written is no value."""

    problem: Problem


class Watcher(Protocol):
    """Whoever wants to know which member of which object is being read.

    `path` holds the keys from the outermost container inwards, None for a list.
    """

    def enters(self, path: Sequence[str | None], members: JsonObject) -> bool:
        """Hear that a member's value comes next; False ends the reading."""

    def leaves(self, path: Sequence[str | None]) -> None:
        """Hear that a member's value has been read."""


def read_value(cursor: Cursor, watcher: Watcher | None = None) -> Waiting[Value | Unreadable]:
    """Read one value and stop right behind it."""
    return _Reader(cursor, watcher).read()


def read_whole(text: str) -> Value | Unreadable:
    """Read text that has to be one value and nothing else but white space."""
    cursor = Cursor(text, is_finished=True)
    results: list[Value | Unreadable] = []

    def reading() -> Waiting[None]:
        results.append((yield from read_value(cursor)))

    list(reading())  # over a finished text it never waits
    result = results[0]
    cursor.pass_space()
    is_all = cursor.is_exhausted or isinstance(result, Unreadable)
    return result if is_all else Unreadable(Problem.UNEXPECTED)


class _Step(Enum):
    """Not a value yet: the next one belongs to the innermost open container."""

    MORE = 0


@dataclass(slots=True)
class _Open:
    """A container whose end has not been reached."""

    container: JsonObject | list[JsonValue]
    closer: str
    key: str | None = None


_Outcome: TypeAlias = JsonValue | Unreadable | _Step


class _Reader:
    """Reads one value with an explicit stack, so that depth costs no recursion."""

    def __init__(self, cursor: Cursor, watcher: Watcher | None) -> None:
        self._cursor = cursor
        self._watcher = watcher
        self._open: list[_Open] = []
        self._is_strict = True
        self._is_closed = True

    def read(self) -> Waiting[Value | Unreadable]:
        while True:
            outcome = yield from self._beginning()
            while self._open and not isinstance(outcome, Unreadable | _Step):
                outcome = yield from self._behind(outcome)
            if isinstance(outcome, Unreadable):
                return outcome
            if not isinstance(outcome, _Step):
                return Value(outcome, self._is_strict, self._is_closed)

    def _beginning(self) -> Waiting[_Outcome]:
        yield from self._cursor.whitespace()
        char = yield from self._cursor.peek()
        if char == "":
            return Unreadable(Problem.CUT_OFF)
        if char in "{[":
            return (yield from self._container(char))
        if char in _PLAIN:
            return (yield from self._string(char))
        if char in "-0123456789":
            return (yield from self._number())
        return (yield from self._word())

    def _container(self, char: str) -> Waiting[_Outcome]:
        if len(self._open) == DEPTH_LIMIT:
            return Unreadable(Problem.TOO_DEEP)
        self._cursor.advance(1)
        self._open.append(_Open({}, "}") if char == "{" else _Open([], "]"))
        return (yield from self._member())

    def _member(self) -> Waiting[_Outcome]:
        """Read up to the value of the next member, or the bracket behind the last."""
        yield from self._cursor.whitespace()
        char = yield from self._cursor.peek()
        innermost = self._open[-1]
        if char == innermost.closer:
            self._is_strict &= not innermost.container
            return self._close()
        if isinstance(innermost.container, list):
            return _Step.MORE
        key = yield from self._key(char)
        if isinstance(key, Unreadable):
            return key
        innermost.key = key
        self._is_strict &= key not in innermost.container
        return (yield from self._enter(innermost.container))

    def _enter(self, members: JsonObject) -> Waiting[_Outcome]:
        yield from self._cursor.whitespace()
        has_value = yield from self._cursor.literal(":")
        yield from self._cursor.whitespace()
        char = yield from self._cursor.peek()
        if char == "":
            return Unreadable(Problem.CUT_OFF)
        if not has_value:
            return Unreadable(Problem.UNEXPECTED)
        if self._watcher is not None and not self._watcher.enters(self._path(), members):
            return Unreadable(Problem.UNWANTED)
        return _Step.MORE

    def _behind(self, value: JsonValue) -> Waiting[_Outcome]:
        """Put a value into the innermost container and read on behind it."""
        innermost = self._open[-1]
        self._put(innermost, value)
        yield from self._cursor.whitespace()
        char = yield from self._cursor.peek()
        if char == ",":
            self._cursor.advance(1)
            return (yield from self._member())
        if char == innermost.closer:
            return self._close()
        if char:
            return Unreadable(Problem.UNEXPECTED)
        self._is_strict = self._is_closed = False
        return self._open.pop().container

    def _put(self, innermost: _Open, value: JsonValue) -> None:
        if isinstance(innermost.container, list):
            innermost.container.append(value)
            return
        if self._watcher is not None:
            self._watcher.leaves(self._path())
        innermost.container[innermost.key or ""] = value

    def _path(self) -> list[str | None]:
        return [container.key for container in self._open]

    def _close(self) -> JsonValue:
        self._cursor.advance(1)
        return self._open.pop().container

    def _key(self, char: str) -> Waiting[str | Unreadable]:
        if char in _PLAIN:
            return (yield from self._string(char))
        key = yield from self._letters()
        if not key:
            return Unreadable(Problem.UNEXPECTED if char else Problem.CUT_OFF)
        self._is_strict = False
        return key

    def _letters(self) -> Waiting[str]:
        char = yield from self._cursor.peek()
        return (yield from self._cursor.take(_LETTERS)) if _FIRST_LETTER.match(char) else ""

    def _word(self) -> Waiting[_Outcome]:
        word = yield from self._letters()
        if word in _STRICT_WORDS:
            return _STRICT_WORDS[word]
        if word in _PYTHON_WORDS:
            self._is_strict = False
            return _PYTHON_WORDS[word]
        return Unreadable(Problem.UNEXPECTED)

    def _number(self) -> Waiting[_Outcome]:
        text = yield from self._cursor.take(_NUMERIC)
        char = yield from self._cursor.peek()
        if char == "" and self._open:
            return Unreadable(Problem.CUT_OFF)  # more digits may be missing
        if len(text) > _DIGITS_LIMIT:
            return Unreadable(Problem.TOO_LONG)
        match = _NUMBER.fullmatch(text)
        if match is None:
            return Unreadable(Problem.UNEXPECTED)
        if match.lastindex is None:
            return int(text)
        number = float(text)
        return Unreadable(Problem.TOO_LONG) if isinf(number) else number

    def _string(self, quote: str) -> Waiting[str | Unreadable]:
        self._cursor.advance(1)
        self._is_strict &= quote == '"'
        pieces: list[str] = []
        while True:
            plain = yield from self._cursor.take(_PLAIN[quote])
            self._is_strict = self._is_strict and not _CONTROL.search(plain)
            pieces.append(plain)
            char = yield from self._cursor.peek()
            if char == "":
                return Unreadable(Problem.CUT_OFF)
            self._cursor.advance(1)
            if char == quote:
                return "".join(pieces)
            pieces.append((yield from self._escape(quote)))

    def _escape(self, quote: str) -> Waiting[str]:
        char = yield from self._cursor.peek()
        self._cursor.advance(len(char))
        if char == "u":
            return (yield from self._code_point())
        if char in _ESCAPES:
            return _ESCAPES[char]
        self._is_strict = False
        return char if char == quote else "\\" + char

    def _code_point(self) -> Waiting[str]:
        first = yield from self._hexadecimal()
        written = "\\u" + first
        if _is_between(first, 0xD800, 0xDBFF) and (yield from self._cursor.literal("\\u")):
            second = yield from self._hexadecimal()
            if _is_between(second, 0xDC00, 0xDFFF):
                low = int(second, 16) - 0xDC00
                return chr(0x10000 + ((int(first, 16) - 0xD800) << 10) + low)
            written += "\\u" + second
        elif len(first) == 4 and not _is_between(first, 0xD800, 0xDFFF):
            return chr(int(first, 16))
        self._is_strict = False
        return written

    def _hexadecimal(self) -> Waiting[str]:
        digits = ""
        while len(digits) < 4:
            char = yield from self._cursor.peek()
            if char not in _HEX:
                break
            self._cursor.advance(1)
            digits += char
        return digits


def _is_between(digits: str, low: int, high: int) -> bool:
    return len(digits) == 4 and low <= int(digits, 16) <= high
