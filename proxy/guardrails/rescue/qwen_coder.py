"""`<function=NAME><parameter=KEY>value</parameter></function>`, as Qwen3-Coder writes it.

Values are text between marks: what they mean is for the tool's schema to say. A mark inside a
value cannot be told from a missing closing mark, so a value ends early only where everything
behind it fits; otherwise nothing is a call.
"""

import re

from proxy.conversation.json import JsonObject
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.cursor import Cursor, Waiting
from proxy.guardrails.rescue.literals import Literals
from proxy.guardrails.rescue.syntax import Calls, NotACall, Place, Reading, Reason

_WRAPPER = "<tool_call>"
_WRAPPER_END = "</tool_call>"
_FUNCTION = "<function="
_FUNCTION_END = "</function>"
_PARAMETER = "<parameter="
_PARAMETER_END = "</parameter>"

_NAME = re.compile(r"[^<>\s]+")
_SPACE = re.compile(r"\s+")
_IN_A_VALUE = Literals((_PARAMETER_END, _PARAMETER, _FUNCTION_END, _WRAPPER_END))
_IN_A_FUNCTION = Literals((_PARAMETER, _FUNCTION_END))
_BEHIND_A_CALL = (_WRAPPER_END, _WRAPPER, _FUNCTION)


class QwenCoder:
    """Functions and parameters as tags, with or without `<tool_call>` around them."""

    name = "qwen_coder"
    openings = (_WRAPPER, _FUNCTION)
    place = Place.ANYWHERE
    is_marked = True

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read one function, or all those in one wrapper."""
        is_wrapped = opening == _WRAPPER
        if is_wrapped:
            yield from cursor.whitespace()
            if not (yield from cursor.literal(_FUNCTION)):
                return NotACall(Reason.NOT_A_CALL)
        calls: list[WrittenCall] = []
        while True:
            function = _Function(cursor)
            call = yield from function.read()
            if isinstance(call, NotACall):
                return call
            calls.append(call)
            if not is_wrapped:
                return Calls(tuple(calls), function.is_closed)
            yield from cursor.whitespace()
            if not (yield from cursor.literal(_FUNCTION)):
                is_closed = yield from cursor.literal(_WRAPPER_END)
                return Calls(tuple(calls), is_closed)


class _Function:
    """Reads one function from behind `<function=`."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._arguments: JsonObject = {}
        self.is_closed = False

    def read(self) -> Waiting[WrittenCall | NotACall]:
        name = yield from self._tag_name()
        if not name:
            return NotACall(Reason.NOT_A_CALL)
        yield from self._cursor.whitespace()
        while mark := (yield from self._cursor.one_of(_IN_A_FUNCTION)):
            if mark == _FUNCTION_END:
                self.is_closed = True
                break
            if not (yield from self._parameter()):
                return NotACall(Reason.BROKEN)
            yield from self._cursor.whitespace()
        if self.is_closed or (self._arguments and (yield from self._ends_here())):
            return WrittenCall(name, self._arguments)
        return NotACall(Reason.BROKEN)

    def _tag_name(self) -> Waiting[str]:
        name = yield from self._cursor.take(_NAME)
        yield from self._cursor.whitespace()
        is_tag = yield from self._cursor.literal(">")
        return name.strip("\"'") if is_tag else ""

    def _parameter(self) -> Waiting[bool]:
        key = yield from self._tag_name()
        if not key:
            return False
        value = yield from self._value()
        if value is not None:
            self._arguments[key] = value.removeprefix("\n").removesuffix("\n")
        return value is not None

    def _value(self) -> Waiting[str | None]:
        """Read a value and its closing mark, if it has one; None if it has no end."""
        pieces: list[str] = []
        while True:
            pieces.append((yield from self._cursor.take_until(_IN_A_VALUE)))
            if (yield from self._cursor.is_next(_PARAMETER)):
                return "".join(pieces)
            mark = yield from self._cursor.one_of(_IN_A_VALUE)
            if mark == _PARAMETER_END:
                return "".join(pieces)
            if not mark:
                return None
            space = yield from self._cursor.take(_SPACE)
            if mark == _FUNCTION_END and (yield from self._ends_here()):
                self.is_closed = True
                return "".join(pieces)
            pieces += (mark, space)

    def _ends_here(self) -> Waiting[bool]:
        for mark in _BEHIND_A_CALL:
            if (yield from self._cursor.is_next(mark)):
                return True
        return not (yield from self._cursor.peek())
