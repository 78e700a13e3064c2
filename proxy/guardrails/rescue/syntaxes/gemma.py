"""Reads the calls of Gemma 4 and FunctionGemma: `call:NAME{key:<|"|>text<|"|>}`."""

import re

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.formats import FORMATS, Format
from proxy.guardrails.rescue.rows import read_consecutive
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, NoCall, Reading, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.pythonic import read_python_arguments
from proxy.guardrails.rescue.values.cursor import Cursor, Literals, Waiting
from proxy.guardrails.rescue.values.reader import read_value
from proxy.guardrails.rescue.values.scalars import Style

_NAME = re.compile(r"[\w.:/\\-]+")
_CALL = FORMATS["bare_gemma"].openings[0]
# The word `call` before the colon may be missing.
_WORD = re.compile(r"(?:call\s*)?:\s*")
_WORD_BEGINS = re.compile(r"c?|ca|cal|call\s*|(?:call\s*)?:\s*")
_LOOKAHEAD = 32
_ENDS = FORMATS["gemma"].ends
_CLOSERS = Literals(_ENDS)
_STYLE = Style(_ENDS, is_python=True, has_bare_text=True)


def gemma(row: Format) -> Syntax:
    """Return the syntax of `<|tool_call>call:NAME{KEY:<|"|>value<|"|>}<tool_call|>`."""
    return Syntax.of(row, _read)


def bare_gemma(row: Format) -> Syntax:
    """Return the syntax of consecutive calls `call:NAME{KEY:value}`."""
    return Syntax.of(row, read_bare)


def _read(cursor: Cursor, opening: str) -> Reading:
    """Read calls between marks; the first `call:` may be missing."""
    yield from cursor.whitespace()
    yield from _pass_word(cursor)
    result = yield from _read_call(cursor)
    while not result.closed and len(result.calls) <= MOST_CALLS and (yield from _pass_word(cursor)):
        result += yield from _read_call(cursor)
    return result


def read_bare(cursor: Cursor, opening: str) -> Reading:
    """Read consecutive calls without opening marks, at the end of the reply."""
    return read_consecutive(cursor, _read_call, lambda cursor: cursor.literal(_CALL))


def _pass_word(cursor: Cursor) -> Waiting[bool]:
    """Skip `call:` or `:` before a name; return False if neither of them comes next."""
    word = yield from cursor.match(_WORD, _WORD_BEGINS, _LOOKAHEAD)
    cursor.advance(len(word[0]) if word else 0)
    return word is not None


def _read_call(cursor: Cursor) -> Reading:
    name = yield from cursor.take(_NAME)
    char = yield from cursor.peek()
    if not name or char not in ("{", "("):
        raise NoCall
    if char == "{":
        value = yield from read_value(cursor, None, _STYLE)
        result = Calls((WrittenCall(name, value.value),), value.is_closed)
    else:
        result = yield from read_python_arguments(cursor, name)
    if not result.closed:
        raise NoCall(Reason.BROKEN)
    yield from cursor.whitespace()
    closer = yield from cursor.one_of(_CLOSERS)
    return Calls(result.calls, bool(closer))
