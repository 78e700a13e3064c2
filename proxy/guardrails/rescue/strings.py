"""Quoted strings in what models write as JSON or Python, for text that is still arriving.

It knows how a string is written; which quotation mark ends it is decided next door.
"""

import re
from dataclasses import dataclass

from proxy.guardrails.rescue.cursor import Cursor, Waiting
from proxy.guardrails.rescue.endings import QUOTES, Around, can_end, is_end, still_inside
from proxy.guardrails.rescue.escapes import WHOLE_ESCAPE, decoded, read_escape
from proxy.guardrails.rescue.literals import literals_of

__all__ = ["QUOTES", "Around", "Quoted", "plain_string", "read_between", "read_string"]

_CONTROL = re.compile(r"[\x00-\x1f]")
_PLAIN = {quote: re.compile(rf"[^{quote}\\]+") for quote in QUOTES}
_WHOLE = re.compile(r'"[^"\\\x00-\x1f]++"')
_ESCAPED = {
    quote: re.compile(rf"(?:[^{quote}\\]*+{WHOLE_ESCAPE})++", re.DOTALL) for quote in QUOTES
}


@dataclass(frozen=True, slots=True)
class Quoted:
    """A string that was read; `is_whole` is false if its end is missing."""

    text: str
    is_whole: bool = True
    is_strict: bool = True


def plain_string(cursor: Cursor, around: Around) -> str | None:
    """Pass and return a string with nothing to decode; None if it takes more to tell."""
    written = cursor.look(_WHOLE)
    if not written or not can_end(cursor, around, len(written)):
        return None
    cursor.advance(len(written))
    return written[1:-1]


def read_string(cursor: Cursor, quote: str, around: Around) -> Waiting[Quoted]:
    """Read the string that begins with `quote`, the quotation mark that comes next."""
    if (yield from cursor.literal(quote * 3)):
        return (yield from read_between(cursor, quote * 3))
    cursor.advance(1)
    is_correct, is_doubtful = quote == '"', False
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
