"""`<tool_call>NAME<arg_key>KEY</arg_key><arg_value>value</arg_value></tool_call>`.

GLM writes it; LongCat, K2-Horizon and others use the same grammar with other words. Hunyuan has a
suffix in all tags, `<tool_call:SUFFIX>`, and a wrapper, `<tool_calls:SUFFIX>`. Without the wrapper
its calls count only at the beginning of a reply: elsewhere they might be quoted.

Engines and models lose single tags. Without `<arg_value>` the value begins after the key's end;
without `<arg_key>` the key is glued to the name (`run_shellcommand</arg_key>`), which only the
tools can separate (`unnamed.complete`), or it follows the value before it.
"""

import re
from dataclasses import dataclass
from functools import cache

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.marks import THOUGHT_ENDS, ends_here, holds_mark
from proxy.guardrails.rescue.rows import read_row
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reading, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.envelope import read_arguments
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting, literals_of
from proxy.guardrails.rescue.values.tag_values import (
    is_pair_text,
    is_surplus,
    unescape_entities,
    without_doubled_end,
)

_PREFIXES = ("", "longcat_", "ifm|")
_SPARK = "<|tool_call|>"  # Spark's mark; its other tags are GLM's
_NAME = re.compile(r"[^\s<>{}\[\]()\"'`\\]+")
_KEY = r"[^<>]{1,100}"
_ASSIGNED = r"[\w.-]{1,100}="
_NO_KEY = frozenset('<>{}[]"\n')
_ANY_SPACE = r"(?:\s|\\n)*"
_SPACE = re.compile(r"\s+")
_ESCAPED_SPACE = re.compile(r"[\sn\\]+")
_PAIR_LIMIT = 100
_ESCAPED_LINE = "\\n"
_ESCAPED = "\\_"
_LOOKAHEAD = 240  # how far to look for what makes a mark one
_OTHER = "call:"  # Gemma's
PAIRS_BEGIN = "<arg_key>"


@dataclass(frozen=True, slots=True)
class Tags:
    """How a family spells its tags."""

    prefix: str
    suffix: str = ""

    def pair(self, word: str) -> tuple[str, str]:
        tag = f"{self.prefix}{word}{self.suffix}>"
        return f"<{tag}", f"</{tag}"


@cache
def _pair_of(tags: Tags, *, is_sure: bool) -> re.Pattern[str]:
    """Return a pattern for a key up to the beginning of its value; its end may be missing.

    Where it `is_sure` that a value ended before the key, its end is enough.
    """
    (key, key_end), (value, _), (kind, _) = map(tags.pair, ("arg_key", "arg_value", "arg_type"))
    end = f"(?:{re.escape(key_end)})?{_ANY_SPACE}(?:{re.escape(value)}|{re.escape(kind)})"
    end += f"|{re.escape(key_end)}" * is_sure
    return re.compile(f"{re.escape(key)}{_ANY_SPACE}(?:{_KEY}(?:{end})|{_ASSIGNED})")


@cache
def _unopened_pair_of(tags: Tags) -> re.Pattern[str]:
    """Return a pattern for a pair that lacks the mark before its key."""
    key_end, value = tags.pair("arg_key")[1], tags.pair("arg_value")[0]
    return re.compile(rf"[\w.-]{{1,100}}{re.escape(key_end)}{_ANY_SPACE}{re.escape(value)}")


class _PairsReader:
    """Reads one call after its opening.

    A reply that was escaped once too often shows it between the tags: line ends are a backslash and
    an n. Its values are unescaped too.
    """

    def __init__(self, cursor: Cursor, tags: Tags, opening: str = "") -> None:
        self._cursor = cursor
        own, self._closer = tags.pair("tool_call")
        self._opening = opening or own
        self._key, self._key_end = tags.pair("arg_key")
        self._value, self._value_end = tags.pair("arg_value")
        self._type, self._type_end = tags.pair("arg_type")
        self._separator = f"<tool_sep{tags.suffix}>"
        self._arguments: JsonObject = {}
        self._is_escaped = False
        self._tags = tags
        self._lacks_mark = False
        self._has_inner_mark = False

    def read(self) -> Reading:
        cursor = self._cursor
        yield from cursor.whitespace()
        name = yield from cursor.take(_NAME)
        while name and (yield from cursor.literal(_ESCAPED)):
            name += "_" + (yield from cursor.take(_NAME))
        yield from self._pass_space()
        if name and (yield from cursor.literal(self._separator)):
            yield from self._pass_space()
        if name and (yield from cursor.literal(">")):  # as if the name were a tag
            yield from self._pass_space()
        if name and not name.startswith(_OTHER) and (yield from cursor.is_next("{")):
            return (yield from self._read_json(name))
        if name:
            name = yield from self._read_unopened(name)
        return (yield from self.read_arguments(name))

    def _read_unopened(self, name: str) -> Waiting[str]:
        """Read a first pair whose `<arg_key>` is missing; return the name, with the key if glued.

        The value of a key that is missing altogether has the key "".
        """
        cursor = self._cursor
        key = "" if cursor.stands_at("<") else (yield from cursor.take(_NAME))
        yield from cursor.whitespace()
        has_end = yield from cursor.literal(self._key_end)
        yield from self._pass_space()
        if key and not has_end:
            raise NoCall
        if (yield from cursor.literal(self._value)):
            self._arguments[key] = self._interpret((yield from self._read_text()))
            yield from self._pass_space()
        elif has_end:
            raise NoCall(Reason.BROKEN)
        return name + self._key_end if has_end and not key else name

    def read_arguments(self, name: str) -> Reading:
        count = 0
        while name and (yield from self._begins_pair()):
            count += 1
            if count > _PAIR_LIMIT:
                raise NoCall(Reason.BROKEN)
            yield from self._read_pair()
            yield from self._pass_space()
        is_closed = bool(name) and (yield from self._cursor.literal(self._closer))
        if self._lacks_mark and self._has_inner_mark:
            raise NoCall(Reason.BROKEN)
        if not is_closed and not self._arguments:
            raise NoCall
        return Calls((WrittenCall(name, self._arguments),), is_closed)

    def _begins_pair(self) -> Waiting[bool]:
        """Pass the mark before a key, which may be missing after a first pair."""
        if (yield from self._cursor.literal(self._key)):
            return True
        return bool(self._arguments) and (yield from self._sees(_unopened_pair_of(self._tags)))

    def _read_json(self, name: str) -> Reading:
        found = yield from read_arguments(self._cursor, name, (self._closer,))
        yield from self._pass_space()
        is_closed = yield from self._cursor.literal(self._closer)
        return Calls(found.calls, found.closed and is_closed)

    def _pass_space(self) -> Waiting[None]:
        yield from self._cursor.whitespace()
        while (yield from self._cursor.literal(_ESCAPED_LINE)):
            self._is_escaped = True
            yield from self._cursor.whitespace()

    def _read_pair(self) -> Waiting[None]:
        key, has_end = yield from self._read_until(self._key_end, self._value, self._value_end)
        key, sign, begun = key.partition("=") if self._is_assigned(key) else (key, "", "")
        key = key.strip()
        yield from self._pass_space()
        if (yield from self._cursor.literal(self._type)):
            yield from self._read_until(self._type_end, self._value)
            yield from self._pass_space()
        has_value = sign or (yield from self._cursor.literal(self._value))
        if not key or set(key) & _NO_KEY or not (has_value or has_end):
            raise NoCall(Reason.BROKEN)
        value = self._interpret(begun + (yield from self._read_text()))
        if not has_value and (self._value in value or self._lacks_mark):
            raise NoCall(Reason.BROKEN)
        if self._arguments.setdefault(key, value) != value:  # choosing one would be a guess
            raise NoCall(Reason.BROKEN)

    def _interpret(self, text: str) -> str:
        if not self._is_escaped:
            return unescape_entities(text)
        try:
            return str(json.parse(f'"{text}"'))
        except ValueError:
            return text

    def _is_assigned(self, written: str) -> bool:
        """Whether `KEY=value` stands in place of a key and a value."""
        return "=" in written and self._cursor.stands_at(self._value_end)

    def _read_until(self, end: str, *others: str) -> Waiting[tuple[str, bool]]:
        text = yield from self._cursor.take_until(literals_of(end, *others))
        return text, (yield from self._cursor.literal(end))

    def _read_text(self) -> Waiting[str]:
        """Read a value; a mark in it ends it only if something valid follows."""
        marks = (self._value_end, self._key, self._closer)
        pieces: list[str] = []
        while True:
            pieces.append((yield from self._cursor.take_until(literals_of(*marks))))
            mark = yield from self._cursor.next_of(literals_of(*marks))
            if not mark:
                raise NoCall(Reason.BROKEN)
            if mark == self._value_end:
                self._cursor.advance(len(mark))
                mark += yield from self._cursor.take(_ESCAPED_SPACE if self._is_escaped else _SPACE)
                if (yield from self._fits()):
                    return self._accept("".join(pieces))
                self._has_inner_mark = True
            elif (yield from self._ends_at(mark)):
                return self._accept_unended("".join(pieces))
            else:
                self._cursor.advance(len(mark))
            pieces.append(mark)

    def _ends_at(self, mark: str) -> Waiting[bool]:
        """Return whether the value ends at the next mark, its own being missing."""
        if mark == self._key:
            return (yield from self._is_key(is_sure=False))
        return not (yield from is_surplus(self._cursor, self._value, self._value_end))

    def _accept(self, text: str) -> str:
        """Return a value, unless a call ended in it and something else may have begun."""
        _, mark, rest = text.partition(self._closer)
        if mark and (holds_mark(rest) or any(end in rest for end in THOUGHT_ENDS)):
            raise NoCall(Reason.BROKEN)
        return without_doubled_end(text, self._value_end)

    def _accept_unended(self, text: str) -> str:
        """Return a value without closing mark, unless it runs into another call."""
        self._lacks_mark = True
        if holds_mark(text):
            raise NoCall(Reason.BROKEN)
        return text.removesuffix("\n")

    def _fits(self) -> Waiting[bool]:
        if (yield from self._cursor.is_next(self._closer)):
            return not (yield from is_pair_text(self._cursor, self._value_end, self._closer))
        if (yield from self._cursor.is_next(self._key)):
            return (yield from self._is_key(is_sure=True))
        if (yield from self._cursor.is_next(self._opening)):
            return True
        is_pair = yield from self._sees(_unopened_pair_of(self._tags))
        return is_pair or (yield from ends_here(self._cursor))

    def _is_key(self, *, is_sure: bool) -> Waiting[bool]:
        """Return whether a key and its value begin here, not just text that mentions the mark."""
        return (yield from self._sees(_pair_of(self._tags, is_sure=is_sure)))

    def _sees(self, pattern: re.Pattern[str]) -> Waiting[bool]:
        """Return whether the next text begins with a short pattern."""
        while True:
            text, is_all = self._cursor.look_ahead(_LOOKAHEAD)
            is_next = pattern.match(text) is not None
            if is_next or is_all:
                return is_next
            yield


_SUFFIX = re.compile(r"[\w.-]+")


def _read(cursor: Cursor, opening: str) -> Reading:
    """Read a name, then alternating keys and values in tags, or one JSON object."""
    if opening == _SPARK:
        return read_row(
            cursor,
            lambda cursor: _PairsReader(cursor, Tags(""), _SPARK).read(),
            lambda cursor: cursor.literal(_SPARK),
        )
    return _PairsReader(cursor, Tags(opening[1:].removesuffix("tool_call>"))).read()


def read_pairs(cursor: Cursor, name: str) -> Reading:
    """Read the pairs of a call to `name` whose opening mark is missing."""
    return _PairsReader(cursor, Tags("")).read_arguments(name)


def _read_wrapped(cursor: Cursor, opening: str) -> Reading:
    """Read calls in one wrapper; all tags have its suffix."""
    tags = yield from _read_tags(cursor)
    yield from cursor.whitespace()
    if not (yield from cursor.literal(tags.pair("tool_call")[0])):
        raise NoCall
    found = yield from _read_calls(cursor, tags)
    is_closed = yield from cursor.literal(tags.pair("tool_calls")[1])
    return Calls(found.calls, is_closed)


def _read_unwrapped(cursor: Cursor, opening: str) -> Reading:
    return (yield from _read_calls(cursor, (yield from _read_tags(cursor))))


def _read_calls(cursor: Cursor, tags: Tags) -> Reading:
    return read_row(
        cursor,
        lambda cursor: _PairsReader(cursor, tags).read(),
        lambda cursor: cursor.literal(tags.pair("tool_call")[0]),
    )


def _read_tags(cursor: Cursor) -> Waiting[Tags]:
    """Read the suffix of the first tag; what follows decides whether it was one."""
    suffix = yield from cursor.take(_SUFFIX)
    yield from cursor.literal(">")
    return Tags("", f":{suffix}")


ARGUMENT_PAIRS = Syntax(
    "argument_pairs", (*(f"<{prefix}tool_call>" for prefix in _PREFIXES), _SPARK), _read
)
SUFFIXED_PAIRS = Syntax("suffixed_pairs", ("<tool_calls:",), _read_wrapped)
SUFFIXED_PAIRS_AT_START = Syntax(
    "suffixed_pairs_at_start", ("<tool_call:",), _read_unwrapped, "reply_start"
)
