"""`call:NAME{key:<|"|>text<|"|>}`, as Gemma 4 and FunctionGemma write it."""

import re

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.cursor import Cursor, Waiting
from proxy.guardrails.rescue.literals import Literals
from proxy.guardrails.rescue.pythonic import read_python_arguments
from proxy.guardrails.rescue.rows import read_row
from proxy.guardrails.rescue.syntax import Calls, NotACall, Place, Reading, Reason
from proxy.guardrails.rescue.values import Style, Unreadable, read_value

_NAME = re.compile(r"[\w.:/-]+")
_CALL = "call:"
_ENDS = ("<tool_call|>", "<end_function_call>", "</tool_call>", "<|tool_call|>")
_CLOSERS = Literals(_ENDS)
_STYLE = Style(_ENDS, is_python=True, has_bare_text=True)


class Gemma:
    """One call between marks."""

    name = "gemma"
    openings = ("<|tool_call>", "<start_function_call>", "<tool_call>")
    place = Place.ANYWHERE
    is_marked = True

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read a call and its closing mark; the word `call:` may be missing."""
        yield from cursor.whitespace()
        if (yield from cursor.literal(_CALL)):
            yield from cursor.whitespace()
        return (yield from _read_call(cursor))


class BareGemma:
    """Calls without opening marks, one behind the other, at the end of the reply."""

    name = "bare_gemma"
    openings = (_CALL,)
    place = Place.REPLY_START
    is_marked = False

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read call after call, of which the first stands behind `opening`."""
        return (
            yield from read_row(cursor, lambda: _read_call(cursor), lambda: cursor.literal(_CALL))
        )


class BareGemmaInText(BareGemma):
    """The same behind other text; a word is not held back for its first letter."""

    name = "bare_gemma_in_text"
    openings = (f"\n{_CALL}",)
    place = Place.ANYWHERE


def _read_call(cursor: Cursor) -> Reading:
    name = yield from cursor.take(_NAME)
    char = yield from cursor.peek()
    if not name or char not in ("{", "("):
        return NotACall(Reason.NOT_A_CALL)
    written = yield from (
        _braced(cursor, name) if char == "{" else read_python_arguments(cursor, name)
    )
    if isinstance(written, NotACall):
        return written
    yield from cursor.whitespace()
    is_closed = yield from cursor.one_of(_CLOSERS)
    return Calls((written,), bool(is_closed))


def _braced(cursor: Cursor, name: str) -> Waiting[WrittenCall | NotACall]:
    value = yield from read_value(cursor, None, _STYLE)
    if isinstance(value, Unreadable) or not value.is_closed:
        return NotACall(Reason.BROKEN)
    return WrittenCall(name, value.value)
