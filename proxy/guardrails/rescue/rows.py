"""Reads consecutive calls, and skips the code fences around them."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

from proxy.guardrails.rescue.formats import FORMATS
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, Reading
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting, literals_of

FENCE = FORMATS["fenced_json"].openings[0]


def read_consecutive(
    cursor: Cursor,
    read_call: Callable[[Cursor], Reading],
    consume_next: Callable[[Cursor], Waiting[str | bool]],
) -> Reading:
    """Read calls and the white space after each, until `consume_next` finds no further opening.

    `consume_next` consumes the opening of the next call. If `cursor.may_cut`, the third copy of a
    call ends the reading and the reply, because the model is in a loop.
    """
    result = Calls(())
    while len(result.calls) <= MOST_CALLS:
        result += yield from read_call(cursor)
        if result.is_cut or (cursor.may_cut and result.is_runaway):
            return replace(result, is_cut=True)
        yield from cursor.whitespace()
        if not (yield from consume_next(cursor)):
            break
    return result


def read_after_marks(
    cursor: Cursor, mark: str, marks: Iterable[str], read_call: Callable[[Cursor, str], Reading]
) -> Reading:
    """Read calls that each follow one of `marks`; the cursor is after the first mark (`mark`).

    `read_call` receives the mark before the call.
    """
    known = literals_of(*marks)

    def consume_next(cursor: Cursor) -> Waiting[str]:
        nonlocal mark
        mark = yield from cursor.one_of(known)
        return mark

    return read_consecutive(cursor, lambda cursor: read_call(cursor, mark), consume_next)


def skip_fence(cursor: Cursor, language: re.Pattern[str]) -> Waiting[bool]:
    """Skip the opening of a code fence and white space; return whether there was a fence."""
    is_fenced = yield from cursor.literal(FENCE)
    if is_fenced:
        yield from cursor.take(language)
        yield from cursor.whitespace()
    return is_fenced
