"""A code fence at the end of the reply that holds nothing but calls in JSON."""

import re

from proxy.guardrails.rescue.cursor import Cursor
from proxy.guardrails.rescue.envelope import read_all_calls
from proxy.guardrails.rescue.syntax import Calls, NotACall, Place, Reading, Reason

_LANGUAGE = re.compile(r"[\w+.-]+", re.ASCII)
_LANGUAGES = frozenset(("", "json", "tool_call", "tool_calls"))
_FENCE = "```"


class FencedJson:
    """One code fence, or several in a row."""

    name = "fenced_json"
    openings = (_FENCE,)
    place = Place.LINE_START
    is_marked = False

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read fence after fence, and the white space behind each."""
        found = Calls(())
        is_fence = True
        while is_fence:
            language = yield from cursor.take(_LANGUAGE)
            if language not in _LANGUAGES:
                return NotACall(Reason.NOT_A_CALL)
            more = yield from read_all_calls(cursor, is_marked=False)
            if isinstance(more, NotACall):
                return more
            is_closed = yield from cursor.literal(opening)
            found = Calls(found.calls + more.calls, more.closed and is_closed)
            yield from cursor.whitespace()
            is_fence = is_closed and (yield from cursor.literal(opening))
        return found
