"""Reads calls in JSON after a mark, for all model families.

Qwen2.5-Coder writes calls between the marks of tool definitions (`<tools>`), but models also repeat
tool definitions between these marks. An object between the marks is a call only if it has a name,
`arguments` and no other member. A definition has `parameters`, a description, or a type.
"""

import re

from proxy.conversation.json import JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.formats import Format
from proxy.guardrails.rescue.rows import FENCE, skip_fence
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, NoCall, Reading, Syntax
from proxy.guardrails.rescue.syntaxes.envelope import items_of, read_all_calls
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting, literals_of
from proxy.guardrails.rescue.values.reader import read_value
from proxy.guardrails.rescue.values.scalars import Style, Unreadable

_LANGUAGE = re.compile(r"[a-z_]+")
_CLOSING_TAG = re.compile(r"</[\w:]+>")
_CLOSING_TAG_BEGINS = re.compile(r"(?:<(?:/[\w:]*)?)?")
_LONGEST_TAG = 40
_REPETITIONS = 3  # repeated opening marks that are skipped


def marked_json(row: Format) -> Syntax:
    """Return the syntax of JSON after a mark: objects, a list or a code fence.

        <tool_call>{"name": "NAME", "arguments": {"KEY": "value"}}</tool_call>

    The closing mark may be missing. After a list no mark is needed, because the closing bracket
    ends the list.
    """
    marks, ends = row.openings, row.ends

    def read(cursor: Cursor, opening: str) -> Reading:
        for _ in range(_REPETITIONS):
            yield from cursor.whitespace()
            if not (yield from cursor.one_of(literals_of(*marks))):
                break
        yield from cursor.whitespace()
        is_fenced = yield from skip_fence(cursor, _LANGUAGE)
        is_list = yield from cursor.is_next("[")
        result = yield from read_all_calls(cursor, is_marked=True, ends=ends)
        if result.is_cut:
            return result
        if is_fenced and (yield from cursor.literal(FENCE)):
            yield from cursor.whitespace()
        is_closed = yield from _consume_closer(cursor, ends)
        return Calls(result.calls, result.closed and (is_closed or is_list or not ends))

    return Syntax.of(row, read)


def _consume_closer(cursor: Cursor, ends: tuple[str, ...]) -> Waiting[bool]:
    """Consume the closing mark, or any closing tag; return whether there was one.

    Any closing tag is accepted because models mix the tags of formats, and complete JSON already
    makes the end of the call certain: `<tool_call>{...}</function_invocation>` (Qwen3.8#178).
    """
    if (yield from cursor.one_of(literals_of(*ends))):
        return True
    tag = yield from cursor.match(_CLOSING_TAG, _CLOSING_TAG_BEGINS, _LONGEST_TAG)
    cursor.advance(len(tag[0]) if tag else 0)
    return tag is not None


def definitions(row: Format) -> Syntax:
    """Return the syntax of objects or lists of objects between the marks of definitions.

    <tools>{"name": "NAME", "arguments": {"KEY": "value"}}</tools>
    """
    (closer,) = row.ends

    def read(cursor: Cursor, opening: str) -> Reading:
        calls: list[WrittenCall] = []
        is_closed = True
        char = yield from cursor.next_visible()
        while is_closed and char in ("{", "["):
            try:
                value = yield from read_value(cursor, None, Style(row.ends))
            except Unreadable as failure:
                raise NoCall from failure
            calls += map(_call_in, items_of(value.value))
            if len(calls) > MOST_CALLS:
                raise NoCall
            is_closed = value.is_closed
            char = yield from cursor.next_visible()
        has_closer = yield from cursor.literal(closer)
        next_char = yield from cursor.peek()
        if not calls or not (has_closer or next_char in ("", "<")):
            raise NoCall
        return Calls(tuple(calls), is_closed and has_closer)

    return Syntax.of(row, read)


def _call_in(item: JsonValue) -> WrittenCall:
    """Return the call that an item represents; raises `NoCall` for the definition of a tool."""
    match item:
        case {"name": str(name), "arguments": dict(arguments), **others} if (
            name.strip() and not others
        ):
            return WrittenCall(name.strip(), arguments)
        case _:
            raise NoCall
