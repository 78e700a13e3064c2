"""Calls in JSON after an unmistakable mark, whichever mark a model family uses.

Apertus writes a list of objects whose one key is the name. Qwen2.5-Coder writes calls between
`<tools>` and `</tools>`, the marks of tool definitions, which models repeat. So an object counts
there only if it has a name, `arguments` and nothing else: a definition has `parameters`, a
description, or a type.
"""

import re
from collections.abc import Iterable

from proxy.conversation.json import JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.rows import FENCE, pass_fence
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, NoCall, Place, Reading, Syntax
from proxy.guardrails.rescue.syntaxes.envelope import calls_in, items_of, read_all_calls
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting, literals_of
from proxy.guardrails.rescue.values.reader import read_value
from proxy.guardrails.rescue.values.scalars import Style, Unreadable

_LANGUAGE = re.compile(r"[a-z_]+")
_CLOSING_TAG = re.compile(r"</[\w:]+>")
_CLOSING_TAG_BEGINS = re.compile(r"(?:<(?:/[\w:]*)?)?")
_LONGEST_TAG = 40
_REPETITIONS = 3  # of the opening mark


def marked_json(
    name: str, openings: Iterable[str], closers: Iterable[str] = (), place: Place = "anywhere"
) -> Syntax:
    """Return the syntax of JSON after a mark: objects, a list or a code fence.

    `closers` are the marks after the calls. They may be missing; after a list nothing is missing,
    because a list has its own end.
    """
    marks, ends = tuple(openings), tuple(closers)

    def read(cursor: Cursor, opening: str) -> Reading:
        for _ in range(_REPETITIONS):
            yield from cursor.whitespace()
            if not (yield from cursor.one_of(literals_of(*marks))):
                break
        yield from cursor.whitespace()
        is_fenced = yield from pass_fence(cursor, _LANGUAGE)
        is_list = yield from cursor.is_next("[")
        found = yield from read_all_calls(cursor, is_marked=True, ends=ends)
        if found.is_cut:
            return found
        if is_fenced and (yield from cursor.literal(FENCE)):
            yield from cursor.whitespace()
        is_closed = yield from _pass_closer(cursor, ends)
        return Calls(found.calls, found.closed and (is_closed or is_list or not ends))

    return Syntax(name, marks, read, place)


def _pass_closer(cursor: Cursor, ends: tuple[str, ...]) -> Waiting[bool]:
    """Pass the closing mark; a wrong closing tag is as good as the right one."""
    if (yield from cursor.one_of(literals_of(*ends))):
        return True
    tag = yield from cursor.match(_CLOSING_TAG, _CLOSING_TAG_BEGINS, _LONGEST_TAG)
    cursor.advance(len(tag[0]) if tag else 0)
    return tag is not None


INKLING = marked_json("inkling", ("<|content_invoke_tool_json|>",), ("<|end_message|>",))
FAMILIES = (
    marked_json("granite", ("<|tool_call|>", "<function_call>")),
    marked_json(
        "tool_calls", ("<tool_calls>", "<|tool_calls|>"), ("</tool_calls>", "<|/tool_calls|>")
    ),
    marked_json("nemotron", ("<TOOLCALL>", "<toolcall>"), ("</TOOLCALL>", "</toolcall>")),
    marked_json("tool_call_brackets", ("[TOOL_CALL]",), ("[/TOOL_CALL]",)),
    marked_json("tool_use", ("<tool_use>", "<tool>"), ("</tool_use>", "</tool>")),
    marked_json("longcat", ("<longcat_tool_call>",), ("</longcat_tool_call>",)),
    marked_json("dots", ("<dots_function_call>",), ("</dots_function_call>",)),
    marked_json("k2_horizon", ("<ifm|tool_call>",), ("</ifm|tool_call>",)),
    marked_json("cohere", ("<|START_ACTION|>",), ("<|END_ACTION|>",)),
    marked_json("command_r", ("Action: ```json", "Action:```json"), ("```",), "line_start"),
    marked_json(
        "internlm",
        ("<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"),
        ("<|action_end|>",),
    ),
    marked_json("phi4", ("functools",), place="reply_start"),
    marked_json("phi4_in_text", ("\nfunctools",)),
    marked_json("llama3", ("<|python_tag|>",)),
    marked_json("llama4", ("<|python_start|>",), ("<|python_end|>",)),
    marked_json("lfm2", ("<|tool_call_start|>",), ("<|tool_call_end|>",)),
    marked_json("gemma_json", ("<|tool_call>",), ("<tool_call|>",)),
    marked_json(
        "gigachat",
        (
            *("<|function_call|>", "<|message_sep|>\n\nfunction call<|role_sep|>\n"),
            *("<|message_sep|>function call<|role_sep|>", "function call<|role_sep|>\n"),
        ),
    ),
    INKLING,
    marked_json("function_calls", ("<function_calls>",), ("</function_calls>",)),
)


_APERTUS_CLOSER = "<|tools_suffix|>"


def _read_apertus(cursor: Cursor, opening: str) -> Reading:
    """Read a list of objects whose one key is the tool's name, or in other envelopes."""
    value = yield from read_value(cursor, None, Style((_APERTUS_CLOSER,)))
    calls = _read_keyed_calls(value.value) or calls_in(value.value, is_marked=True)
    if not calls:
        raise NoCall
    yield from cursor.whitespace()
    is_closed = yield from cursor.literal(_APERTUS_CLOSER)
    return Calls(calls, value.is_closed and is_closed)


def _read_keyed_calls(value: JsonValue) -> tuple[WrittenCall, ...]:
    items = [item for item in items_of(value) if isinstance(item, dict) and len(item) == 1]
    if items != items_of(value):
        return ()
    return tuple(WrittenCall(name, item[name]) for item in items for name in item)


APERTUS = Syntax("apertus", ("<|tools_prefix|>",), _read_apertus)

_TOOLS_CLOSER = "</tools>"
_TOOLS_STYLE = Style((_TOOLS_CLOSER,))


def _read_tools(cursor: Cursor, opening: str) -> Reading:
    """Read objects or lists of them, one after another, between the marks of definitions."""
    calls: list[WrittenCall] = []
    is_closed = True
    char = yield from cursor.next_visible()
    while is_closed and char in ("{", "["):
        try:
            value = yield from read_value(cursor, None, _TOOLS_STYLE)
        except Unreadable as failure:
            raise NoCall from failure
        calls += map(_call_in, items_of(value.value))
        if len(calls) > MOST_CALLS:
            raise NoCall
        is_closed = value.is_closed
        char = yield from cursor.next_visible()
    is_marked_off = yield from cursor.literal(_TOOLS_CLOSER)
    behind = yield from cursor.peek()
    if not calls or not (is_marked_off or behind in ("", "<")):
        raise NoCall
    return Calls(tuple(calls), is_closed and is_marked_off)


def _call_in(item: JsonValue) -> WrittenCall:
    match item:
        case {"name": str(name), "arguments": dict(arguments), **others} if (
            name.strip() and not others
        ):
            return WrittenCall(name.strip(), arguments)
        case _:
            raise NoCall


TOOLS_TAG = Syntax("tools_tag", ("<tools>",), _read_tools)
