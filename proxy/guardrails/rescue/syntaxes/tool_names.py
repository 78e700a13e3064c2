"""Recognizes calls by the name of an offered tool, if the mark of their format is missing.

The names depend on the client's tools, so these syntaxes are created for each set of tools. The
name may be a tag, the first word of a reply, or the word before a second mark. It may also be in an
object after a sentence, on the same line:

    <get_weather><city>Paris</city></get_weather>             the format of Cline's prompt
    get_weather(city="Paris")                                 at the start of a reply
    get_weather[ARGS]{"city": "Paris"}                        Mistral, without its first mark
    I look it up: {"name": "get_weather", "arguments": {"city": "Paris"}}

A call like the last one, on the line of a sentence, may be an illustration. So it is read only for
tools that require arguments. It is accepted only if the sentence announces an action and the call
is valid.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from msgspec.structs import replace

from proxy import bounds
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool, WrittenCall, properties_of
from proxy.guardrails.rescue.formats import FORMATS, TABLE, Format
from proxy.guardrails.rescue.registry import find_syntax
from proxy.guardrails.rescue.rows import read_after_marks, read_consecutive
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reading, Syntax
from proxy.guardrails.rescue.syntaxes.argument_pairs import PAIRS_BEGIN, read_pairs
from proxy.guardrails.rescue.syntaxes.envelope import read_arguments
from proxy.guardrails.rescue.syntaxes.gemma import read_bare
from proxy.guardrails.rescue.syntaxes.mistral import ARGUMENTS, read_named
from proxy.guardrails.rescue.syntaxes.plain_json import fenced_json, read_unopened
from proxy.guardrails.rescue.syntaxes.pythonic import read_python_calls, read_python_list
from proxy.guardrails.rescue.syntaxes.tagged import tagged
from proxy.guardrails.rescue.values.cursor import Cursor, Literals, Waiting, literals_of
from proxy.guardrails.rescue.values.scalars import Unreadable, interpret
from proxy.guardrails.rescue.values.tag_values import unescape_entities

_HARMONY, _INVOKE, _INKLING = map(find_syntax, ("harmony", "invoke", "inkling"))
_INKLING_CALL = FORMATS["inkling"].openings[0]
_HEADER_END = TABLE.messages.header_end
_CONTENT = FORMATS["functionary_header"].part("required")
_NEXT_NAME = FORMATS["functionary"].openings[0]
_WORD = re.compile(r"[^\s<>\"'=]+")
_READABLE_NAME = re.compile(r"[\w.-]+")
_PLACEHOLDER = "NAME"  # stands for a tool's name in the marks of the table


def _mark(row: str, name: str) -> str:
    return FORMATS[row].openings[0].replace(_PLACEHOLDER, name)


def _row(row: str, names: Iterable[str]) -> Format:
    """Return a row of the table, with a mark for each of these names."""
    template = FORMATS[row]
    marks = {
        mark.replace(_PLACEHOLDER, name): end.replace(_PLACEHOLDER, name)
        for name in names
        for mark, end in template.marks.items()
    }
    return replace(template, marks=marks)


def _read_named_arguments(cursor: Cursor, opening: str) -> Reading:
    """Read `NAME[ARGS]{...}`, where Mistral's first mark is missing."""
    return read_named(cursor, opening.strip().removesuffix(ARGUMENTS))


def tool_arguments(names: Sequence[str]) -> tuple[Syntax, ...]:
    """Return two syntaxes: one for the start of a reply, and one for all other positions.

    The openings of the second syntax include the character before the name. Otherwise the end of a
    longer name could be an opening.
    """
    rows = ("tool_arguments", "tool_arguments_in_text")
    return tuple(Syntax.of(_row(row, names), _read_named_arguments) for row in rows)


def tool_recipients(names: Sequence[str]) -> tuple[Syntax, ...]:
    """Return the syntaxes of `to=NAME` without a namespace, within or at the start of a header."""

    def read(cursor: Cursor, opening: str) -> Reading:
        name = opening.partition("=")[2]
        cursor.rewind()
        cursor.advance(len(opening) - len(name))
        result = yield from _HARMONY.read(cursor, opening)
        if any(call.name != name for call in result.calls):  # the tool has a longer name
            raise NoCall
        return result

    rows = ("tool_recipients", "tool_recipients_at_start")
    return tuple(Syntax.of(_row(row, names), read) for row in rows)


_INVOCATIONS = Literals(_INVOKE.openings)
_REST_OF_NAME = re.compile(r"[\w.:/-]+")  # `NAME.NAME`
_REST_IN_PYTHON = re.compile(r"[\w.\\-]+")
_HEAD = re.compile(r"[^\W_]+")


def _read_headed(cursor: Cursor, opening: str) -> Reading:
    """Read the end of a header `to=NAME`, and the call after it in the syntax `invoke`.

    Muse writes such calls (llama.cpp#29240).
    """
    yield from cursor.take(_REST_OF_NAME)
    has_header = yield from cursor.literal(_HEADER_END)
    yield from cursor.whitespace()
    mark = yield from cursor.one_of(_INVOCATIONS)
    if not has_header or not mark:
        raise NoCall
    return (yield from _INVOKE.read(cursor, mark))


def headed_tags(names: Sequence[str]) -> tuple[Syntax, ...]:
    """Return the syntaxes of `to=NAME<|message|><invoke name="NAME">`, see `tool_recipients`."""
    rows = (_row(row, names) for row in ("headed_tags", "headed_tags_at_start"))
    return tuple(Syntax.of(replace(row, name=_INVOKE.name), _read_headed) for row in rows)


def headed_json(names: Sequence[str]) -> Syntax:
    """Return the syntax of a message with the name as its header and a call of Inkling's format."""
    return Syntax.of(_row("headed_json", names), _INKLING.read)


def tool_pairs(tools: Mapping[str, frozenset[str]]) -> Syntax:
    """Return the syntax of `<tool_call>NAME KEY=value</tool_call>`; the tool declares all keys."""
    known = {_mark("tool_pairs", name): (name, keys) for name, keys in tools.items() if keys}
    (end,) = FORMATS["tool_pairs"].ends

    def read(cursor: Cursor, opening: str) -> Reading:
        name, keys = known[opening]
        arguments: JsonObject = {}
        yield from cursor.whitespace()
        while key := (yield from cursor.take(_READABLE_NAME)):
            if key not in keys or key in arguments or not (yield from cursor.literal("=")):
                raise NoCall
            if quote := (yield from cursor.one_of(literals_of('"', "'"))):
                arguments[key] = yield from cursor.take_until(literals_of(quote))
                is_complete = yield from cursor.literal(quote)
            else:
                word = yield from cursor.take(_WORD)
                arguments[key], is_complete = interpret(word), bool(word)
            if not is_complete:
                raise NoCall
            yield from cursor.whitespace()
        is_closed = yield from cursor.literal(end)
        if not arguments or not is_closed:
            raise NoCall
        return Calls((WrittenCall(name, arguments),))

    return Syntax.of(_row("tool_pairs", [name for name, _ in known.values()]), read)


_CALL = f" {FORMATS['bare_gemma'].openings[0]}"
_INLINE_READERS = {" {": read_unopened, " [": read_python_list, _CALL: read_bare}


def inline_calls(names: Sequence[str]) -> Syntax:
    """Return the syntax of ` {"name": "NAME"`, ` [NAME(` or ` call:NAME{` after a sentence."""

    def read(cursor: Cursor, opening: str) -> Reading:
        start = next(start for start in _INLINE_READERS if opening.startswith(start))
        cursor.rewind()
        cursor.advance(len(start))
        return _read_bare(_INLINE_READERS[start](cursor, start), may_be_open=start == _CALL)

    return Syntax.of(_row("inline_calls", names), read)


def _read_code(cursor: Cursor, opening: str) -> Reading:
    """Read `tool_code = NAME(...)`, which Gemma writes in place of a code fence."""
    yield from cursor.whitespace()
    if (yield from cursor.literal("=")):
        yield from cursor.whitespace()
    return (yield from _read_bare(read_python_calls(cursor)))


def _read_bare(reading: Reading, *, may_be_open: bool = False) -> Reading:
    """Read calls without a mark, which are accepted only after a sentence that announces them."""
    try:
        result = yield from reading
    except (NoCall, Unreadable) as refusal:
        raise NoCall from refusal
    if not result.closed and not may_be_open:
        raise NoCall
    return dataclasses.replace(result, is_bare=True)


_CODE_WORDS = tuple(
    Syntax.of(replace(FORMATS[row], name="code_word"), _read_code)
    for row in ("code_word", "code_word_at_start")
)
_SPACE_AND_COLON = re.compile(r"[\s:]+")


def tool_tags(tools: Sequence[tuple[str, frozenset[str]]]) -> Syntax:
    """Return the syntax of `<NAME><KEY>value</KEY></NAME>`, which Cline's prompt prescribes.

    If the tool declares parameters, an element with any other tag is not a call.
    """
    row = FORMATS["tool_tags"]
    elements = (
        replace(element, call=f"<{name}>", end=f"</{name}>", name=name, known=known)
        for element in row.elements
        for name, known in tools
    )
    return tagged(replace(row, elements=tuple(elements)))


def tool_attributes(tools: Sequence[tuple[str, frozenset[str]]]) -> Syntax:
    """Return the syntax of one or several `<NAME KEY="value"/>` at the end of the reply.

    The tag is a call only if it has at least one key and the tool declares all its keys.
    """
    row = _row("tool_attributes", [name for name, keys in tools if keys])
    known = {_mark(row.name, name): keys for name, keys in tools if keys}

    def read_call(cursor: Cursor, mark: str) -> Reading:
        arguments: JsonObject = {}
        yield from cursor.whitespace()
        while key := (yield from cursor.take(_READABLE_NAME)):
            value = yield from _read_attribute(cursor)
            if key in arguments or key not in known[mark]:
                raise NoCall
            arguments[key] = unescape_entities(value)
            yield from cursor.whitespace()
        closer = yield from cursor.one_of(literals_of(row.marks[mark], *row.closers))
        if not arguments or not closer:
            raise NoCall
        return Calls((WrittenCall(mark[1:-1], arguments),))

    def read(cursor: Cursor, opening: str) -> Reading:
        return read_after_marks(cursor, opening, known, read_call)

    return Syntax.of(row, read)


def _read_attribute(cursor: Cursor) -> Waiting[str]:
    begins = yield from cursor.one_of(literals_of('="', "='"))
    if not begins:
        raise NoCall
    value = yield from cursor.take_until(literals_of(begins[-1]))
    if not (yield from cursor.literal(begins[-1])):
        raise NoCall
    return value


def tool_words(names: Sequence[str]) -> Syntax:
    """Return the syntax of a reply that begins with `NAME(...)`, or with `NAME` and a JSON object.

    GLM-4 writes a JSON object after the name. Functionary writes `>>>` before the second and all
    later calls, and its older versions also write a mark after the name.
    """
    known = Literals(names)
    # In Python the words of a name may be joined differently: `get.time`, or `get\_time` (Mixtral
    # escapes names for Markdown).
    heads = (result[0] for name in names if (result := _HEAD.match(name)))

    def read(cursor: Cursor, opening: str) -> Reading:
        name_end = yield from cursor.take(_REST_IN_PYTHON)
        if (yield from cursor.is_next("(")):
            cursor.rewind()
            return (yield from read_python_calls(cursor))
        name = opening + name_end
        if name not in names:
            raise NoCall
        if (yield from cursor.literal(_INKLING_CALL)):
            return (yield from _INKLING.read(cursor, _INKLING_CALL))

        def consume_next(cursor: Cursor) -> Waiting[str]:
            nonlocal name
            yield from cursor.literal(_NEXT_NAME)
            name = yield from cursor.one_of(known)
            return name

        return (
            yield from read_consecutive(
                cursor, lambda cursor: _read_after_name(cursor, name), consume_next
            )
        )

    return Syntax.of(_row("tool_words", (*names, *heads)), read)


def _read_after_name(cursor: Cursor, name: str) -> Reading:
    yield from cursor.take(_SPACE_AND_COLON)
    if (yield from cursor.literal(_CONTENT)):
        yield from cursor.whitespace()
    if (yield from cursor.is_next(PAIRS_BEGIN)):
        return (yield from read_pairs(cursor, name))
    if not (yield from cursor.is_next("{")):
        raise NoCall
    return (yield from read_arguments(cursor, name))


def syntaxes_for(tools: Sequence[Tool]) -> tuple[Syntax, ...]:
    """Return the syntaxes whose openings contain the names of these tools.

    Returns () for more than `bounds.NAMED_TOOLS` tools, because the preparation of the syntaxes
    would delay other requests.
    """
    if len(tools) > bounds.NAMED_TOOLS:
        return ()
    readable = [tool for tool in tools if _READABLE_NAME.fullmatch(tool.name)]
    # A call on the line of a sentence is read only for tools that require arguments.
    inline_names = tuple(
        tool.name
        for tool in readable
        if isinstance(tool.parameters, dict) and tool.parameters.get("required")
    )
    return _syntaxes(tuple((tool.name, keys_of(tool)) for tool in readable), inline_names)


@lru_cache(maxsize=64)
def _syntaxes(
    tools: tuple[tuple[str, frozenset[str]], ...], inline_names: tuple[str, ...]
) -> tuple[Syntax, ...]:
    if not tools:
        return ()
    inline = (inline_calls(inline_names), *_CODE_WORDS) if inline_names else ()
    tags = tool_tags(tools)
    names = [name for name, _ in tools]
    fence = replace(FORMATS["fenced_json"], name="fenced_tags")
    return (
        *(tags, tool_attributes(tools), tool_words(names), fenced_json(fence, (tags,))),
        *(*tool_arguments(names), *tool_recipients(names), *headed_tags(names)),
        *(headed_json(names), tool_pairs(dict(tools))),
        *inline,
    )


def keys_of(tool: Tool) -> frozenset[str]:
    return frozenset(properties_of(tool.parameters))
