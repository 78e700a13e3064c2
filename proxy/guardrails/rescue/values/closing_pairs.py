"""Whether closing marks are text in the value they seem to end.

A model that writes about the syntax it calls in may write all of them. What stands behind tells:
two marks are text if their line goes on and both stand there once more, the mark of a call is if
more values end behind it than begin.
"""

import re
from functools import lru_cache

from proxy.guardrails.rescue.call_marks import holds_mark
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting

_SIGHT = 240  # a call that words follow on its line is doubtful anyway, and these words are held
_LONG_SIGHT = 2_000


def is_pair_text(cursor: Cursor, first: str, second: str) -> Waiting[bool]:
    """Return whether `second`, which comes next behind `first`, is still text in the value."""
    while True:
        text, is_all = cursor.glimpse(_SIGHT, len(second))
        line = text.lstrip(" \t")
        if line and line[0] in "\r\n<[{|`":
            return False
        if line and (pair := _pair(first, second).search(text)):
            return not holds_mark(text[: pair.start()])
        if is_all:
            return False
        yield


def is_surplus(cursor: Cursor, opening: str, end: str) -> Waiting[bool]:
    """Return whether more values end than begin in the text ahead."""
    while True:
        text, is_all = cursor.glimpse(_LONG_SIGHT)
        if is_all:
            return text.count(end) > text.count(opening)
        yield


@lru_cache(maxsize=256)
def _pair(first: str, second: str) -> re.Pattern[str]:
    return re.compile(rf"{re.escape(first)}\s*{re.escape(second)}")
