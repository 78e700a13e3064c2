"""Reads the calls of Mistral's models: a mark, then JSON or a name and its arguments."""

import re
from collections.abc import Callable

from proxy.guardrails.rescue.formats import FORMATS, Format
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, NoCall, Reading, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.envelope import read_arguments, read_calls
from proxy.guardrails.rescue.syntaxes.pythonic import (
    begins_list,
    read_python_arguments,
    read_python_calls,
)
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting

ARGUMENTS = FORMATS["mistral"].part("arguments")
_NAME = re.compile(r"[\w./:\\-]+", re.ASCII)
_ID = FORMATS["mistral"].part("id")
_NEXT = re.compile(
    rf"[\s,;]*(?=[\w./:\\-]+(?:{re.escape(_ID)}[\w./:-]+)?{re.escape(ARGUMENTS)})", re.ASCII
)
_NEXT_BEGINS = re.compile(r"[\s,;]*(?:[\w./:\\-]+(?:\[[A-Z_]*\]?[\w./:-]*){0,2})?", re.ASCII)
_LOOKAHEAD = 200


def _read(cursor: Cursor, opening: str) -> Reading:
    """Read `[TOOL_CALLS][{...}]`, `[TOOL_CALLS]name[ARGS]{...}` or `[TOOL_CALLS]name{...}`.

    `name[ARGS]{...}` may be repeated without `[TOOL_CALLS]`. There is no closing mark, so a call
    ends with its JSON value.
    """
    yield from cursor.whitespace()
    if (yield from cursor.literal(opening)):
        yield from cursor.whitespace()
    char = yield from cursor.peek()
    if (yield from begins_list(cursor)):
        return (yield from read_python_calls(cursor))
    if char in ("{", "["):
        return (yield from _read_json(cursor))
    name = yield from _read_name(cursor)
    yield from cursor.whitespace()
    if name and (yield from cursor.literal(ARGUMENTS)):
        return (yield from read_named(cursor, name))
    char = yield from cursor.peek()
    if not name or char not in _BRACKETS:
        raise NoCall
    return (yield from _BRACKETS[char](cursor, name))


def read_named(cursor: Cursor, name: str) -> Reading:
    result = Calls(())
    while len(result.calls) <= MOST_CALLS:
        char = yield from cursor.next_visible()
        if char == "[" and not result.calls:  # "name" is only a word before a list of calls
            return (yield from _read_json(cursor))
        if char != "{":
            raise NoCall
        result += yield from read_arguments(cursor, name)
        separator = yield from cursor.match(_NEXT, _NEXT_BEGINS, _LOOKAHEAD)
        if separator is None:
            break
        cursor.advance(len(separator[0]))
        name = yield from _read_name(cursor)
        yield from cursor.literal(ARGUMENTS)
    return result


def _read_name(cursor: Cursor) -> Waiting[str]:
    """Read a name, and the id of the call that may follow it."""
    name = yield from cursor.take(_NAME)
    if name and (yield from cursor.literal(_ID)):
        yield from cursor.take(_NAME)
    return name


def _read_json(cursor: Cursor, word: str = "") -> Reading:
    """Read a list of calls, or calls separated by commas; a `word` may precede it."""
    result = yield from read_calls(cursor, is_marked=True)
    while result.closed and len(result.calls) <= MOST_CALLS and (yield from cursor.literal(",")):
        yield from cursor.whitespace()
        result += yield from read_calls(cursor, is_marked=True)
    return result


def _read_python(cursor: Cursor, name: str) -> Reading:
    result = yield from read_python_arguments(cursor, name)
    if not result.closed:
        raise NoCall(Reason.BROKEN)
    return result


_BRACKETS: dict[str, Callable[[Cursor, str], Reading]] = {
    "{": read_arguments,
    "[": _read_json,
    "(": _read_python,
}


def mistral(row: Format) -> Syntax:
    """Return the syntax of JSON, or of a name and its arguments, after a mark."""
    return Syntax.of(row, _read)
