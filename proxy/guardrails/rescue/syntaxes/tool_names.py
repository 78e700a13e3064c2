"""Calls that only the tool's own name gives away, as their mark is missing.

Only the client's own request says which words are names, so these syntaxes are made for it. The
name is a tag, the first word of a reply, or stands before a second mark; on the line of a sentence
little tells a call from an illustration, so it is read for tools that require arguments only, and
counts where the sentence announces an act and the call is fit for its tool.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool, WrittenCall
from proxy.guardrails.formats.gemma import BareGemma
from proxy.guardrails.formats.mistral import ARGUMENTS, read_named
from proxy.guardrails.rescue.syntax import (
    Calls,
    NotACall,
    Place,
    Reading,
    Reason,
    Syntax,
    read_marked_row,
    read_row,
)
from proxy.guardrails.rescue.syntaxes.argument_pairs import PAIRS_BEGIN, read_pairs
from proxy.guardrails.rescue.syntaxes.envelope import read_arguments
from proxy.guardrails.rescue.syntaxes.named_json import CONTENT, HARMONY, MARK
from proxy.guardrails.rescue.syntaxes.plain_json import FencedJson, UnopenedJson
from proxy.guardrails.rescue.syntaxes.pythonic import PythonList, read_python_calls
from proxy.guardrails.rescue.syntaxes.tagged import Element, Tagged
from proxy.guardrails.rescue.values.cursor import Cursor, Literals, Waiting, literals_of
from proxy.guardrails.rescue.values.scalars import interpret
from proxy.guardrails.rescue.values.tag_values import unescape_entities

_TAG = "<tool_call>"
_KEY = re.compile(r"[\w.-]+")
_WORD = re.compile(r"[^\s<>\"'=]+")
_QUOTES = ('"', "'")
_NEITHER = NotACall(Reason.NOT_A_CALL)


class ToolArguments(Syntax):
    """`NAME[ARGS]{...}` at the beginning of a reply, where Mistral's first mark is missing."""

    name = "tool_arguments"
    place = Place.REPLY_START
    _before: tuple[str, ...] = ("",)

    def __init__(self, names: Sequence[str]) -> None:
        self.openings = tuple(
            f"{before}{name}{ARGUMENTS}" for name in names for before in self._before
        )

    def read(self, cursor: Cursor, opening: str) -> Reading:
        return (yield from read_named(cursor, opening.strip().removesuffix(ARGUMENTS)))


class ToolArgumentsInText(ToolArguments):
    """The same elsewhere: what stands before it shows that the name is no part of a longer one."""

    name = "tool_arguments_in_text"
    place = Place.ANYWHERE
    _before = ("\n", " ")


class ToolRecipients(Syntax):
    """` to=NAME` in a header of harmony, without the namespace that belongs before the name."""

    name = "tool_recipients"
    _before = " to="

    def __init__(self, names: Sequence[str]) -> None:
        self._names = {f"{self._before}{name}": name for name in names}
        self.openings = tuple(self._names)

    def read(self, cursor: Cursor, opening: str) -> Reading:
        name = self._names[opening]
        cursor.rewind()
        cursor.advance(len(opening) - len(name))
        found = yield from HARMONY.read(cursor, opening)
        is_meant = isinstance(found, NotACall) or all(call.name == name for call in found.calls)
        return found if is_meant else _NEITHER


class ToolRecipientsAtStart(ToolRecipients):
    """The same where a reply begins within the header."""

    name = "tool_recipients_at_start"
    place = Place.REPLY_START
    _before = "to="


class ToolPairs(Syntax):
    """`<tool_call>NAME KEY=value</tool_call>`: pairs in words, of keys that the tool declares."""

    name = "tool_pairs"

    def __init__(self, tools: Mapping[str, frozenset[str]]) -> None:
        self._tools = {f"{_TAG}{name} ": (name, keys) for name, keys in tools.items() if keys}
        self.openings = tuple(self._tools)

    def read(self, cursor: Cursor, opening: str) -> Reading:
        name, keys = self._tools[opening]
        arguments: JsonObject = {}
        yield from cursor.whitespace()
        while key := (yield from cursor.take(_KEY)):
            if key not in keys or key in arguments or not (yield from cursor.literal("=")):
                return _NEITHER
            if quote := (yield from cursor.one_of(literals_of(*_QUOTES))):
                arguments[key] = yield from cursor.take_until(literals_of(quote))
                is_whole = yield from cursor.literal(quote)
            else:
                word = yield from cursor.take(_WORD)
                arguments[key], is_whole = interpret(word), bool(word)
            if not is_whole:
                return _NEITHER
            yield from cursor.whitespace()
        is_closed = yield from cursor.literal(f"</{_TAG[1:]}")
        return Calls((WrittenCall(name, arguments),)) if arguments and is_closed else _NEITHER


_JSON_OBJECT, _LIST, _GEMMA_CALL = " {", " [", " call:"
_FORMS: dict[str, Syntax] = {
    _JSON_OBJECT: UnopenedJson(),
    _LIST: PythonList(),
    _GEMMA_CALL: BareGemma(),
}
_PLACEHOLDER = "@"
_SPELLINGS = {
    f'{_JSON_OBJECT}"name":"{_PLACEHOLDER}"': _JSON_OBJECT,
    f'{_JSON_OBJECT}"name": "{_PLACEHOLDER}"': _JSON_OBJECT,
    f"{_LIST}{_PLACEHOLDER}(": _LIST,
    f"{_GEMMA_CALL}{_PLACEHOLDER}{{": _GEMMA_CALL,
}


class InlineCalls(Syntax):
    """` {"name": "NAME"`, ` [NAME(` or ` call:NAME{` behind a sentence or a colon."""

    name = "inline_calls"
    is_marked = False

    def __init__(self, names: Sequence[str]) -> None:
        self._forms = {
            spelling.replace(_PLACEHOLDER, name): form
            for name in names
            for spelling, form in _SPELLINGS.items()
        }
        self.openings = tuple(self._forms)

    def read(self, cursor: Cursor, opening: str) -> Reading:
        form = self._forms[opening]
        cursor.rewind()
        cursor.advance(len(form))
        return _bare((yield from _FORMS[form].read(cursor, form)), may_be_open=form == _GEMMA_CALL)


class CodeWord(Syntax):
    """`tool_code = NAME(...)` on a line of its own, as Gemma writes it where it forgets a fence."""

    name = "code_word"
    openings = ("\ntool_code",)
    is_marked = False

    def read(self, cursor: Cursor, opening: str) -> Reading:
        yield from cursor.whitespace()
        if (yield from cursor.literal("=")):
            yield from cursor.whitespace()
        return _bare((yield from read_python_calls(cursor)))


class FirstCodeWord(CodeWord):
    """The same as the first words of a reply."""

    openings = ("tool_code",)
    place = Place.REPLY_START


def _bare(found: Calls | NotACall, *, may_be_open: bool = False) -> Calls | NotACall:
    """Return calls as what counts only with further proof."""
    if isinstance(found, NotACall) or not (found.closed or may_be_open):
        return NotACall(Reason.NOT_A_CALL)
    return replace(found, is_bare=True)


_READABLE_NAME = re.compile(r"[\w.-]+")
_SPACE_AND_COLON = re.compile(r"[\s:]+")
_WRAPPERS = ("tool_call", "tool_use", "tool", "function_calls", "function_call")


class ToolTags(Tagged):
    """`<NAME><KEY>value</KEY></NAME>`, as Cline and its kin ask for it.

    Where a tool declares parameters, another tag than these makes it markup and not a call.
    """

    def __init__(self, tools: Sequence[tuple[str, frozenset[str]]]) -> None:
        super().__init__(
            "tool_tags",
            [
                Element(
                    f"<{name}>",
                    f"</{name}>",
                    ("<parameter name=", "<parameter="),
                    "</parameter>",
                    "<",
                    name=name,
                    known=parameters,
                    has_lines=True,
                )
                for name, parameters in tools
            ],
            {f"<{tag}>": f"</{tag}>" for tag in _WRAPPERS},
            is_empty_doubtful=True,
        )


class ToolAttributes(Syntax):
    """`<NAME KEY="value"/>` at the end of the reply, one or several.

    Only the keys that a tool declares make it a call, and at least one of them: else it is markup.
    """

    name = "tool_attributes"
    is_marked = False

    def __init__(self, tools: Sequence[tuple[str, frozenset[str]]]) -> None:
        self._keys = {f"<{name} ": keys for name, keys in tools if keys}
        self.openings = tuple(self._keys)

    def read(self, cursor: Cursor, opening: str) -> Reading:
        marks = literals_of(*self.openings)
        read_one = partial(self._read_element, cursor)
        return (yield from read_marked_row(cursor, opening, marks, read_one))

    def _read_element(self, cursor: Cursor, mark: str) -> Reading:
        arguments: JsonObject = {}
        yield from cursor.whitespace()
        while key := (yield from cursor.take(_READABLE_NAME)):
            value = yield from _read_attribute(cursor)
            if value is None or key in arguments or key not in self._keys[mark]:
                return NotACall(Reason.NOT_A_CALL)
            arguments[key] = unescape_entities(value)
            yield from cursor.whitespace()
        name = mark[1:-1]
        closer = yield from cursor.one_of(literals_of("/>", f"></{name}>"))
        if not arguments or not closer:
            return NotACall(Reason.NOT_A_CALL)
        return Calls((WrittenCall(name, arguments),))


def _read_attribute(cursor: Cursor) -> Waiting[str | None]:
    begins = yield from cursor.one_of(literals_of('="', "='"))
    if not begins:
        return None
    quote = begins[-1]
    value = yield from cursor.take_until(literals_of(quote))
    return value if (yield from cursor.literal(quote)) else None


class ToolWords(Syntax):
    """A whole reply of `NAME(...)` or of `NAME` and a JSON object, as GLM-4 wrote it.

    Several may stand one behind the other. Functionary writes `>>>` before all but the first, and
    in older versions a mark behind the name.
    """

    name = "tool_words"
    place = Place.REPLY_START
    is_marked = False

    def __init__(self, names: Sequence[str]) -> None:
        self.openings = tuple(names)
        self._names = Literals(self.openings)

    def read(self, cursor: Cursor, opening: str) -> Reading:
        if (yield from cursor.is_next("(")):
            cursor.rewind()
            return (yield from read_python_calls(cursor))
        name = opening

        def passes_next() -> Waiting[str]:
            nonlocal name
            yield from cursor.literal(MARK)
            name = yield from cursor.one_of(self._names)
            return name

        return (yield from read_row(cursor, lambda: _read_behind_name(cursor, name), passes_next))


def _read_behind_name(cursor: Cursor, name: str) -> Reading:
    yield from cursor.take(_SPACE_AND_COLON)
    if (yield from cursor.literal(CONTENT)):
        yield from cursor.whitespace()
    if (yield from cursor.is_next(PAIRS_BEGIN)):
        return (yield from read_pairs(cursor, name))
    if not (yield from cursor.is_next("{")):
        return NotACall(Reason.NOT_A_CALL)
    return (yield from read_arguments(cursor, name))


def syntaxes_for(tools: Sequence[Tool]) -> tuple[Syntax, ...]:
    """Return the syntaxes that can be read only where these tools are offered."""
    readable = [tool for tool in tools if _READABLE_NAME.fullmatch(tool.name)]
    demanding = tuple(tool.name for tool in readable if _demands(tool))
    return _syntaxes(tuple((tool.name, _parameters(tool)) for tool in readable), demanding)


@lru_cache(maxsize=64)
def _syntaxes(
    tools: tuple[tuple[str, frozenset[str]], ...], demanding: tuple[str, ...]
) -> tuple[Syntax, ...]:
    if not tools:
        return ()
    inline = (InlineCalls(demanding), CodeWord(), FirstCodeWord()) if demanding else ()
    tags = ToolTags(tools)
    names = [name for name, _ in tools]
    fenced = FencedJson((tags,), "fenced_tags")
    return (
        *(tags, ToolAttributes(tools), ToolWords(names), fenced),
        *(ToolArguments(names), ToolArgumentsInText(names)),
        *(ToolRecipients(names), ToolRecipientsAtStart(names), ToolPairs(dict(tools))),
        *inline,
    )


def _demands(tool: Tool) -> bool:
    required = tool.parameters.get("required") if isinstance(tool.parameters, dict) else None
    return isinstance(required, list) and bool(required)


def _parameters(tool: Tool) -> frozenset[str]:
    schema = tool.parameters
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return frozenset(properties if isinstance(properties, dict) else ())
