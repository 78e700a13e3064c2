"""Calls in JSON behind an unmistakable mark, whichever mark a model family uses.

Apertus writes a list of objects whose one key is the name. Qwen2.5-Coder writes calls between
`<tools>` and `</tools>`, the marks of definitions, which models repeat. So an object counts there
that has a name, `arguments` and nothing else: a definition has `parameters`, a description, or a
type.
"""

import re
from collections.abc import Iterable, Mapping

from proxy.conversation.json import JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import (
    MOST_CALLS,
    Calls,
    NotACall,
    Place,
    Reading,
    Reason,
    Syntax,
)
from proxy.guardrails.rescue.syntaxes.envelope import calls_in, read_all_calls
from proxy.guardrails.rescue.values.cursor import Cursor, Literals, Waiting
from proxy.guardrails.rescue.values.reader import read_value
from proxy.guardrails.rescue.values.scalars import Style, Unreadable

_LANGUAGE = re.compile(r"[a-z_]+")
_FENCE = "```"
_CLOSING_TAG = re.compile(r"</[\w:]+>")
_CLOSING_TAG_BEGINS = re.compile(r"</[\w:]*")
_LONGEST_TAG = 40
_REPETITIONS = 3  # of the opening mark


class MarkedJson:
    """JSON behind one of several marks; objects, a list or a code fence may stand there.

    `closers` are the marks behind the calls, which may be missing; behind a list they are not even
    missed, for it has an end of its own.
    """

    is_marked = True

    def __init__(
        self,
        name: str,
        openings: Iterable[str],
        closers: Iterable[str] = (),
        place: Place = Place.ANYWHERE,
    ) -> None:
        self.name = name
        self.place = place
        self.openings = tuple(openings)
        self._ends = tuple(closers)
        self._repeated = Literals(self.openings)
        self._closers = Literals(self._ends)

    def read(self, cursor: Cursor, opening: str) -> Reading:
        for _ in range(_REPETITIONS):
            yield from cursor.whitespace()
            if not (yield from cursor.one_of(self._repeated)):
                break
        yield from cursor.whitespace()
        is_fenced = yield from cursor.literal(_FENCE)
        if is_fenced:
            yield from cursor.take(_LANGUAGE)
            yield from cursor.whitespace()
        is_list = yield from cursor.is_next("[")
        found = yield from read_all_calls(cursor, is_marked=True, ends=self._ends)
        if isinstance(found, NotACall):
            return found
        if is_fenced and (yield from cursor.literal(_FENCE)):
            yield from cursor.whitespace()
        is_closed = yield from self._pass_closer(cursor)
        is_closed = is_closed or is_list or not self._ends
        return Calls(found.calls, found.closed and is_closed)

    def _pass_closer(self, cursor: Cursor) -> Waiting[bool]:
        """Pass the closing mark; a wrong closing tag is as good as the right one."""
        if (yield from cursor.one_of(self._closers)):
            return True
        while (yield from cursor.is_next("</")):
            text, is_all = cursor.glimpse(_LONGEST_TAG)
            if tag := _CLOSING_TAG.match(text):
                cursor.advance(len(tag[0]))
                return True
            if is_all or not _CLOSING_TAG_BEGINS.fullmatch(text):
                break
            yield
        return False


FAMILIES = (
    MarkedJson("granite", ("<|tool_call|>", "<function_call>")),
    MarkedJson(
        "tool_calls", ("<tool_calls>", "<|tool_calls|>"), ("</tool_calls>", "<|/tool_calls|>")
    ),
    MarkedJson("nemotron", ("<TOOLCALL>", "<toolcall>"), ("</TOOLCALL>", "</toolcall>")),
    MarkedJson("tool_call_brackets", ("[TOOL_CALL]",), ("[/TOOL_CALL]",)),
    MarkedJson("tool_use", ("<tool_use>", "<tool>"), ("</tool_use>", "</tool>")),
    MarkedJson("longcat", ("<longcat_tool_call>",), ("</longcat_tool_call>",)),
    MarkedJson("dots", ("<dots_function_call>",), ("</dots_function_call>",)),
    MarkedJson("k2_horizon", ("<ifm|tool_call>",), ("</ifm|tool_call>",)),
    MarkedJson("cohere", ("<|START_ACTION|>",), ("<|END_ACTION|>",)),
    MarkedJson("command_r", ("Action: ```json", "Action:```json"), ("```",), Place.LINE_START),
    MarkedJson(
        "internlm",
        ("<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"),
        ("<|action_end|>",),
    ),
    MarkedJson("phi4", ("functools",), place=Place.REPLY_START),
    MarkedJson("phi4_in_text", ("\nfunctools",)),
    MarkedJson("llama3", ("<|python_tag|>",)),
    MarkedJson("llama4", ("<|python_start|>",), ("<|python_end|>",)),
    MarkedJson("lfm2", ("<|tool_call_start|>",), ("<|tool_call_end|>",)),
    MarkedJson("gemma_json", ("<|tool_call>",), ("<tool_call|>",)),
    MarkedJson(
        "gigachat",
        (
            *("<|function_call|>", "<|message_sep|>\n\nfunction call<|role_sep|>\n"),
            *("<|message_sep|>function call<|role_sep|>", "function call<|role_sep|>\n"),
        ),
    ),
    MarkedJson("inkling", ("<|content_invoke_tool_json|>",), ("<|end_message|>",)),
    MarkedJson("function_calls", ("<function_calls>",), ("</function_calls>",)),
)


_APERTUS_CLOSER = "<|tools_suffix|>"


class Apertus(Syntax):
    """A list of objects whose one key is the name of the tool; other envelopes count as well."""

    name = "apertus"
    openings = ("<|tools_prefix|>",)

    def read(self, cursor: Cursor, opening: str) -> Reading:
        value = yield from read_value(cursor, None, Style((_APERTUS_CLOSER,)))
        if isinstance(value, Unreadable):
            return NotACall(Reason.BROKEN)
        calls = _read_keyed_calls(value.value) or calls_in(value.value, is_marked=True)
        if not calls:
            return NotACall(Reason.NOT_A_CALL)
        yield from cursor.whitespace()
        is_closed = yield from cursor.literal(_APERTUS_CLOSER)
        return Calls(calls, value.is_closed and is_closed)


def _read_keyed_calls(value: JsonValue) -> tuple[WrittenCall, ...]:
    items = value if isinstance(value, list) else [value]
    calls: list[WrittenCall] = []
    for item in items:
        if not isinstance(item, dict) or len(item) != 1:
            return ()
        calls += (WrittenCall(name, arguments) for name, arguments in item.items())
    return tuple(calls)


_TOOLS_CLOSER = "</tools>"
_TOOLS_STYLE = Style((_TOOLS_CLOSER,))
_CALL_MEMBERS = {"name", "arguments"}


class ToolsTag(Syntax):
    """Objects or lists of them, one behind the other, between the marks of definitions."""

    name = "tools_tag"
    openings = ("<tools>",)

    def read(self, cursor: Cursor, opening: str) -> Reading:
        calls: list[WrittenCall] = []
        is_closed = True
        yield from cursor.whitespace()
        while is_closed and (yield from cursor.peek()) in ("{", "["):
            value = yield from read_value(cursor, None, _TOOLS_STYLE)
            if isinstance(value, Unreadable):
                return NotACall(Reason.NOT_A_CALL)
            found = [_call_in(item) for item in _items_of(value.value)]
            calls += (call for call in found if call is not None)
            if None in found or len(calls) > MOST_CALLS:
                return NotACall(Reason.NOT_A_CALL)
            is_closed = value.is_closed
            yield from cursor.whitespace()
        is_marked_off = yield from cursor.literal(_TOOLS_CLOSER)
        behind = yield from cursor.peek()
        if not calls or not (is_marked_off or behind in ("", "<")):
            return NotACall(Reason.NOT_A_CALL)
        return Calls(tuple(calls), is_closed and is_marked_off)


def _items_of(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else [value]


def _call_in(item: JsonValue) -> WrittenCall | None:
    if not isinstance(item, Mapping) or item.keys() != _CALL_MEMBERS:
        return None
    name, arguments = item["name"], item["arguments"]
    is_call = isinstance(name, str) and bool(name.strip()) and isinstance(arguments, dict)
    return WrittenCall(str(name).strip(), arguments) if is_call else None
