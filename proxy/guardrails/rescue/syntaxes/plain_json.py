"""Calls in JSON without a mark: the whole reply, lines at its end, or a code fence."""

import re
from collections.abc import Sequence
from dataclasses import replace

from proxy.guardrails.rescue.marks import SPECIAL_TOKENS, STRAY_CLOSERS
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
from proxy.guardrails.rescue.syntaxes.envelope import read_all_calls, read_calls
from proxy.guardrails.rescue.syntaxes.pythonic import begins_list, read_python_calls
from proxy.guardrails.rescue.values.cursor import Cursor, Literals, Waiting, literals_of

_CLOSERS = Literals(("</tool_call>", "</tool_calls>", "</function_call>", "<|tool_call_end|>"))


class BareJson(Syntax):
    """Plain JSON from the first character of the reply to the last."""

    name = "bare_json"
    openings = ("{", "[")
    place = Place.REPLY_START
    is_marked = False

    def read(self, cursor: Cursor, opening: str) -> Reading:
        cursor.rewind()
        return (yield from read_all_calls(cursor, is_marked=False))


class UnopenedJson(Syntax):
    """Plain JSON on lines of its own at the end of the reply, also with closing marks."""

    name = "unopened_json"
    openings = ("\n{", "\n[{")
    is_marked = False

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read one JSON after the other, and the mark behind each.

        The first begins with the second character of `opening`.
        """
        cursor.rewind()
        yield from cursor.whitespace()
        found = yield from read_row(
            cursor, lambda: _read_unopened(cursor), lambda: cursor.is_next(opening[1])
        )
        return found if isinstance(found, NotACall) else replace(found, is_bare=True)


def _read_unopened(cursor: Cursor) -> Reading:
    """Read one JSON, of which no bracket may be missing, and a mark that may be."""
    found = yield from read_calls(cursor, is_marked=False, is_silent=True)
    yield from cursor.whitespace()
    if isinstance(found, NotACall) or not found.closed:
        return NotACall(Reason.NOT_A_CALL)
    yield from cursor.one_of(_CLOSERS)
    return found


_LANGUAGE = re.compile(r"[\w.+-]+", re.ASCII)
_PYTHON = "tool_code"  # Gemma's word for it
_JSON_LANGUAGES = frozenset(("", "json", "tool_call", "tool_calls", "python", _PYTHON))
_LANGUAGES = _JSON_LANGUAGES | {"xml", "html", "text", "txt", "plaintext"}
_FENCE = "```"
_MARKED_LIMIT = 20  # every one of them is looked at several times
_NOISE = Literals(SPECIAL_TOKENS | STRAY_CLOSERS)
_NOISE_LIMIT = 4
_NEITHER = NotACall(Reason.NOT_A_CALL)


class FencedJson(Syntax):
    """One code fence, or several in a row; `marked` are the syntaxes that may stand in one."""

    openings = (_FENCE,)
    place = Place.LINE_START
    is_marked = False

    def __init__(self, marked: Sequence[Syntax] = (), name: str = "fenced_json") -> None:
        self.name = name
        self._marked = [
            (one, syntax)
            for syntax in marked
            if syntax.place is Place.ANYWHERE
            for one in syntax.openings
        ]
        self._marks = tuple(dict.fromkeys(one for one, _ in self._marked))

    def read(self, cursor: Cursor, opening: str) -> Reading:
        found = Calls(())
        is_fence = True
        while is_fence and len(found.calls) <= MOST_CALLS:
            language = yield from cursor.take(_LANGUAGE)
            if language not in _LANGUAGES:
                return _NEITHER
            yield from cursor.whitespace()
            more = yield from self._read_content(cursor, language)
            if isinstance(more, NotACall):
                return more
            is_closed = yield from cursor.literal(opening)
            found = Calls(found.calls + more.calls, more.closed and is_closed)
            yield from cursor.whitespace()
            is_fence = is_closed and (yield from cursor.literal(opening))
        return found

    def _read_content(self, cursor: Cursor, language: str) -> Reading:
        if mark := (yield from self._find_mark(cursor)):
            return (yield from self._read_all_marked(cursor, mark))
        if language == _PYTHON or (
            language in _JSON_LANGUAGES and (yield from begins_list(cursor))
        ):
            return (yield from read_python_calls(cursor))
        if language not in _JSON_LANGUAGES:
            return _NEITHER
        return (yield from read_all_calls(cursor, is_marked=False))

    def _find_mark(self, cursor: Cursor) -> Waiting[str]:
        """Pass white space, leaked control tokens and stray closing marks; look for a mark."""
        marks = literals_of(*self._marks)
        for _ in range(_NOISE_LIMIT):
            yield from cursor.whitespace()
            while (mark := cursor.here(marks)) is None:
                yield
            if mark or not (yield from cursor.one_of(_NOISE)):
                return mark
        return ""

    def _read_all_marked(self, cursor: Cursor, mark: str) -> Reading:
        found = Calls(())
        for _ in range(_MARKED_LIMIT):
            more = yield from self._read_marked(cursor, mark)
            if isinstance(more, NotACall):
                return more
            found = Calls(found.calls + more.calls)
            mark = yield from self._find_mark(cursor)
            if not mark:
                break
        return found

    def _read_marked(self, cursor: Cursor, mark: str) -> Waiting[Calls | NotACall]:
        """Read what stands behind one mark, each syntax from the same place."""
        place = len(cursor.source())
        outcome: Calls | NotACall = _NEITHER
        for opening, syntax in self._marked:
            if not mark.startswith(opening):
                continue
            cursor.rewind()
            cursor.mute()
            cursor.advance(place + len(opening))
            outcome = yield from syntax.read(cursor, opening)
            if isinstance(outcome, Calls) and outcome.is_doubtful:
                outcome = _NEITHER
            if isinstance(outcome, Calls):
                break
        return outcome
