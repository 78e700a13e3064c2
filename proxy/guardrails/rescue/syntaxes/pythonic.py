"""Calls written as Python: `f(a=1, b="x")`, alone or in a list."""

import re

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import (
    MOST_CALLS,
    Calls,
    NotACall,
    Place,
    Reading,
    Reason,
    Syntax,
    read_row,
)
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.reader import read_value
from proxy.guardrails.rescue.values.scalars import PYTHON, Style, Unreadable

_NAME = re.compile(r"[\w.-]+")
_SEPARATORS = re.compile(r"[\s,;]+")
_PRINT = "print"
_PRINTED = Style(is_python=True, outer=")")
_SIGHT = 128
_FENCE = "```"
_LANGUAGE = re.compile(r"[a-z_]+")
_CALL = re.compile(r"[\w.-]+\(")
_CALL_BEGINS = re.compile(r"(?:[\w.-]+)?")
_LIST = re.compile(r"\[\s*[A-Za-z_][\w.-]*\(")
_LIST_BEGINS = re.compile(r"\[\s*(?:[A-Za-z_][\w.-]*)?")


def read_python_call(cursor: Cursor, style: Style = PYTHON) -> Waiting[Calls | NotACall]:
    """Read one call with keyword arguments, or with one object of arguments."""
    name = yield from cursor.take(_NAME)
    if name.removeprefix("-")[:1].isdigit() or not (yield from cursor.is_next("(")):
        return NotACall(Reason.NOT_A_CALL)
    if name == _PRINT and not style.outer:
        return (yield from _read_printed(cursor))
    return (yield from read_python_arguments(cursor, name, style))


def read_python_arguments(
    cursor: Cursor, name: str, style: Style = PYTHON
) -> Waiting[Calls | NotACall]:
    """Read arguments in parentheses, of which the first comes next.

    The call is not closed where its last parenthesis is missing at the end of the reply.
    """
    is_object = yield from _is_object(cursor)
    value = yield from read_value(cursor, None, style)
    if is_object:
        yield from cursor.whitespace()
        if not (yield from cursor.literal(")")):
            return NotACall(Reason.BROKEN)
    if isinstance(value, Unreadable) or not isinstance(value.value, dict):
        return NotACall(Reason.BROKEN)
    return Calls((WrittenCall(name.removesuffix(".call"), value.value),), value.is_closed)


def read_python_calls(
    cursor: Cursor, style: Style = PYTHON, *, may_be_open: bool = False
) -> Waiting[Calls | NotACall]:
    """Read a list of calls, or calls one behind the other, and the white space behind them.

    `may_be_open` allows the last parenthesis to be missing at the end of the reply.
    """
    yield from cursor.whitespace()
    is_list = yield from begins_list(cursor)
    calls: list[WrittenCall] = []
    if is_list:
        cursor.advance(1)
        yield from cursor.whitespace()
    while len(calls) <= MOST_CALLS and (yield from _begins(cursor, _CALL, _CALL_BEGINS)):
        call = yield from read_python_call(cursor, style)
        if isinstance(call, NotACall):
            return call
        calls += call.calls
        if not call.closed:
            return Calls(tuple(calls), closed=False) if may_be_open else NotACall(Reason.BROKEN)
        yield from cursor.take(_SEPARATORS)
    if not calls:
        return NotACall(Reason.NOT_A_CALL)
    is_closed = not is_list or (yield from cursor.literal("]"))
    yield from cursor.whitespace()
    return Calls(tuple(calls), is_closed)


def begins_list(cursor: Cursor) -> Waiting[bool]:
    """Return whether a list of calls comes next, without passing anything."""
    return (yield from _begins(cursor, _LIST, _LIST_BEGINS))


def _begins(cursor: Cursor, pattern: re.Pattern[str], beginning: re.Pattern[str]) -> Waiting[bool]:
    """Return whether `pattern` comes next; text that `beginning` matches leaves it undecided."""
    while True:
        text, is_all = cursor.glimpse(_SIGHT)
        if is_all or beginning.fullmatch(text) is None:
            return pattern.match(text) is not None
        yield


def _read_printed(cursor: Cursor) -> Waiting[Calls | NotACall]:
    cursor.advance(1)
    call = yield from read_python_call(cursor, _PRINTED)
    if isinstance(call, Calls) and not (yield from cursor.literal(")")):
        return NotACall(Reason.BROKEN)
    return call


def _is_object(cursor: Cursor) -> Waiting[bool]:
    is_object = yield from cursor.is_next("({")
    if is_object:
        cursor.advance(1)
    return is_object


_CLOSERS = {
    "<|tool_call_start|>": "<|tool_call_end|>",
    "<|python_start|>": "<|python_end|>",
    "<function_calls>": "</function_calls>",
    "<tool_call>": "</tool_call>",
    "<|python_tag|>": "",
    "[Calling tool: ": "]",
    "[Calling tool:": "]",
}


class MarkedPython(Syntax):
    """Python calls behind an unmistakable mark."""

    name = "marked_python"

    openings = tuple(_CLOSERS)

    def read(self, cursor: Cursor, opening: str) -> Reading:
        yield from cursor.whitespace()
        is_fenced = yield from cursor.literal(_FENCE)
        if is_fenced:
            yield from cursor.take(_LANGUAGE)
        closer = _CLOSERS[opening]
        style = Style((closer,) if closer else (), is_python=True)
        found = yield from read_python_calls(cursor, style, may_be_open=not is_fenced)
        if is_fenced and (yield from cursor.literal(_FENCE)):
            yield from cursor.whitespace()
        if isinstance(found, NotACall) or not closer:
            return found
        is_closed = yield from cursor.literal(closer)
        return Calls(found.calls, is_closed)


class PythonList(Syntax):
    """A list of Python calls, or several, at the end of the reply, on lines of their own."""

    name = "python_list"
    openings = ("\n[",)
    is_marked = False

    def read(self, cursor: Cursor, opening: str) -> Reading:
        cursor.rewind()
        cursor.advance(len(opening) - 1)
        if not (yield from begins_list(cursor)):
            return NotACall(Reason.NOT_A_CALL)
        return (
            yield from read_row(
                cursor, lambda: read_python_calls(cursor), lambda: begins_list(cursor)
            )
        )


class PythonReply(PythonList):
    """The same where it is the whole reply."""

    name = "python_reply"
    openings = ("[",)
    place = Place.REPLY_START
