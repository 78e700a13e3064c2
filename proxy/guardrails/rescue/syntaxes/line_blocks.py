"""`TOOL_NAME: NAME` and a block of lines for each argument, as Continue asks for it.

    TOOL_NAME: NAME
    BEGIN_ARG: KEY
    value
    END_ARG

A code fence with the word `tool` may stand around it.
"""

import re

from proxy.conversation.json import JsonObject
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.rows import FENCE, read_behind_marks
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reading, Syntax
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting, literals_of

_NAME_LINE = "TOOL_NAME:"
_ARGUMENT, _END = "BEGIN_ARG:", "\nEND_ARG"
_FENCED = f"{FENCE}tool\n"
_OPENINGS = (_NAME_LINE, _FENCED)
_SPACE = re.compile(r"[ \t]+")
_NAME = re.compile(r"[\w.:/-]+")
_LIMIT = 100


def _read(cursor: Cursor, opening: str) -> Reading:
    """Read calls in blocks of lines at the end of the reply, in a fence or not."""
    return read_behind_marks(cursor, opening, _OPENINGS, _read_call)


def _read_call(cursor: Cursor, mark: str) -> Reading:
    is_fenced = mark == _FENCED
    if is_fenced:
        yield from cursor.whitespace()
        if not (yield from cursor.literal(_NAME_LINE)):
            raise NoCall
    name = yield from _read_line(cursor)
    yield from cursor.whitespace()
    arguments: JsonObject = {}
    while (yield from cursor.literal(_ARGUMENT)):
        key = yield from _read_line(cursor)
        text = yield from cursor.take_until(literals_of(_END))
        is_ended = yield from cursor.literal(_END)
        if not key or not is_ended or key in arguments or len(arguments) == _LIMIT:
            raise NoCall
        arguments[key] = text.removeprefix("\n")
        yield from cursor.whitespace()
    is_closed = not is_fenced or (yield from cursor.literal(FENCE))
    is_meant = name and (arguments or is_fenced)  # else the label is only mentioned
    if not is_closed or not is_meant:
        raise NoCall
    return Calls((WrittenCall(name, arguments),))


def _read_line(cursor: Cursor) -> Waiting[str]:
    """Read the word behind a label, and the white space at its sides but for the line end."""
    yield from cursor.take(_SPACE)
    word = yield from cursor.take(_NAME)
    yield from cursor.take(_SPACE)
    return word


LINE_BLOCKS = Syntax("line_blocks", _OPENINGS, _read, "line_start", is_marked=False)
