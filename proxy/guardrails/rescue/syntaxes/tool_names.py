"""Calls written with nothing but the tool's own name: as a tag, or as the first word of a reply.

Only the client's own request says which words these are, so these syntaxes are made for it.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool, WrittenCall
from proxy.guardrails.rescue.rows import read_row
from proxy.guardrails.rescue.syntax import Calls, NotACall, Place, Reading, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.argument_pairs import PAIRS_BEGIN, read_pairs
from proxy.guardrails.rescue.syntaxes.envelope import read_arguments
from proxy.guardrails.rescue.syntaxes.fenced_json import FencedJson
from proxy.guardrails.rescue.syntaxes.functionary import CONTENT, MARK
from proxy.guardrails.rescue.syntaxes.inline_calls import CodeWord, FirstCodeWord, InlineCalls
from proxy.guardrails.rescue.syntaxes.pythonic import read_python_calls
from proxy.guardrails.rescue.syntaxes.tagged import Element, Tagged
from proxy.guardrails.rescue.syntaxes.tool_marks import (
    ToolArguments,
    ToolArgumentsInText,
    ToolPairs,
    ToolRecipients,
    ToolRecipientsAtStart,
)
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.entities import unescaped
from proxy.guardrails.rescue.values.literals import Literals, literals_of

_NAME = re.compile(r"[\w.-]+")
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


class ToolAttributes:
    """`<NAME KEY="value"/>` at the end of the reply, one or several.

    Only the keys that a tool declares make it a call, and at least one of them: else it is markup.
    """

    name = "tool_attributes"
    place = Place.ANYWHERE
    is_marked = False

    def __init__(self, tools: Sequence[tuple[str, frozenset[str]]]) -> None:
        self._keys = {f"<{name} ": keys for name, keys in tools if keys}
        self.openings = tuple(self._keys)

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read element after element, and the white space behind each."""
        mark = opening

        def passes_next() -> Waiting[str]:
            nonlocal mark
            mark = yield from cursor.one_of(literals_of(*self.openings))
            return mark

        return (yield from read_row(cursor, lambda: self._element(cursor, mark), passes_next))

    def _element(self, cursor: Cursor, mark: str) -> Reading:
        arguments: JsonObject = {}
        yield from cursor.whitespace()
        while key := (yield from cursor.take(_NAME)):
            value = yield from _attribute(cursor)
            if value is None or key in arguments or key not in self._keys[mark]:
                return NotACall(Reason.NOT_A_CALL)
            arguments[key] = unescaped(value)
            yield from cursor.whitespace()
        name = mark[1:-1]
        is_closed = yield from cursor.one_of(literals_of("/>", f"></{name}>"))
        if not arguments or not is_closed:
            return NotACall(Reason.NOT_A_CALL)
        return Calls((WrittenCall(name, arguments),))


def _attribute(cursor: Cursor) -> Waiting[str | None]:
    """Read what stands behind the name of an attribute."""
    begins = yield from cursor.one_of(literals_of('="', "='"))
    if not begins:
        return None
    quote = begins[-1]
    value = yield from cursor.take_until(literals_of(quote))
    return value if (yield from cursor.literal(quote)) else None


class ToolWords:
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
        """Read calls in parentheses, or names and objects of arguments, and what space follows."""
        if (yield from cursor.is_next("(")):
            cursor.rewind()
            return (yield from read_python_calls(cursor))
        name = opening

        def passes_next() -> Waiting[str]:
            nonlocal name
            yield from cursor.literal(MARK)
            name = yield from cursor.one_of(self._names)
            return name

        return (yield from read_row(cursor, lambda: _behind_name(cursor, name), passes_next))


def _behind_name(cursor: Cursor, name: str) -> Reading:
    yield from cursor.take(_SPACE_AND_COLON)
    if (yield from cursor.literal(CONTENT)):
        yield from cursor.whitespace()
    if (yield from cursor.is_next(PAIRS_BEGIN)):
        return (yield from read_pairs(cursor, name))
    if not (yield from cursor.is_next("{")):
        return NotACall(Reason.NOT_A_CALL)
    return (yield from read_arguments(cursor, name))


def named_after(tools: Sequence[Tool]) -> tuple[Syntax, ...]:
    """Return the syntaxes that can be read only where these tools are offered."""
    readable = [tool for tool in tools if _NAME.fullmatch(tool.name)]
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
    """Return whether a tool requires arguments."""
    required = tool.parameters.get("required") if isinstance(tool.parameters, dict) else None
    return isinstance(required, list) and bool(required)


def _parameters(tool: Tool) -> frozenset[str]:
    schema = tool.parameters
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return frozenset(properties if isinstance(properties, dict) else ())
