"""Reads successive calls, and the code fences around them."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from proxy.guardrails.rescue.formats import FORMATS
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, Reading
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting, literals_of

FENCE = FORMATS["fenced_json"].openings[0]


def read_row(
    cursor: Cursor,
    read_one: Callable[[Cursor], Reading],
    passes_next: Callable[[Cursor], Waiting[str | bool]],
) -> Reading:
    """Read calls and the white space after each, as long as `passes_next` finds another call.

    The third copy of a call ends the row and the reply, because the model is in a loop.
    """
    result = Calls(())
    while len(result.calls) <= MOST_CALLS:
        result += yield from read_one(cursor)
        if result.is_cut or (cursor.may_cut and result.is_runaway):
            return replace(result, is_cut=True)
        yield from cursor.whitespace()
        if not (yield from passes_next(cursor)):
            break
    return result


def read_after_marks(
    cursor: Cursor, mark: str, marks: Iterable[str], read_one: Callable[[Cursor, str], Reading]
) -> Reading:
    """Read calls that each follow one of `marks`, starting after `mark`.

    `read_one` receives the mark before its call.
    """
    known = literals_of(*marks)

    def passes_next(cursor: Cursor) -> Waiting[str]:
        nonlocal mark
        mark = yield from cursor.one_of(known)
        return mark

    return read_row(cursor, lambda cursor: read_one(cursor, mark), passes_next)


def pass_fence(cursor: Cursor, language: re.Pattern[str]) -> Waiting[bool]:
    """Pass the beginning of a code fence and white space; return whether there was one."""
    is_fenced = yield from cursor.literal(FENCE)
    if is_fenced:
        yield from cursor.take(language)
        yield from cursor.whitespace()
    return is_fenced
