"""A code fence at the end of the reply that holds nothing but calls in JSON or Python."""

import re

from proxy.guardrails.rescue.cursor import Cursor
from proxy.guardrails.rescue.envelope import read_all_calls
from proxy.guardrails.rescue.pythonic import read_python_calls
from proxy.guardrails.rescue.syntax import Calls, NotACall, Place, Reading, Reason

_LANGUAGE = re.compile(r"[\w+.-]+", re.ASCII)
_PYTHON = "tool_code"  # Gemma's word for it
_LANGUAGES = frozenset(("", "json", "tool_call", "tool_calls", _PYTHON))
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
            if language == _PYTHON:
                more = yield from read_python_calls(cursor)
            else:
                more = yield from read_all_calls(cursor, is_marked=False)
            if isinstance(more, NotACall):
                return more
            is_closed = yield from cursor.literal(opening)
            found = Calls(found.calls + more.calls, more.closed and is_closed)
            yield from cursor.whitespace()
            is_fence = is_closed and (yield from cursor.literal(opening))
        return found
