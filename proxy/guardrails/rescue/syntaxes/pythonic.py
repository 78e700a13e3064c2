"""Reads calls in Python, `f(a=1, b="x")`, alone or in a list, and calls in blocks of lines."""

import re
from dataclasses import replace

from proxy.conversation.json import JsonObject
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.formats import Format
from proxy.guardrails.rescue.rows import FENCE, read_after_marks, read_consecutive, skip_fence
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, NoCall, Reading, Reason, Syntax
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting, literals_of
from proxy.guardrails.rescue.values.reader import read_value
from proxy.guardrails.rescue.values.scalars import PYTHON, Style

# Mixtral escapes names for Markdown: `get\_time`.
_NAME = re.compile(r"[\w.\\-]+")
_SEPARATORS = re.compile(r"[\s,;]+")
_PRINT = "print"  # Gemma sometimes wraps a call in `print`
_PRINTED = Style(is_python=True, outer=")")
_LOOKAHEAD = 128
_LANGUAGE = re.compile(r"[a-z_]+")
_CALL = re.compile(r"(?:[\w.-]|\\_)+\(")
_CALL_BEGINS = re.compile(r"(?:[\w.-]|\\_)*\\?")
_LIST = re.compile(r"\[\s*[\"']?[A-Za-z_](?:[\w.-]|\\_)*\(")
_LIST_BEGINS = re.compile(r"\[\s*[\"']?(?:[A-Za-z_](?:[\w.-]|\\_)*\\?)?")
_QUOTES = literals_of('"', "'")


def read_python_call(cursor: Cursor, style: Style = PYTHON) -> Reading:
    """Read one call with keyword arguments, or with one object of arguments."""
    name = yield from cursor.take(_NAME)
    if name.removeprefix("-")[:1].isdigit() or not (yield from cursor.is_next("(")):
        raise NoCall
    if name != _PRINT or style.outer:
        return (yield from read_python_arguments(cursor, name, style))
    cursor.advance(1)
    call = yield from read_python_call(cursor, _PRINTED)
    if not (yield from cursor.literal(")")):
        raise NoCall(Reason.BROKEN)
    return call


def read_python_arguments(cursor: Cursor, name: str, style: Style = PYTHON) -> Reading:
    """Read arguments in parentheses, starting at the opening parenthesis.

    If the closing parenthesis is missing at the end of the reply, the call is not closed.
    """
    is_object = yield from cursor.is_next("({")
    cursor.advance(is_object)
    value = yield from read_value(cursor, None, replace(style, outer="") if is_object else style)
    if is_object:
        yield from cursor.whitespace()
    if (is_object and not (yield from cursor.literal(")"))) or not isinstance(value.value, dict):
        raise NoCall(Reason.BROKEN)
    # Llama 3.1 adds `.call` to its built-in tools: `<|python_tag|>brave_search.call(query="a")`
    return Calls((WrittenCall(name.removesuffix(".call"), value.value),), value.is_closed)


def read_python_calls(
    cursor: Cursor, style: Style = PYTHON, *, may_be_open: bool = False
) -> Reading:
    """Read a list of calls, or consecutive calls, and the white space after them.

    With `may_be_open`, the last parenthesis may be missing at the end of the reply. In a list,
    quotation marks may enclose each call, or several calls together.
    """
    yield from cursor.whitespace()
    is_list = yield from begins_list(cursor)
    if is_list:
        cursor.advance(1)
        yield from cursor.whitespace()
    quote = (yield from cursor.one_of(_QUOTES)) if is_list else ""
    result = Calls(())
    while len(result.calls) <= MOST_CALLS and (
        yield from cursor.match(_CALL, _CALL_BEGINS, _LOOKAHEAD)
    ):
        result += yield from read_python_call(cursor, replace(style, outer=quote))
        if not result.closed and not may_be_open:
            raise NoCall(Reason.BROKEN)
        is_cut = cursor.may_cut and result.is_runaway
        if is_cut or not result.closed:
            return replace(result, is_cut=is_cut)
        is_quoted = bool(quote) and not (yield from cursor.literal(quote))
        yield from cursor.take(_SEPARATORS)
        if quote and not is_quoted:
            quote = yield from cursor.one_of(_QUOTES)
    if not result.calls:
        raise NoCall
    is_closed = not is_list or (yield from cursor.literal("]"))
    if quote and not is_closed:
        raise NoCall(Reason.BROKEN)
    yield from cursor.whitespace()
    return Calls(result.calls, is_closed)


def begins_list(cursor: Cursor) -> Waiting[bool]:
    """Return whether a list of calls comes next, without consuming it."""
    return bool((yield from cursor.match(_LIST, _LIST_BEGINS, _LOOKAHEAD)))


def marked_python(row: Format) -> Syntax:
    """Return the syntax of `<|tool_call_start|>[NAME(KEY='value')]<|tool_call_end|>`."""

    def read(cursor: Cursor, opening: str) -> Reading:
        yield from cursor.whitespace()
        is_fenced = yield from skip_fence(cursor, _LANGUAGE)
        closer = row.marks[opening]
        style = Style((closer,) if closer else (), is_python=True)
        result = yield from read_python_calls(cursor, style, may_be_open=not is_fenced)
        if result.is_cut:
            return result
        if is_fenced and (yield from cursor.literal(FENCE)):
            yield from cursor.whitespace()
        return Calls(result.calls, (yield from cursor.literal(closer))) if closer else result

    return Syntax.of(row, read)


def python_list(row: Format) -> Syntax:
    """Return the syntax of a list of Python calls, `[NAME(KEY='value')]`, or of several lists."""
    return Syntax.of(row, read_python_list)


def read_python_list(cursor: Cursor, opening: str) -> Reading:
    """Read one or several lists of Python calls; `opening` ends with the first list's bracket."""
    cursor.rewind()
    cursor.advance(len(opening) - 1)
    if not (yield from begins_list(cursor)):
        raise NoCall
    return (yield from read_consecutive(cursor, read_python_calls, begins_list))


_SPACE = re.compile(r"[ \t]+")
_TOOL_NAME = re.compile(r"[\w.:/-]+")
_ARGUMENT_LIMIT = 100


def line_blocks(row: Format) -> Syntax:
    """Return the syntax of a line with the name of the tool, and a block for each argument.

        TOOL_NAME: NAME
        BEGIN_ARG: KEY
        value
        END_ARG

    The calls are at the end of the reply; each may be in a code fence with the language `tool`.
    """

    def read(cursor: Cursor, opening: str) -> Reading:
        return read_after_marks(
            cursor, opening, row.openings, lambda cursor, mark: _read_blocks(cursor, mark, row)
        )

    return Syntax.of(row, read)


def _read_blocks(cursor: Cursor, mark: str, row: Format) -> Reading:
    fence, end = row.marks[mark], row.part("end")
    if fence:
        yield from cursor.whitespace()
        if not (yield from cursor.literal(row.openings[0])):
            raise NoCall
    name = yield from _read_line(cursor)
    yield from cursor.whitespace()
    arguments: JsonObject = {}
    while (yield from cursor.literal(row.part("argument"))):
        key = yield from _read_line(cursor)
        text = yield from cursor.take_until(literals_of(end))
        is_ended = yield from cursor.literal(end)
        if not key or not is_ended or key in arguments or len(arguments) == _ARGUMENT_LIMIT:
            raise NoCall
        arguments[key] = text.removeprefix("\n")
        yield from cursor.whitespace()
    is_closed = not fence or (yield from cursor.literal(fence))
    is_call = name and (arguments or fence)  # a name without arguments may be prose
    if not is_closed or not is_call:
        raise NoCall
    return Calls((WrittenCall(name, arguments),))


def _read_line(cursor: Cursor) -> Waiting[str]:
    """Read the word after a label; skip the white space around it up to the line end."""
    yield from cursor.take(_SPACE)
    word = yield from cursor.take(_TOOL_NAME)
    yield from cursor.take(_SPACE)
    return word
