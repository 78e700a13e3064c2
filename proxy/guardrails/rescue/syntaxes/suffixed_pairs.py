"""Keys and values by turns, with a suffix in all tags, `<tool_call:SUFFIX>`, as Hunyuan has it.

The calls stand in a wrapper, `<tool_calls:SUFFIX>`. Without it they count at the beginning of a
reply only: nobody could tell elsewhere whether the wrapper was quoted.
"""

import re

from proxy.guardrails.rescue.rows import read_row
from proxy.guardrails.rescue.syntax import Calls, NotACall, Place, Reading, Reason
from proxy.guardrails.rescue.syntaxes.argument_pairs import Tags, read_call
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting

_SUFFIX = re.compile(r"[\w.-]+")


class SuffixedPairs:
    """All calls in one wrapper."""

    name = "suffixed_pairs"
    openings: tuple[str, ...] = ("<tool_calls:",)
    place = Place.ANYWHERE
    is_marked = True

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read call after call up to the end of the wrapper."""
        tags = yield from _tags(cursor)
        yield from cursor.whitespace()
        if not (yield from cursor.literal(tags.pair("tool_call")[0])):
            return NotACall(Reason.NOT_A_CALL)
        found = yield from _row(cursor, tags)
        if isinstance(found, NotACall):
            return found
        is_closed = yield from cursor.literal(tags.pair("tool_calls")[1])
        return Calls(found.calls, is_closed)


class SuffixedPairsAtStart(SuffixedPairs):
    """The same without the wrapper."""

    name = "suffixed_pairs_at_start"
    openings = ("<tool_call:",)
    place = Place.REPLY_START

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read call after call."""
        return (yield from _row(cursor, (yield from _tags(cursor))))


def _row(cursor: Cursor, tags: Tags) -> Reading:
    """Read calls and the white space behind each, from behind the first opening tag."""
    call, _ = tags.pair("tool_call")
    return (
        yield from read_row(cursor, lambda: read_call(cursor, tags), lambda: cursor.literal(call))
    )


def _tags(cursor: Cursor) -> Waiting[Tags]:
    """Read the suffix of the first tag; what follows decides whether it was one."""
    suffix = yield from cursor.take(_SUFFIX)
    yield from cursor.literal(">")
    return Tags("", f":{suffix}")
