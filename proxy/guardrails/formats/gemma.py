"""Gemma: how Gemma 3 is asked for calls, and how Gemma 4 and FunctionGemma write them.

Gemma 3 has no marks of its own for tools. Google documents a plain prompt with the tools as JSON
schemas and calls as JSON with `parameters`. The code block lets a call stand behind other text, and
Gemma writes it anyway; `plain_json` reads it. The later ones write `call:NAME{key:<|"|>text<|"|>}`.
"""

import re
from collections.abc import Sequence

from proxy.conversation.tools import Tool, ToolCall, WrittenCall
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
from proxy.guardrails.rescue.syntaxes.pythonic import read_python_arguments
from proxy.guardrails.rescue.values.cursor import Cursor, Literals, Waiting
from proxy.guardrails.rescue.values.reader import read_value
from proxy.guardrails.rescue.values.scalars import Style, Unreadable
from proxy.guardrails.tool_prompts.fragments import (
    append_calls,
    demand_call,
    list_tools,
    write_call,
    write_result,
    write_tools,
)

_FENCE = "```"
_MARKS = ("``",)  # of more than two in a row none is left as it is
_NEXT = ",\n"


class GemmaConvention:
    """JSON objects in one code block."""

    name = "gemma"
    syntaxes = ("fenced_json", "bare_json", "python_reply")
    stops = ()
    answer_label = ""

    def describe(self, tools: Sequence[Tool], respond: Tool | None) -> str:
        return (
            "You can call these functions:\n"
            f"[\n{write_tools(list_tools(tools, respond), _MARKS, _NEXT)}\n]\n\n"
            "To call one or several of them, end your reply with a JSON code block, "
            "one object for each call:\n"
            f'{_FENCE}json\n{{"name": "FUNCTION", "parameters": {{"PARAMETER": "VALUE"}}}}\n'
            f"{_FENCE}\n"
            f"You get the results in tool_output code blocks.{demand_call(respond)}"
        )

    def write_calls(self, text: str, calls: Sequence[ToolCall]) -> str:
        written = "\n".join(write_call(call, _MARKS, "parameters") for call in calls)
        return append_calls(text, f"{_FENCE}json\n{written}\n{_FENCE}")

    def write_result(self, name: str, call_id: str, text: str) -> str:
        return f"{_FENCE}tool_output\n{write_result(name, text, _MARKS)}\n{_FENCE}"


_NAME = re.compile(r"[\w.:/-]+")
_CALL = "call:"
_WORD = re.compile(r"(?:call\s*)?:\s*")
_WORD_BEGINS = re.compile(r"c?|ca|cal|call\s*|(?:call\s*)?:\s*")
_SIGHT = 32
_ENDS = ("<tool_call|>", "<end_function_call>", "</tool_call>", "<|tool_call|>")
_CLOSERS = Literals(_ENDS)
_STYLE = Style(_ENDS, is_python=True, has_bare_text=True)


class Gemma(Syntax):
    """One call or several between marks."""

    name = "gemma"
    openings = ("<|tool_call>", "<start_function_call>", "<tool_call>")

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read the calls and their closing mark; the first word `call:` may be missing."""
        yield from cursor.whitespace()
        yield from _pass_word(cursor)
        found = yield from _read_call(cursor)
        while isinstance(found, Calls) and not found.closed and len(found.calls) <= MOST_CALLS:
            if not (yield from _pass_word(cursor)):
                break
            more = yield from _read_call(cursor)
            if isinstance(more, NotACall):
                return more
            found = Calls(found.calls + more.calls, more.closed)
        return found


class BareGemma(Syntax):
    """Calls without opening marks, one behind the other, at the end of the reply."""

    name = "bare_gemma"
    openings = (_CALL,)
    place = Place.REPLY_START
    is_marked = False

    def read(self, cursor: Cursor, opening: str) -> Reading:
        return (
            yield from read_row(cursor, lambda: _read_call(cursor), lambda: cursor.literal(_CALL))
        )


class BareGemmaInText(BareGemma):
    """The same behind other text; a word is not held back for its first letter."""

    name = "bare_gemma_in_text"
    openings = (f"\n{_CALL}",)
    place = Place.ANYWHERE


def _pass_word(cursor: Cursor) -> Waiting[bool]:
    """Pass the word before a name, or the colon behind it alone; tell whether it was there."""
    while True:
        text, is_all = cursor.glimpse(_SIGHT)
        if is_all or not _WORD_BEGINS.fullmatch(text):
            break
        yield
    word = _WORD.match(text)
    cursor.advance(len(word[0]) if word else 0)
    return word is not None


def _read_call(cursor: Cursor) -> Reading:
    name = yield from cursor.take(_NAME)
    char = yield from cursor.peek()
    if not name or char not in ("{", "("):
        return NotACall(Reason.NOT_A_CALL)
    found = yield from (
        _read_braced(cursor, name) if char == "{" else read_python_arguments(cursor, name)
    )
    if isinstance(found, NotACall) or not found.closed:
        return NotACall(Reason.BROKEN)
    yield from cursor.whitespace()
    closer = yield from cursor.one_of(_CLOSERS)
    return Calls(found.calls, bool(closer))


def _read_braced(cursor: Cursor, name: str) -> Waiting[Calls | NotACall]:
    value = yield from read_value(cursor, None, _STYLE)
    if isinstance(value, Unreadable) or not value.is_closed:
        return NotACall(Reason.BROKEN)
    return Calls((WrittenCall(name, value.value),))
