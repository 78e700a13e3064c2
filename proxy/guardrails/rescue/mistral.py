"""`[TOOL_CALLS]`, as Mistral writes it, followed by JSON or by a name and its arguments."""

import re

from proxy.guardrails.rescue.cursor import Cursor
from proxy.guardrails.rescue.envelope import read_arguments, read_calls
from proxy.guardrails.rescue.pythonic import (
    begins_list,
    read_python_arguments,
    read_python_calls,
)
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, NotACall, Place, Reading, Reason

_NAME = re.compile(r"[\w./:-]+", re.ASCII)


class Mistral:
    """`[TOOL_CALLS][{...}]`, `[TOOL_CALLS]name[ARGS]{...}` or `[TOOL_CALLS]name{...}`.

    There is no closing mark: the brackets of the JSON are all there is.
    """

    name = "mistral"
    openings = ("[TOOL_CALLS]",)
    place = Place.ANYWHERE
    is_marked = True

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read the calls behind one mark."""
        yield from cursor.whitespace()
        if (yield from cursor.literal(opening)):
            yield from cursor.whitespace()
        char = yield from cursor.peek()
        if (yield from begins_list(cursor)):
            return (yield from read_python_calls(cursor))
        if char in ("{", "["):
            return (yield from _json(cursor))
        return (yield from self._named(cursor))

    def _named(self, cursor: Cursor) -> Reading:
        name = yield from cursor.take(_NAME)
        if name and (yield from cursor.literal("[CALL_ID]")):
            yield from cursor.take(_NAME)
        yield from cursor.whitespace()
        if name and (yield from cursor.literal("[ARGS]")):
            yield from cursor.whitespace()
        char = yield from cursor.peek()
        if name and char == "[":  # a word between the mark and the list
            return (yield from _json(cursor))
        if name and char == "(":
            return (yield from _python(cursor, name))
        if not name or char != "{":
            return NotACall(Reason.NOT_A_CALL)
        return (yield from read_arguments(cursor, name))


def _json(cursor: Cursor) -> Reading:
    """Read a list of calls, or calls with commas between them."""
    found = yield from read_calls(cursor, is_marked=True)
    while isinstance(found, Calls) and found.closed and (yield from cursor.literal(",")):
        if len(found.calls) > MOST_CALLS:
            break
        yield from cursor.whitespace()
        more = yield from read_calls(cursor, is_marked=True)
        if isinstance(more, NotACall):
            return more
        found = Calls(found.calls + more.calls, more.closed)
    return found


def _python(cursor: Cursor, name: str) -> Reading:
    call = yield from read_python_arguments(cursor, name)
    return call if isinstance(call, NotACall) else Calls((call,))
