"""`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, as Hermes and Qwen write it."""

import re

from proxy.guardrails.rescue.cursor import Cursor
from proxy.guardrails.rescue.envelope import read_all_calls
from proxy.guardrails.rescue.syntax import Calls, NotACall, Place, Reading

_LANGUAGE = re.compile(r"[a-z_]+")


class Hermes:
    """JSON between tags; several objects, a list or a code fence may stand between them."""

    name = "hermes"
    openings = ("<tool_call>",)
    place = Place.ANYWHERE
    is_marked = True

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read calls up to the closing tag, or to where it is missing."""
        yield from cursor.whitespace()
        is_fenced = yield from cursor.literal("```")
        if is_fenced:
            yield from cursor.take(_LANGUAGE)
        found = yield from read_all_calls(cursor, is_marked=True)
        if isinstance(found, NotACall):
            return found
        if is_fenced and (yield from cursor.literal("```")):
            yield from cursor.whitespace()
        is_closed = yield from cursor.literal(f"</{opening[1:]}")
        return Calls(found.calls, found.closed and is_closed)
