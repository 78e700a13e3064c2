"""A reply that is a call, or a list of calls, in plain JSON and nothing else."""

from dataclasses import replace

from proxy.guardrails.rescue.rows import read_row
from proxy.guardrails.rescue.syntax import NotACall, Place, Reading, Reason
from proxy.guardrails.rescue.syntaxes.envelope import read_all_calls, read_calls
from proxy.guardrails.rescue.values.cursor import Cursor
from proxy.guardrails.rescue.values.literals import Literals

_CLOSERS = Literals(("</tool_call>", "</tool_calls>", "</function_call>", "<|tool_call_end|>"))


class BareJson:
    """Plain JSON from the first character of the reply to the last."""

    name = "bare_json"
    openings = ("{", "[")
    place = Place.REPLY_START
    is_marked = False

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read the JSON of which `opening` is the first bracket."""
        cursor.rewind()
        return (yield from read_all_calls(cursor, is_marked=False))


class UnopenedJson:
    """Plain JSON on lines of its own at the end of the reply, also with closing marks."""

    name = "unopened_json"
    openings = ("\n{", "\n[{")
    place = Place.ANYWHERE
    is_marked = False

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read one JSON after the other, and the mark behind each.

        The first begins with the second character of `opening`.
        """
        cursor.rewind()
        yield from cursor.whitespace()
        found = yield from read_row(
            cursor, lambda: _unopened(cursor), lambda: cursor.is_next(opening[1])
        )
        return found if isinstance(found, NotACall) else replace(found, is_bare=True)


def _unopened(cursor: Cursor) -> Reading:
    """Read one JSON, of which no bracket may be missing, and a mark that may be."""
    found = yield from read_calls(cursor, is_marked=False, is_silent=True)
    yield from cursor.whitespace()
    if isinstance(found, NotACall) or not found.closed:
        return NotACall(Reason.NOT_A_CALL)
    yield from cursor.one_of(_CLOSERS)
    return found
