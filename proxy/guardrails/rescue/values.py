"""The one lenient reader of JSON values, for text that is still arriving.

Beyond RFC 8259 it accepts what models write and can mean only one thing: Python's literals, single
quotes, trailing and missing commas, comments, bare keys, raw control characters and quotation
marks in strings, unknown escapes (kept as they are) and closing brackets missing at the end. It
never completes or guesses a value.
"""

import re
from dataclasses import dataclass
from enum import Enum
from math import isinf
from typing import TypeAlias

from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.rescue.cursor import Cursor, Waiting
from proxy.guardrails.rescue.literals import Literals
from proxy.guardrails.rescue.strings import QUOTES, Around, Quoted, read_between, read_string
from proxy.guardrails.rescue.written import JSON, PYTHON, Problem, Style, Unreadable, Value, Watcher

__all__ = ["JSON", "PYTHON", "Problem", "Style", "Unreadable", "Value", "read_value", "read_whole"]

DEPTH_LIMIT = 64
_DIGITS_LIMIT = 1000

_NUMERIC = re.compile(r"[-+.0-9eE]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_FIRST_LETTER = re.compile(r"[A-Za-z_$]")
_LETTERS = re.compile(r"[\w$.-]+", re.ASCII)
_BARE = re.compile(r"[^,{}\[\]<>\"'\r\n]+")
# What some models write instead of quotation marks; nothing is escaped between them.
_MARKS = Literals(('<|"|>', "<escape>", "&quot;"))
_COMMENTS = Literals(("//", "/*"))
_COMMENT_ENDS = {"//": Literals(("\n",)), "/*": Literals(("*/",))}
_STRICT_WORDS: dict[str, JsonValue] = {"true": True, "false": False, "null": None}
_CLOSERS = {"{": "}", "[": "]", "(": ")"}
_STRICT_CLOSERS = {dict: "}", list: "]"}
_PYTHON_WORDS: dict[str, JsonValue] = {"True": True, "False": False, "None": None}


def read_value(
    cursor: Cursor, watcher: Watcher | None = None, style: Style = JSON
) -> Waiting[Value | Unreadable]:
    """Read one value and stop right behind it."""
    return _Reader(cursor, watcher, style).read()


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
    """A container whose end has not been reached; its bracket may stand twice."""

    container: JsonObject | list[JsonValue]
    closer: str
    key: str | None = None
    is_doubled: bool = False


_Outcome: TypeAlias = JsonValue | Unreadable | _Step


class _Reader:
    """Reads one value with an explicit stack, so that depth costs no recursion."""

    def __init__(self, cursor: Cursor, watcher: Watcher | None, style: Style) -> None:
        self._cursor = cursor
        self._watcher = watcher
        self._style = style
        self._ends = Literals(style.ends)
        self._open: list[_Open] = []
        self._is_strict = True
        self._is_closed = True

    def read(self) -> Waiting[Value | Unreadable]:
        while True:
            outcome = yield from self._beginning()
            while self._open and not isinstance(outcome, Unreadable | _Step):
                outcome = yield from self._behind(outcome)
            if isinstance(outcome, Unreadable):
                return self._broken_off(outcome)
            if not isinstance(outcome, _Step):
                return Value(outcome, self._is_strict, self._is_closed)

    def _broken_off(self, outcome: Unreadable) -> Unreadable:
        outermost = self._open[0].container if self._open else None
        if outcome.problem is not Problem.CUT_OFF or not isinstance(outermost, list):
            return outcome
        return Unreadable(outcome.problem, tuple(outermost))

    def _space(self) -> Waiting[str]:
        """Pass white space and comments; return the character behind them."""
        yield from self._cursor.whitespace()
        while (char := (yield from self._cursor.peek())) == "/":
            mark = yield from self._cursor.one_of(_COMMENTS)
            if not mark:
                break
            self._is_strict = False
            yield from self._cursor.take_until(_COMMENT_ENDS[mark])
            yield from self._cursor.one_of(_COMMENT_ENDS[mark])
            yield from self._cursor.whitespace()
        return char

    def _beginning(self) -> Waiting[_Outcome]:
        char = yield from self._space()
        if char == "":
            return Unreadable(Problem.CUT_OFF)
        if char in "{[" or (char == "(" and self._style.is_python):
            return (yield from self._container(char))
        if char in QUOTES:
            return (yield from self._string(char))
        if char in "<&":
            return (yield from self._marked())
        if char in "-0123456789":
            return (yield from self._number())
        return (yield from self._word())

    def _container(self, char: str) -> Waiting[_Outcome]:
        if len(self._open) == DEPTH_LIMIT:
            return Unreadable(Problem.TOO_DEEP)
        self._cursor.advance(1)
        is_object = char == "{" or (char == "(" and not self._open)
        self._open.append(_Open({} if is_object else [], _CLOSERS[char]))
        return (yield from self._member())

    def _member(self) -> Waiting[_Outcome]:
        """Read up to the value of the next member, or the bracket behind the last."""
        char = yield from self._space()
        innermost = self._open[-1]
        if char == innermost.closer:
            self._is_strict &= not innermost.container
            return self._close()
        if isinstance(innermost.container, list):
            return _Step.MORE
        if char == "{" and not (innermost.container or innermost.is_doubled):
            innermost.is_doubled = True
            self._is_strict = False
            self._cursor.advance(1)
            return (yield from self._member())
        key = yield from self._key(char)
        if isinstance(key, Unreadable):
            return key
        innermost.key = key
        self._is_strict &= key not in innermost.container
        return (yield from self._enter(innermost, innermost.container, is_quoted=char in QUOTES))

    def _enter(
        self, innermost: _Open, members: JsonObject, *, is_quoted: bool
    ) -> Waiting[_Outcome]:
        yield from self._space()
        has_value = yield from self._cursor.literal("=" if innermost.closer == ")" else ":")
        char = yield from self._space()
        if char == "":
            return Unreadable(Problem.CUT_OFF)
        if not has_value:
            return self._set(innermost, is_quoted=is_quoted)
        if self._watcher is not None and not self._watcher.enters(self._path(), members):
            return Unreadable(Problem.UNWANTED)
        return _Step.MORE

    def _set(self, innermost: _Open, *, is_quoted: bool) -> _Outcome:
        """Take the string that was read as a key for the first item of one of Python's sets."""
        is_set = self._style.is_python and is_quoted and innermost.closer == "}"
        if innermost.container or not is_set:
            return Unreadable(Problem.UNEXPECTED)
        innermost.container = []
        return innermost.key

    def _behind(self, value: JsonValue) -> Waiting[_Outcome]:
        """Put a value into the innermost container and read on behind it."""
        innermost = self._open[-1]
        self._put(innermost, value)
        char = yield from self._space()
        if char == ",":
            self._cursor.advance(1)
            return (yield from self._member())
        if char == innermost.closer:
            return self._close()
        if char and not (yield from self._lacks_bracket()):
            return (yield from self._without_comma(char, innermost, value))
        self._is_strict = False
        self._is_closed = bool(char)
        return self._open.pop().container

    def _lacks_bracket(self) -> Waiting[bool]:
        """Tell whether the value is over although its last bracket is missing."""
        while (end := self._cursor.here(self._ends)) is None:
            yield
        return bool(end) and len(self._open) == 1

    def _without_comma(self, char: str, innermost: _Open, value: JsonValue) -> Waiting[_Outcome]:
        is_object = isinstance(innermost.container, dict)
        is_next = char in QUOTES if is_object else char in "{[" and isinstance(value, dict | list)
        if not is_next and not (char in QUOTES and isinstance(value, str)):
            return Unreadable(Problem.UNEXPECTED)
        self._is_strict = False
        return (yield from self._member())

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
        innermost = self._open.pop()
        self._is_strict &= innermost.closer in _STRICT_CLOSERS[type(innermost.container)]
        return innermost.container

    def _key(self, char: str) -> Waiting[str | Unreadable]:
        if char in QUOTES:
            return (yield from self._string(char, is_key=True))
        if char and char in "<&":
            return (yield from self._marked())
        key = yield from self._letters()
        if not key:
            return Unreadable(Problem.UNEXPECTED if char else Problem.CUT_OFF)
        self._is_strict = False
        return key

    def _letters(self) -> Waiting[str]:
        char = yield from self._cursor.peek()
        return (yield from self._cursor.take(_LETTERS)) if _FIRST_LETTER.match(char) else ""

    def _word(self) -> Waiting[_Outcome]:
        if self._style.has_bare_text:
            word = (yield from self._cursor.take(_BARE)).strip()
        else:
            word = yield from self._letters()
        if word in _STRICT_WORDS:
            return _STRICT_WORDS[word]
        self._is_strict = False
        if word in _PYTHON_WORDS:
            return _PYTHON_WORDS[word]
        char = yield from self._cursor.peek()
        is_text = self._style.has_bare_text and word and char
        return word if is_text else Unreadable(Problem.UNEXPECTED)

    def _number(self) -> Waiting[_Outcome]:
        text = yield from self._cursor.take(_NUMERIC)
        if self._style.has_bare_text:
            text = (text + (yield from self._cursor.take(_BARE))).strip()
        char = yield from self._cursor.peek()
        if char == "" and self._open:
            return Unreadable(Problem.CUT_OFF)  # more digits may be missing
        if len(text) > _DIGITS_LIMIT:
            return Unreadable(Problem.TOO_LONG)
        match = _NUMBER.fullmatch(text)
        if match is None:
            self._is_strict = False
            return text if self._style.has_bare_text else Unreadable(Problem.UNEXPECTED)
        if match.lastindex is None:
            return int(text)
        number = float(text)
        return Unreadable(Problem.TOO_LONG) if isinf(number) else number

    def _string(self, quote: str, *, is_key: bool = False) -> Waiting[str | Unreadable]:
        closers = ["", self._style.outer, *(container.closer for container in self._open)]
        outer, closer = closers[-2:] if self._open else ("", "")
        is_list = bool(self._open) and isinstance(self._open[-1].container, list)
        around = Around(closer, outer, is_list, is_key, self._style.ends)
        return self._text((yield from read_string(self._cursor, quote, around)))

    def _marked(self) -> Waiting[str | Unreadable]:
        mark = yield from self._cursor.one_of(_MARKS)
        if not mark:
            return Unreadable(Problem.UNEXPECTED)
        return self._text((yield from read_between(self._cursor, mark)))

    def _text(self, quoted: Quoted) -> str | Unreadable:
        self._is_strict &= quoted.is_strict
        return quoted.text if quoted.is_whole else Unreadable(Problem.CUT_OFF)
