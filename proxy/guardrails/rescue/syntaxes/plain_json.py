"""Reads calls in JSON without a mark: as a complete reply, at the end of one, or in a code fence.

Such JSON may also be data or an example. So these calls are accepted only at the end of a reply,
and only for offered tools.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from proxy.guardrails.rescue.formats import Format
from proxy.guardrails.rescue.marks import SPECIAL_TOKENS, STRAY_CLOSERS
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, NoCall, Reading, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.envelope import read_all_calls, read_calls
from proxy.guardrails.rescue.syntaxes.pythonic import begins_list, read_python_calls
from proxy.guardrails.rescue.values.cursor import Cursor, Literals, Waiting, literals_of
from proxy.guardrails.rescue.values.scalars import Unreadable


def bare_json(row: Format) -> Syntax:
    """Return the syntax of a reply that consists of calls, or of lists of calls."""
    return Syntax.of(row, _read_reply)


def _read_reply(cursor: Cursor, opening: str) -> Reading:
    cursor.rewind()
    return read_all_calls(cursor, is_marked=False)


def unopened_json(row: Format) -> Syntax:
    """Return the syntax of JSON values on separate lines, each with a closing mark after it.

    I look.
    {"name": "NAME", "arguments": {"KEY": "value"}}
    </tool_call>
    """
    return Syntax.of(row, partial(read_unopened, ends=row.ends))


def read_unopened(cursor: Cursor, opening: str, ends: tuple[str, ...] = ()) -> Reading:
    """Read several JSON values at the end of the reply, and the closing mark after each value.

    The second character of `opening` is the first character of the first value.
    """
    cursor.rewind()
    yield from cursor.whitespace()
    result = Calls(())
    while len(result.calls) <= MOST_CALLS and not result.is_cut:
        may_cut = cursor.may_cut and bool(result.calls)
        try:
            result += yield from _read_one(
                cursor, ends, needs_tools=may_cut and cursor.follows_results
            )
        except NoCall as refusal:
            if not may_cut or refusal.reason is not Reason.NOT_A_CALL:
                raise NoCall from refusal
            return replace(result, is_bare=True, is_cut=True)
        result = replace(result, is_cut=cursor.may_cut and result.is_runaway)
        if not (yield from cursor.is_next(opening[1])):
            break
    return replace(result, is_bare=True)


def _read_one(cursor: Cursor, ends: tuple[str, ...], *, needs_tools: bool) -> Reading:
    """Read one complete JSON value, and the mark after the value if there is a mark."""
    try:
        result = yield from read_calls(
            cursor, is_marked=False, is_silent=True, needs_tools=needs_tools
        )
    except NoCall as refusal:
        yield from cursor.whitespace()
        raise NoCall from refusal
    yield from cursor.whitespace()
    if not result.closed:
        if cursor.may_cut and result.is_runaway:
            return result
        raise NoCall(Reason.NOT_CLOSED)
    yield from cursor.one_of(literals_of(*ends))
    yield from cursor.whitespace()
    return result


_LANGUAGE = re.compile(r"[\w.+-]+", re.ASCII)
_TOOL_CODE = "tool_code"  # Gemma's word for Python
_PYTHON = ("python", "py", "")
_JSON_LANGUAGES = frozenset(("json", "tool_call", "tool_calls", *_PYTHON, _TOOL_CODE))
_LANGUAGES = _JSON_LANGUAGES | {"xml", "html", "text", "txt", "plaintext"}
_MARKED_LIMIT = 20  # of marked calls in one fence; several syntaxes may read each call
_NOISE = Literals(SPECIAL_TOKENS | STRAY_CLOSERS)
_NOISE_LIMIT = 4


def fenced_json(row: Format, marked: Sequence[Syntax] = ()) -> Syntax:
    """Return the syntax of code fences with calls in plain JSON or in one of the `marked` syntaxes.

    ```json
    {"name": "NAME", "arguments": {"KEY": "value"}}
    ```
    """
    return Syntax.of(row, _FenceReader(marked).read)


_CODE = re.compile(r"(?:\w+\.)?(?P<name>[\w-]+)\(")
_CODE_BEGINS = re.compile(r"(?:\w+\.)?[\w-]*")
_LONGEST_NAME = 128


def _calls_tool(cursor: Cursor) -> Waiting[bool]:
    """Return whether Python begins with the call of an offered tool."""
    match = yield from cursor.match(_CODE, _CODE_BEGINS, _LONGEST_NAME)
    return match is not None and match["name"] in cursor.offered


class _FenceReader:
    """Reads the calls in consecutive code fences, after the first opening fence."""

    def __init__(self, marked: Sequence[Syntax]) -> None:
        self._marked = [
            (mark, syntax)
            for syntax in marked
            if syntax.anchor == "anywhere"
            for mark in syntax.openings
        ]
        self._marks = tuple(dict.fromkeys(mark for mark, _ in self._marked))

    def read(self, cursor: Cursor, opening: str) -> Reading:
        result = Calls(())
        is_fence = True
        while is_fence and len(result.calls) <= MOST_CALLS:
            language = yield from cursor.take(_LANGUAGE)
            if language not in _LANGUAGES:
                raise NoCall
            yield from cursor.whitespace()
            try:
                result += yield from self._read_content(cursor, language)
            except NoCall as refusal:
                is_json = language in _JSON_LANGUAGES and result.calls
                if not (cursor.may_cut and is_json) or refusal.reason is not Reason.NOT_A_CALL:
                    raise
                return replace(result, is_cut=True)
            if result.is_cut or (cursor.may_cut and result.is_runaway):
                return replace(result, is_cut=True)
            is_closed = yield from cursor.literal(opening)
            result = Calls(result.calls, result.closed and is_closed)
            yield from cursor.whitespace()
            is_fence = is_closed and (yield from cursor.literal(opening))
        return result

    def _read_content(self, cursor: Cursor, language: str) -> Reading:
        if mark := (yield from self._find_mark(cursor)):
            return (yield from self._read_all_marked(cursor, mark))
        is_list = language in _JSON_LANGUAGES and (yield from begins_list(cursor))
        if (
            is_list
            or language == _TOOL_CODE
            or (language in _PYTHON and (yield from _calls_tool(cursor)))
        ):
            return (yield from read_python_calls(cursor))
        if language not in _JSON_LANGUAGES:
            raise NoCall
        return (yield from read_all_calls(cursor, is_marked=False))

    def _find_mark(self, cursor: Cursor) -> Waiting[str]:
        """Skip white space, leaked control tokens and stray closing marks; return the next mark."""
        marks = literals_of(*self._marks)
        for _ in range(_NOISE_LIMIT):
            yield from cursor.whitespace()
            mark = yield from cursor.next_of(marks)
            if mark or not (yield from cursor.one_of(_NOISE)):
                return mark
        return ""

    def _read_all_marked(self, cursor: Cursor, mark: str) -> Reading:
        result = Calls(())
        for _ in range(_MARKED_LIMIT):
            result += yield from self._read_marked(cursor, mark)
            mark = yield from self._find_mark(cursor)
            if not mark:
                break
        return Calls(result.calls)

    def _read_marked(self, cursor: Cursor, mark: str) -> Reading:
        """Read the text after a mark, with each syntax from the same position."""
        start = len(cursor.source())
        refusal: NoCall | Unreadable = NoCall()
        for opening, syntax in self._marked:
            if not mark.startswith(opening):
                continue
            cursor.rewind()
            cursor.mute()  # the reading may fail, so its arguments are not streamed
            cursor.advance(start + len(opening))
            try:
                result = yield from syntax.read(cursor, opening)
            except (NoCall, Unreadable) as failure:
                refusal = failure
            else:
                if not result.is_doubtful:
                    return result
                refusal = NoCall()
        raise refusal
