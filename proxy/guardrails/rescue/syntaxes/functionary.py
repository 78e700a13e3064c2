"""`>>>NAME` and a JSON object of arguments on the next line, as Functionary 3.2 writes it.

Its version 2 wrote messages with a header: `<|recipient|>NAME`, a line end and `<|content|>`.
"""

import re

from proxy.guardrails.rescue.rows import read_row
from proxy.guardrails.rescue.syntax import NotACall, Place, Reading, Reason
from proxy.guardrails.rescue.syntaxes.envelope import read_arguments
from proxy.guardrails.rescue.values.cursor import Cursor

_NAME = re.compile(r"[\w.-]+")
MARK = ">>>"
CONTENT = "<|content|>"
_NOBODY = "all"


class Functionary:
    """Calls one behind the other, and nothing else in the reply.

    The same mark stands before an answer, with `all` in place of a name, and at Python's prompt.
    """

    name = "functionary"
    openings: tuple[str, ...] = (MARK,)
    place = Place.REPLY_START
    is_marked = False

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read a name and an object behind every mark, and the white space behind them."""
        return (yield from read_row(cursor, lambda: _named(cursor), lambda: cursor.literal(MARK)))


class FunctionaryInText(Functionary):
    """The same on lines of its own behind other text; no bracket is held back for this mark."""

    name = "functionary_in_text"
    openings = (f"\n{MARK}",)
    place = Place.ANYWHERE


def _named(cursor: Cursor) -> Reading:
    name = yield from cursor.take(_NAME)
    is_line = yield from cursor.literal("\n")
    if not name or not is_line or not (yield from cursor.is_next("{")):
        return NotACall(Reason.NOT_A_CALL)
    return (yield from read_arguments(cursor, name))


class FunctionaryHeader:
    """A message to a tool; messages to `all` are for the user."""

    name = "functionary_header"
    openings: tuple[str, ...] = ("<|recipient|>", "<|from|>assistant\n<|recipient|>")
    place = Place.ANYWHERE
    is_marked = True

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read the recipient and what is meant for it."""
        yield from cursor.whitespace()
        name = yield from cursor.take(_NAME)
        yield from cursor.whitespace()
        has_content = yield from cursor.literal(CONTENT)
        yield from cursor.whitespace()
        is_call = has_content and (yield from cursor.is_next("{"))
        if name in ("", _NOBODY) or not is_call:
            return NotACall(Reason.NOT_A_CALL)
        return (yield from read_arguments(cursor, name))
