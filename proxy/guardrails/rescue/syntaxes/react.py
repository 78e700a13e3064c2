"""`Action: NAME` and `Action Input: {...}`, as models write that were told to think in turns.

Where Temper told them so itself, the labels are as good as marks.
"""

import re

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.rows import read_row
from proxy.guardrails.rescue.syntax import Calls, NotACall, Place, Reading, Reason
from proxy.guardrails.rescue.syntaxes.envelope import read_arguments
from proxy.guardrails.rescue.values.cursor import Cursor

_NAME = re.compile(r"[\w.:/-]+")
_INPUT = "Action Input:"
_FENCE = "```"
_LANGUAGE = re.compile(r"\w+", re.ASCII)


class ReAct:
    """Actions with a JSON object as input, one behind the other, at the end of the reply."""

    name = "react"
    openings = ("Action:",)
    place = Place.LINE_START
    is_marked = False

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read action after action, and the white space behind each."""
        return (
            yield from read_row(
                cursor, lambda: self._action(cursor), lambda: cursor.literal(opening)
            )
        )

    def _action(self, cursor: Cursor) -> Reading:
        return _action(cursor)


def _action(cursor: Cursor) -> Reading:
    yield from cursor.whitespace()
    name = yield from cursor.take(_NAME)
    yield from cursor.whitespace()
    has_input = yield from cursor.literal(_INPUT)
    yield from cursor.whitespace()
    if not name or not has_input or not (yield from cursor.is_next("{")):
        return NotACall(Reason.NOT_A_CALL)
    return (yield from read_arguments(cursor, name))


class ReActContract(ReAct):
    """The same of a model that was asked for it: a broken action is one that has to be mended.

    An action without an input has no arguments; the input may stand in a fence.
    """

    name = "react_contract"
    is_marked = True

    def _action(self, cursor: Cursor) -> Reading:
        return _demanded(cursor)


def _demanded(cursor: Cursor) -> Reading:
    yield from cursor.whitespace()
    name = yield from cursor.take(_NAME)
    yield from cursor.whitespace()
    if not name:
        return NotACall(Reason.NOT_A_CALL)
    if (yield from cursor.literal(_INPUT)):
        yield from cursor.whitespace()
    if (yield from cursor.peek()) == "":
        return Calls((WrittenCall(name, {}),))
    is_fenced = yield from cursor.literal(_FENCE)
    if is_fenced:
        yield from cursor.take(_LANGUAGE)
        yield from cursor.whitespace()
    if not (yield from cursor.is_next("{")):
        return NotACall(Reason.BROKEN)
    found = yield from read_arguments(cursor, name)
    if is_fenced:
        yield from cursor.whitespace()
        yield from cursor.literal(_FENCE)
    return found
