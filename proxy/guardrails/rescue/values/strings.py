"""Quoted strings in what models write as JSON or Python, for text that is still arriving.

It knows how a string is written; which quotation mark ends it is decided next door.
"""

import re
from dataclasses import dataclass, field

from proxy.conversation.possessive import possessive
from proxy.guardrails.rescue.call_marks import holds_call
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.doubts import Doubt, doubt_about, is_last
from proxy.guardrails.rescue.values.endings import (
    CURLY_QUOTES,
    QUOTES,
    Around,
    can_end,
    is_end,
    still_inside,
)
from proxy.guardrails.rescue.values.escapes import WHOLE_ESCAPE, decoded, read_escape
from proxy.guardrails.rescue.values.literals import literals_of

__all__ = [
    "FOREIGN_QUOTES",
    "QUOTES",
    "Around",
    "Quoted",
    "begins_string",
    "plain_string",
    "read_between",
    "read_string",
]

_BACKSLASH = "\\"
_ESCAPED_QUOTE = '\\"'
_SOME_ESCAPE = r"\_"  # stands for the one that was read
# What begins a string beyond Python's quotation marks: typesetters' ones, and escaped ones where
# all of the JSON was escaped once more.
FOREIGN_QUOTES = frozenset((*CURLY_QUOTES, _BACKSLASH))
_ENDS = {'"': '"', "'": "'", **CURLY_QUOTES}
_CONTROL = re.compile(r"[\x00-\x1f]")
_PLAIN = {quote: re.compile(rf"[^{quote}\\]+") for quote in _ENDS.values()}
_WHOLE = re.compile(r'"[^"\\\x00-\x1f]++"')
_ESCAPED = {
    quote: re.compile(possessive(rf"(?:[^{quote}\\]*+{WHOLE_ESCAPE})++"), re.DOTALL)
    for quote in _ENDS.values()
}

# What stands in a string that was escaped once more, up to an escape that is not there as a whole.
_TWICE_ESCAPED = re.compile(possessive(r"""(?:[^\\]++|\\\\(?:\\["\\]|[^\\])|\\[^\\"])++"""))


@dataclass(frozen=True, slots=True)
class Quoted:
    """A string that was read; `is_whole` is false if its end is missing."""

    text: str
    is_whole: bool = True
    is_strict: bool = True
    doubt: Doubt = field(default=Doubt.NONE, compare=False)


def begins_string(cursor: Cursor, quote: str) -> Waiting[bool]:
    """Return whether a string begins with `quote`, which comes next: not with any backslash."""
    return quote != _BACKSLASH or (yield from cursor.is_next(_ESCAPED_QUOTE))


def plain_string(cursor: Cursor, around: Around) -> str | None:
    """Pass and return a string with nothing to decode; None if it takes more to tell."""
    written = cursor.look(_WHOLE)
    if not written or not can_end(cursor, around, len(written)):
        return None
    cursor.advance(len(written))
    return written[1:-1]


def read_string(cursor: Cursor, quote: str, around: Around) -> Waiting[Quoted]:
    """Read the string that begins with `quote`, the quotation mark that comes next."""
    if quote == _BACKSLASH:
        return (yield from _escaped(cursor))
    if quote in QUOTES and (yield from cursor.literal(quote * 3)):
        return (yield from read_between(cursor, quote * 3))
    yield from cursor.literal(quote)
    return (yield from _Unescaped(cursor, quote, around).read())


class _Unescaped:
    """Reads a string in which quotation marks may not be escaped, from behind the first one."""

    def __init__(self, cursor: Cursor, quote: str, around: Around) -> None:
        self._cursor = cursor
        self._opening = quote
        self._quote = _ENDS[quote]
        self._around = around
        self._is_correct = quote == '"'
        self._is_doubtful = False
        self._pieces: list[str] = []
        self._written: list[str] = []

    def read(self) -> Waiting[Quoted]:
        cursor, quote = self._cursor, self._quote
        undoubted = _ESCAPED[quote]
        while True:
            if run := cursor.pass_run(undoubted):
                self._add(run, decoded(run, quote))
            plain = yield from cursor.take(_PLAIN[quote])
            self._add(plain, (plain, not _CONTROL.search(plain)))
            char = yield from cursor.peek()
            if not char or (self._is_doubtful and any(end in plain for end in self._around.ends)):
                return Quoted("".join(self._pieces), is_whole=False)
            cursor.advance(1)
            if char != quote:
                self._add(_SOME_ESCAPE, (yield from read_escape(cursor, quote)))
            elif (yield from is_end(cursor, self._around)):
                return self._whole()
            else:
                self._add(quote, (quote, False))
                self._is_doubtful = True
                undoubted = still_inside(quote, self._around)

    def _add(self, written: str, meaning: tuple[str, bool]) -> None:
        meant, is_correct = meaning
        self._written.append(written)
        self._pieces.append(meant)
        self._is_correct = self._is_correct and is_correct

    def _whole(self) -> Quoted:
        doubt = Doubt.NONE
        if self._is_doubtful:
            doubt = doubt_about("".join(self._written), self._opening, self._quote)
        return Quoted("".join(self._pieces), is_strict=self._is_correct, doubt=doubt)


def read_between(cursor: Cursor, mark: str, ends: tuple[str, ...] = ()) -> Waiting[Quoted]:
    """Read literal text up to the next `mark`, and the mark.

    It may be missing where the bracket of the object that this is the last value of stands, and one
    of `ends` behind it is the last thing in the reply. The bracket is passed, too.
    """
    marks = literals_of(mark, *ends)
    pieces: list[str] = []
    while True:
        pieces.append((yield from cursor.take_until(marks)))
        if (yield from cursor.literal(mark)):
            return Quoted("".join(pieces), is_strict=False)
        end = next((one for one in ends if cursor.stands_at(one)), "")
        is_over = pieces[-1].rstrip().endswith("}") and (yield from is_last(cursor, end))
        if is_over or not end:
            text = "".join(pieces).rstrip().removesuffix("}")
            return Quoted(text, bool(end) and not holds_call(text), is_strict=False)
        cursor.advance(len(end))
        pieces.append(end)


def _escaped(cursor: Cursor) -> Waiting[Quoted]:
    """Read a string of JSON that was escaped once more, up to the quote that ends it."""
    pieces: list[str] = []
    is_whole = yield from cursor.literal(_ESCAPED_QUOTE)
    while is_whole:
        pieces.append(cursor.pass_run(_TWICE_ESCAPED))
        piece = yield from cursor.take_until(literals_of(_ESCAPED_QUOTE))
        pieces.append(piece)
        is_whole = yield from cursor.literal(_ESCAPED_QUOTE)
        if (len(piece) - len(piece.rstrip(_BACKSLASH))) % 4 != 2:  # else the quote is escaped too
            break
        pieces.append(_ESCAPED_QUOTE)
    once, _ = decoded("".join(pieces), '"')
    return Quoted(decoded(once, '"')[0], is_whole, is_strict=False)
