"""Calls one behind the other, each with a beginning of its own: all of them count, or none."""

from collections.abc import Callable
from typing import TypeAlias

from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, NotACall, Reading
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting

Next: TypeAlias = Callable[[], Waiting[str | bool]]


def read_row(cursor: Cursor, read_one: Callable[[], Reading], passes_next: Next) -> Reading:
    """Read calls and the white space behind each, as long as `passes_next` finds another."""
    found = Calls(())
    while len(found.calls) <= MOST_CALLS:
        more = yield from read_one()
        if isinstance(more, NotACall):
            return more
        found = Calls(found.calls + more.calls, more.closed)
        yield from cursor.whitespace()
        if not (yield from passes_next()):
            break
    return found
