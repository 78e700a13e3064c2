"""Calls whose mark has been forgotten but for the tool's own name and what stands behind it.

Only the client's own request says which words are names, so these syntaxes are made for it.
"""

import re
from collections.abc import Mapping, Sequence

from proxy.conversation.json import JsonObject
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls, NotACall, Place, Reading, Reason
from proxy.guardrails.rescue.syntaxes.mistral import ARGUMENTS, read_named
from proxy.guardrails.rescue.syntaxes.named_json import HARMONY
from proxy.guardrails.rescue.values.cursor import Cursor
from proxy.guardrails.rescue.values.literals import literals_of
from proxy.guardrails.rescue.values.scalars import meaning_of

_TAG = "<tool_call>"
_KEY = re.compile(r"[\w.-]+")
_WORD = re.compile(r"[^\s<>\"'=]+")
_QUOTES = ('"', "'")
_NEITHER = NotACall(Reason.NOT_A_CALL)


class ToolArguments:
    """`NAME[ARGS]{...}` at the beginning of a reply, where Mistral's first mark is missing."""

    name = "tool_arguments"
    place = Place.REPLY_START
    is_marked = True
    _before: tuple[str, ...] = ("",)

    def __init__(self, names: Sequence[str]) -> None:
        self.openings = tuple(
            f"{before}{name}{ARGUMENTS}" for name in names for before in self._before
        )

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read the object of arguments, and all calls in the same form right behind it."""
        return (yield from read_named(cursor, opening.strip().removesuffix(ARGUMENTS)))


class ToolArgumentsInText(ToolArguments):
    """The same elsewhere: what stands before it shows that the name is no part of a longer one."""

    name = "tool_arguments_in_text"
    place = Place.ANYWHERE
    _before = ("\n", " ")


class ToolRecipients:
    """` to=NAME` in a header of harmony, without the namespace that belongs before the name."""

    name = "tool_recipients"
    place = Place.ANYWHERE
    is_marked = True
    _before = " to="

    def __init__(self, names: Sequence[str]) -> None:
        self._names = {f"{self._before}{name}": name for name in names}
        self.openings = tuple(self._names)

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read one call, of which the name is the last thing in `opening`."""
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


class ToolPairs:
    """`<tool_call>NAME KEY=value</tool_call>`: pairs in words, of keys that the tool declares."""

    name = "tool_pairs"
    place = Place.ANYWHERE
    is_marked = True

    def __init__(self, tools: Mapping[str, frozenset[str]]) -> None:
        self._tools = {f"{_TAG}{name} ": (name, keys) for name, keys in tools.items() if keys}
        self.openings = tuple(self._tools)

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read pair after pair up to the closing tag, which has to be there."""
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
                arguments[key], is_whole = meaning_of(word), bool(word)
            if not is_whole:
                return _NEITHER
            yield from cursor.whitespace()
        is_closed = yield from cursor.literal(f"</{_TAG[1:]}")
        return Calls((WrittenCall(name, arguments),)) if arguments and is_closed else _NEITHER
