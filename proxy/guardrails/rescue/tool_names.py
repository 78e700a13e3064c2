"""Calls written with nothing but the tool's own name: as a tag, or as the first word of a reply.

Only the client's own request says which words these are, so these syntaxes are made for it.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

from proxy.conversation.tools import Tool, WrittenCall
from proxy.guardrails.rescue.argument_pairs import PAIRS_BEGIN, read_pairs
from proxy.guardrails.rescue.cursor import Cursor
from proxy.guardrails.rescue.fenced_json import FencedJson
from proxy.guardrails.rescue.pythonic import read_python_calls
from proxy.guardrails.rescue.syntax import Calls, NotACall, Place, Reading, Reason, Syntax
from proxy.guardrails.rescue.tagged import Element, Tagged
from proxy.guardrails.rescue.values import Unreadable, read_value

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
                )
                for name, parameters in tools
            ],
            {f"<{tag}>": f"</{tag}>" for tag in _WRAPPERS},
            is_empty_doubtful=True,
        )


class ToolWords:
    """A whole reply of `NAME(...)` or of `NAME` and a JSON object, as GLM-4 wrote it."""

    name = "tool_words"
    place = Place.REPLY_START
    is_marked = False

    def __init__(self, names: Sequence[str]) -> None:
        self.openings = tuple(names)

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read calls in parentheses, or the one object of arguments, and what space follows."""
        if (yield from cursor.is_next("(")):
            cursor.rewind()
            return (yield from read_python_calls(cursor))
        yield from cursor.take(_SPACE_AND_COLON)
        if (yield from cursor.is_next(PAIRS_BEGIN)):
            return (yield from read_pairs(cursor, opening))
        if not (yield from cursor.is_next("{")):
            return NotACall(Reason.NOT_A_CALL)
        cursor.start_arguments(opening)
        value = yield from read_value(cursor)
        cursor.end_arguments()
        if isinstance(value, Unreadable):
            return NotACall(Reason.BROKEN)
        yield from cursor.whitespace()
        return Calls((WrittenCall(opening, value.value),), value.is_closed)


def named_after(tools: Sequence[Tool]) -> tuple[Syntax, ...]:
    """Return the syntaxes that can be read only where these tools are offered."""
    known = ((tool.name, _parameters(tool)) for tool in tools if _NAME.fullmatch(tool.name))
    return _syntaxes(tuple(known))


@lru_cache(maxsize=64)
def _syntaxes(tools: tuple[tuple[str, frozenset[str]], ...]) -> tuple[Syntax, ...]:
    if not tools:
        return ()
    tags = ToolTags(tools)
    return (tags, ToolWords([name for name, _ in tools]), FencedJson((tags,), "fenced_tags"))


def _parameters(tool: Tool) -> frozenset[str]:
    schema = tool.parameters
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return frozenset(properties if isinstance(properties, dict) else ())
