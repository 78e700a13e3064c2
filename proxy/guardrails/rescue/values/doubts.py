"""How far a string can be trusted in which quotation marks stand that are not escaped.

It was taken to end where something follows that fits. Where the marks within it come in pairs, that
is the only reading. Where one has no partner, the string may have ended at it, or go on behind what
looked like its end, and that belongs to what it quotes: JSON, or another call.
"""

# ruff: noqa: RUF001 - some quotation marks are a typesetter's

import re
from enum import IntEnum
from functools import lru_cache

from proxy.conversation.possessive import possessive
from proxy.guardrails.rescue.call_marks import CLOSING, holds_call
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting

_APOSTROPHES = "'’"
_QUOTES = "\"'`“”‘’"
_SIGHT = 64  # how far to look behind a value
_LONGEST_MARK = 32
_ESCAPE = re.compile(r"\\.", re.DOTALL)


class Doubt(IntEnum):
    """What is doubtful about a string, the worst last."""

    NONE = 0
    PAIRED = 1  # marks within it come in pairs
    UNPAIRED = 2  # one has no partner: the string must be the last of its value
    TORN = 3  # what it quotes goes on behind it


def doubt_about(written: str, opening: str, closing: str) -> Doubt:
    """Judge what was written between these quotation marks, some of which are not escaped."""
    plain = _ESCAPE.sub("_", written) if "\\" in written else written
    if holds_call(plain):
        return Doubt.TORN
    if _paired(opening + closing).fullmatch(plain):
        return Doubt.PAIRED
    return Doubt.TORN if _structure(closing).search(plain) else Doubt.UNPAIRED


@lru_cache
def _paired(quotes: str) -> re.Pattern[str]:
    """Write a pattern for text in which every mark that can begin a quotation has its end.

    An apostrophe within a word is neither.
    """
    plain = rf"(?:[^{quotes}]++|(?<=\w)(?![^{_APOSTROPHES}])[{quotes}](?=\w))*+"
    pattern = rf"(?:{plain}(?<!\w)[{quotes}]{plain}[{quotes}](?!\w))*+{plain}"
    return re.compile(possessive(pattern), re.DOTALL)


@lru_cache
def _structure(quote: str) -> re.Pattern[str]:
    """Write a pattern for a quotation mark as it stands in JSON or in a call."""
    return re.compile(rf"[=:(\[{{,]\s*{quote}|{quote}\s*:")


def ends_behind(cursor: Cursor, doubt: Doubt, ends: tuple[str, ...]) -> Waiting[bool]:
    """Return whether what stands behind a doubtful value lets it end there.

    Behind a string with a mark that has no partner, nothing but closing marks may stand; behind the
    others, no text on the same line. `ends` are closing marks, too.
    """
    while True:
        text, is_all = cursor.glimpse(_SIGHT)
        rest = text.lstrip(" \t" if doubt is Doubt.PAIRED else None)
        if is_all or len(rest) >= _LONGEST_MARK:
            break
        yield
    if doubt is Doubt.PAIRED:
        return not rest or not (rest[0].isalnum() or rest[0] in _QUOTES)
    return not rest or rest.startswith(ends) or CLOSING.match(rest) is not None


def is_last(cursor: Cursor, mark: str) -> Waiting[bool]:
    """Return whether nothing but white space stands behind `mark`, which comes next."""
    while True:
        text, is_all = cursor.glimpse(_SIGHT, len(mark))
        if is_all or text.strip():
            return not text.strip() and len(text) < _SIGHT
        yield
