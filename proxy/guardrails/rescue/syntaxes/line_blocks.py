"""`TOOL_NAME: NAME` and a block of lines for each argument, as Continue asks for it.

    TOOL_NAME: NAME
    BEGIN_ARG: KEY
    value
    END_ARG

A code fence with the word `tool` may stand around it.
"""

import re
from functools import partial

from proxy.conversation.json import JsonObject
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import (
    Calls,
    NotACall,
    Place,
    Reading,
    Reason,
    Syntax,
    read_marked_row,
)
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting, literals_of

_NAME_LINE = "TOOL_NAME:"
_ARGUMENT, _END = "BEGIN_ARG:", "\nEND_ARG"
_FENCE = "```"
_FENCED = f"{_FENCE}tool\n"
_SPACE = re.compile(r"[ \t]+")
_NAME = re.compile(r"[\w.:/-]+")
_LIMIT = 100
_NEITHER = NotACall(Reason.NOT_A_CALL)


class LineBlocks(Syntax):
    """Calls in blocks of lines at the end of the reply, in a fence or not."""

    name = "line_blocks"
    openings = (_NAME_LINE, _FENCED)
    place = Place.LINE_START
    is_marked = False

    def read(self, cursor: Cursor, opening: str) -> Reading:
        marks = literals_of(*self.openings)
        return (yield from read_marked_row(cursor, opening, marks, partial(_call, cursor)))


def _call(cursor: Cursor, mark: str) -> Reading:
    is_fenced = mark == _FENCED
    if is_fenced:
        yield from cursor.whitespace()
        if not (yield from cursor.literal(_NAME_LINE)):
            return _NEITHER
    name = yield from _rest_of_line(cursor)
    yield from cursor.whitespace()
    arguments: JsonObject = {}
    while (yield from cursor.literal(_ARGUMENT)):
        key = yield from _rest_of_line(cursor)
        text = yield from cursor.take_until(literals_of(_END))
        is_ended = yield from cursor.literal(_END)
        if not key or not is_ended or key in arguments or len(arguments) == _LIMIT:
            return _NEITHER
        arguments[key] = text.removeprefix("\n")
        yield from cursor.whitespace()
    if is_fenced and not (yield from cursor.literal(_FENCE)):
        return _NEITHER
    is_meant = name and (arguments or is_fenced)  # else the label is only mentioned
    return Calls((WrittenCall(name, arguments),)) if is_meant else _NEITHER


def _rest_of_line(cursor: Cursor) -> Waiting[str]:
    """Read the word behind a label, and the white space at its sides but for the line end."""
    yield from cursor.take(_SPACE)
    word = yield from cursor.take(_NAME)
    yield from cursor.take(_SPACE)
    return word
