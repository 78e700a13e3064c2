"""Quoted strings in what models write as JSON or Python, for text that is still arriving.

It knows how a string is written; which quotation mark ends it is decided next door.
"""

import re
from dataclasses import dataclass

from proxy.guardrails.rescue.cursor import Cursor, Waiting
from proxy.guardrails.rescue.endings import (
    CURLY_QUOTES,
    QUOTES,
    Around,
    can_end,
    is_end,
    still_inside,
)
from proxy.guardrails.rescue.escapes import WHOLE_ESCAPE, decoded, read_escape
from proxy.guardrails.rescue.literals import literals_of

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
# What begins a string beyond Python's quotation marks: typesetters' ones, and escaped ones where
# all of the JSON was escaped once more.
FOREIGN_QUOTES = frozenset((*CURLY_QUOTES, _BACKSLASH))
_ENDS = {'"': '"', "'": "'", **CURLY_QUOTES}
_CONTROL = re.compile(r"[\x00-\x1f]")
_PLAIN = {quote: re.compile(rf"[^{quote}\\]+") for quote in _ENDS.values()}
_WHOLE = re.compile(r'"[^"\\\x00-\x1f]++"')
_ESCAPED = {
    quote: re.compile(rf"(?:[^{quote}\\]*+{WHOLE_ESCAPE})++", re.DOTALL) for quote in _ENDS.values()
}

# What stands in a string that was escaped once more, up to an escape that is not there as a whole.
_TWICE_ESCAPED = re.compile(r"""(?:[^\\]++|\\\\(?:\\["\\]|[^\\])|\\[^\\"])++""")


@dataclass(frozen=True, slots=True)
class Quoted:
    """A string that was read; `is_whole` is false if its end is missing."""

    text: str
    is_whole: bool = True
    is_strict: bool = True


def begins_string(cursor: Cursor, quote: str) -> Waiting[bool]:
    """Tell whether a string begins with `quote`, which comes next: not with any backslash."""
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
    is_correct, is_doubtful = quote == '"', False
    quote = _ENDS[quote]
    undoubted = _ESCAPED[quote]
    pieces: list[str] = []
    while True:
        if run := cursor.pass_run(undoubted):
            piece, is_known = decoded(run, quote)
            is_correct = is_correct and is_known
            pieces.append(piece)
        plain = yield from cursor.take(_PLAIN[quote])
        is_correct = is_correct and not _CONTROL.search(plain)
        pieces.append(plain)
        char = yield from cursor.peek()
        if not char or (is_doubtful and any(end in plain for end in around.ends)):
            return Quoted("".join(pieces), is_whole=False)
        cursor.advance(1)
        if char != quote:
            piece, is_known = yield from read_escape(cursor, quote)
            is_correct = is_correct and is_known
        elif (yield from is_end(cursor, around)):
            return Quoted("".join(pieces), is_strict=is_correct)
        else:
            piece, is_correct, is_doubtful = quote, False, True
            undoubted = still_inside(quote, around)
        pieces.append(piece)


def read_between(cursor: Cursor, mark: str) -> Waiting[Quoted]:
    """Read literal text up to the next `mark`, and the mark."""
    text = yield from cursor.take_until(literals_of(mark))
    is_whole = yield from cursor.literal(mark)
    return Quoted(text, is_whole, is_strict=False)


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
