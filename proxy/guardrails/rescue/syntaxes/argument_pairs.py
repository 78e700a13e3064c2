r"""Reads calls with alternating keys and values between marks.

    <tool_call>NAME<arg_key>KEY</arg_key><arg_value>value</arg_value></tool_call>

This is the format of GLM. LongCat, K2-Horizon and others use the same grammar with other tag names.
Hunyuan adds a suffix to all tags, and encloses the calls in a wrapper. Kimi K3 and Solar write
control tokens around keys and values.

Engines and models lose single tags. A value without an opening mark begins directly after its key.
A key without an opening mark directly follows the previous value or the tool name. For example, in
`run_shellcommand</arg_key>` the key `command` follows the name `run_shell`. `unnamed.complete`
separates the name and the key, because it knows the names of the offered tools.
"""

import re
from dataclasses import dataclass, replace
from functools import cache

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.formats import FORMATS, Format, end_of
from proxy.guardrails.rescue.marks import THOUGHT_ENDS, contains_mark, ends_here
from proxy.guardrails.rescue.rows import read_consecutive
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, NoCall, Reading, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.envelope import read_arguments
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting, literals_of
from proxy.guardrails.rescue.values.reader import read_only_value
from proxy.guardrails.rescue.values.scalars import Value
from proxy.guardrails.rescue.values.tag_values import (
    is_pair_text,
    is_surplus_end,
    remove_doubled_end,
    unescape_entities,
)

_NAME = re.compile(r"[^\s<>{}\[\]()\"'`\\]+")
_KEY = r"[^<>]{1,100}"
_ASSIGNED = r"[\w.-]{1,100}="
_NOT_IN_KEY = frozenset('<>{}[]"\n')
_ANY_SPACE = r"(?:\s|\\n)*"
_SPACE = re.compile(r"\s+")
_ESCAPED_SPACE = re.compile(r"[\sn\\]+")
_PAIR_LIMIT = 100
_ESCAPED_LINE = "\\n"
_ESCAPED = "\\_"  # an underscore that is escaped for Markdown, as in `get\_time`
# A mark inside a value is text unless a complete key or value follows it within this number of
# characters.
_LOOKAHEAD = 240
_GEMMA = FORMATS["bare_gemma"].openings  # `call:NAME{` after `<tool_call>` is Gemma's format


@dataclass(frozen=True, slots=True)
class Tags:
    """The names of the tags of one model family, and the prefix and suffix of all its tags."""

    prefix: str = ""
    suffix: str = ""
    tags: tuple[str, ...] = tuple(mark for (mark,) in FORMATS["argument_pairs"].parts.values())

    def pair(self, part: str) -> tuple[str, str]:
        """Return the opening and the closing tag of a part of the call, such as "key"."""
        tag = f"<{self.prefix}{self.tags[_PARTS.index(part)][1:-1]}{self.suffix}>"
        return tag, end_of(tag)


_PARTS = tuple(FORMATS["argument_pairs"].parts)
PAIRS_BEGIN = Tags().pair("key")[0]


@cache
def _pair_of(tags: Tags, *, is_sure: bool) -> re.Pattern[str]:
    """Return a pattern for a key and the opening mark of its value, with or without the key's end.

    With `is_sure`, the end of the previous value is certain. Then the pattern also matches a key
    with its end mark if the opening mark of the value is missing.
    """
    (key, key_end), (value, _), (kind, _) = map(tags.pair, ("key", "value", "type"))
    end = f"(?:{re.escape(key_end)})?{_ANY_SPACE}(?:{re.escape(value)}|{re.escape(kind)})"
    end += f"|{re.escape(key_end)}" * is_sure
    return re.compile(f"{re.escape(key)}{_ANY_SPACE}(?:{_KEY}(?:{end})|{_ASSIGNED})")


@cache
def _unopened_pair_of(tags: Tags) -> re.Pattern[str]:
    """Return a pattern for a pair that lacks the mark before its key."""
    key_end, value = tags.pair("key")[1], tags.pair("value")[0]
    return re.compile(rf"[\w.-]{{1,100}}{re.escape(key_end)}{_ANY_SPACE}{re.escape(value)}")


class _PairsReader:
    """Reads one call after its opening.

    If a reply was escaped twice, a line end between its tags is written as a backslash and an n. In
    this case the values are also escaped, so they are unescaped.
    """

    def __init__(self, cursor: Cursor, tags: Tags, opening: str = "") -> None:
        self._cursor = cursor
        default, self._closer = tags.pair("call")
        self._opening = opening or default
        self._key, self._key_end = tags.pair("key")
        self._value, self._value_end = tags.pair("value")
        self._type, self._type_end = tags.pair("type")
        self._separator = replace(tags, prefix="").pair("separator")[0]
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
        yield from self._skip_space()
        if name and (yield from cursor.literal(self._separator)):
            yield from self._skip_space()
        if name and (yield from cursor.literal(">")):  # an unnecessary bracket after the name
            yield from self._skip_space()
        if name and not name.startswith(_GEMMA) and (yield from cursor.is_next("{")):
            return (yield from self._read_json(name))
        if name:
            name = yield from self._read_unopened(name)
        return (yield from self.read_arguments(name))

    def _read_unopened(self, name: str) -> Waiting[str]:
        """Read the first pair if it lacks `<arg_key>`; return the name of the tool.

        If the name and the key are joined, as in `run_shellcommand</arg_key>`, this text is
        returned, and `unnamed.complete` splits it. A value without a key gets the key "".
        """
        cursor = self._cursor
        key = "" if cursor.starts_with("<") else (yield from cursor.take(_NAME))
        yield from cursor.whitespace()
        has_end = yield from cursor.literal(self._key_end)
        yield from self._skip_space()
        if key and not has_end:
            raise NoCall
        if (yield from cursor.literal(self._value)):
            self._arguments[key] = self._interpret((yield from self._read_text()))
            yield from self._skip_space()
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
            yield from self._skip_space()
        is_closed = bool(name) and (yield from self._cursor.literal(self._closer))
        # A missing mark and a surplus mark together make the end of the value ambiguous.
        if self._lacks_mark and self._has_inner_mark:
            raise NoCall(Reason.BROKEN)
        if not is_closed and not self._arguments:
            raise NoCall
        return Calls((WrittenCall(name, self._arguments),), is_closed)

    def _begins_pair(self) -> Waiting[bool]:
        """Consume the mark before a key. It may be missing, but not before the first key."""
        if (yield from self._cursor.literal(self._key)):
            return True
        return bool(self._arguments) and (
            yield from self._is_pattern_next(_unopened_pair_of(self._tags))
        )

    def _read_json(self, name: str) -> Reading:
        result = yield from read_arguments(self._cursor, name, (self._closer,))
        yield from self._skip_space()
        is_closed = yield from self._cursor.literal(self._closer)
        return Calls(result.calls, result.closed and is_closed)

    def _skip_space(self) -> Waiting[None]:
        yield from self._cursor.whitespace()
        while (yield from self._cursor.literal(_ESCAPED_LINE)):
            self._is_escaped = True
            yield from self._cursor.whitespace()

    def _read_pair(self) -> Waiting[None]:
        key, has_end = yield from self._read_until(self._key_end, self._value, self._value_end)
        key, sign, prefix = key.partition("=") if self._is_assigned(key) else (key, "", "")
        key = key.strip()
        yield from self._skip_space()
        # The type is ignored, because the tool's schema determines the type of the value.
        if (yield from self._cursor.literal(self._type)):
            yield from self._read_until(self._type_end, self._value)
            yield from self._skip_space()
        has_value = sign or (yield from self._cursor.literal(self._value))
        if not key or set(key) & _NOT_IN_KEY or not (has_value or has_end):
            raise NoCall(Reason.BROKEN)
        value = self._interpret(prefix + (yield from self._read_text()))
        if not has_value and (self._value in value or self._lacks_mark):
            raise NoCall(Reason.BROKEN)
        if self._arguments.setdefault(key, value) != value:  # two different values are ambiguous
            raise NoCall(Reason.BROKEN)

    def _interpret(self, text: str) -> str:
        if not self._is_escaped:
            return unescape_entities(text)
        try:
            return str(json.parse(f'"{text}"'))
        except ValueError:
            return text

    def _is_assigned(self, text: str) -> bool:
        """Return whether the text is `KEY=value` instead of a key and a value in tags."""
        return "=" in text and self._cursor.starts_with(self._value_end)

    def _read_until(self, end: str, *others: str) -> Waiting[tuple[str, bool]]:
        text = yield from self._cursor.take_until(literals_of(end, *others))
        return text, (yield from self._cursor.literal(end))

    def _read_text(self) -> Waiting[str]:
        """Read a value; a closing mark ends it only if the text after the mark is valid."""
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
                if (yield from self._ends_value()):
                    return self._accept("".join(pieces))
                self._has_inner_mark = True
            elif (yield from self._ends_at(mark)):
                return self._accept_unclosed("".join(pieces))
            else:
                self._cursor.advance(len(mark))
            pieces.append(mark)

    def _ends_at(self, mark: str) -> Waiting[bool]:
        """Return whether a value without closing mark ends at the next mark."""
        if mark == self._key:
            return (yield from self._is_key(is_sure=False))
        return not (yield from is_surplus_end(self._cursor, self._value, self._value_end))

    def _accept(self, text: str) -> str:
        """Return a value. Raise `NoCall` if it contains the end of a call and then a mark."""
        _, mark, rest = text.partition(self._closer)
        if mark and (contains_mark(rest) or any(end in rest for end in THOUGHT_ENDS)):
            raise NoCall(Reason.BROKEN)
        return remove_doubled_end(text, self._value_end)

    def _accept_unclosed(self, text: str) -> str:
        """Return a value that has no closing mark. Raise `NoCall` if it contains another call."""
        self._lacks_mark = True
        if contains_mark(text):
            raise NoCall(Reason.BROKEN)
        return text.removesuffix("\n")

    def _ends_value(self) -> Waiting[bool]:
        """Return whether the closing mark before the cursor ended the value; if not, it is text."""
        if (yield from self._cursor.is_next(self._closer)):
            return not (yield from is_pair_text(self._cursor, self._value_end, self._closer))
        if (yield from self._cursor.is_next(self._key)):
            return (yield from self._is_key(is_sure=True))
        if (yield from self._cursor.is_next(self._opening)):
            return True
        is_pair = yield from self._is_pattern_next(_unopened_pair_of(self._tags))
        return is_pair or (yield from ends_here(self._cursor))

    def _is_key(self, *, is_sure: bool) -> Waiting[bool]:
        """Return whether a key and its value begin here; otherwise the mark is part of a text."""
        return (yield from self._is_pattern_next(_pair_of(self._tags, is_sure=is_sure)))

    def _is_pattern_next(self, pattern: re.Pattern[str]) -> Waiting[bool]:
        """Return whether the next text begins with a short pattern."""
        while True:
            text, is_all = self._cursor.look_ahead(_LOOKAHEAD)
            is_next = pattern.match(text) is not None
            if is_next or is_all:
                return is_next
            yield


def pairs(row: Format) -> Syntax:
    """Return the syntax of a name followed by keys and values in tags, or by one JSON object.

    If the opening is a control token, such as Spark's `<|tool_call|>`, each call begins with this
    token, and the tags have no prefix.
    """
    tags = tuple(map(row.part, _PARTS))
    tag = row.part("call")[1:]

    def read(cursor: Cursor, opening: str) -> Reading:
        if not opening.endswith(tag):
            return read_consecutive(
                cursor,
                lambda cursor: _PairsReader(cursor, Tags(tags=tags), opening).read(),
                lambda cursor: cursor.literal(opening),
            )
        return _PairsReader(cursor, Tags(opening[1:].removesuffix(tag), tags=tags)).read()

    return Syntax.of(row, read)


def read_pairs(cursor: Cursor, name: str) -> Reading:
    """Read the pairs of a call to `name`, which has been read already."""
    return _PairsReader(cursor, Tags()).read_arguments(name)


_SUFFIX = re.compile(r"[\w.-]+")


def suffixed_pairs(row: Format) -> Syntax:
    """Return the syntax of calls with the same suffix in all tags, perhaps in a wrapper (Hunyuan).

    <tool_call:x1>NAME<arg_key:x1>KEY</arg_key:x1><arg_value:x1>value</arg_value:x1></tool_call:x1>
    """
    wrapper = row.parts.get("wrapper")

    def read(cursor: Cursor, opening: str) -> Reading:
        suffix = f":{(yield from cursor.take(_SUFFIX))}"
        yield from cursor.literal(">")
        tags = Tags("", suffix)
        opening = tags.pair("call")[0]
        if wrapper:
            yield from cursor.whitespace()
            if not (yield from cursor.literal(opening)):
                raise NoCall
        result = yield from read_consecutive(
            cursor,
            lambda cursor: _PairsReader(cursor, tags).read(),
            lambda cursor: cursor.literal(opening),
        )
        if not wrapper:
            return result
        return Calls(
            result.calls, (yield from cursor.literal(f"{end_of(wrapper[0])[:-1]}{suffix}>"))
        )

    return Syntax.of(row, read)


_PLAIN_NAME = re.compile(r"[\w./:\\-]+")
_HEAD = re.compile(r'(?P<name>[^"]+)"(?P<attributes>(?:\s+[\w:-]+="[^"]*")*)\s*')
_NOT_IN_PLAIN_KEY = frozenset("<>\n")
_IS_STRING = 'type="string"'


def key_values(row: Format) -> Syntax:
    """Return the syntax of calls whose name, keys and values are between control tokens.

        <|open|>call tool="NAME"<|sep|><|open|>argument key="KEY"<|sep|>value<|close|>argument ...

    If the mark before the name or key ends with a quote, more attributes may follow the name or
    key.
    """
    (end,), key_mark, value_mark = row.ends, row.part("key"), row.part("value")
    value_end = row.part("end")
    heads = literals_of(value_mark, value_end, end)
    values = literals_of(value_end, key_mark, *row.openings, end)
    has_attributes = key_mark.endswith('"')

    def read(cursor: Cursor, opening: str) -> Reading:
        yield from cursor.whitespace()
        if has_attributes:
            name, _ = _parse_head((yield from cursor.take_until(heads)))
            yield from cursor.literal(value_mark)
        else:
            name = yield from cursor.take(_PLAIN_NAME)
        yield from cursor.whitespace()
        arguments: JsonObject = {}
        while name and (yield from cursor.literal(key_mark)):
            head = yield from cursor.take_until(heads)
            has_value = yield from cursor.literal(value_mark)
            text = yield from cursor.take_until(values)
            has_end = yield from cursor.literal(value_end)
            key, attributes = _parse_head(head) if has_attributes else _plain_key(head)
            is_complete = key and has_value and has_end
            value = _parse_typed(text.lstrip(" \t\r\n") if has_attributes else text, attributes)
            if not is_complete or arguments.setdefault(key, value) != value:
                raise NoCall(Reason.BROKEN)
            yield from cursor.whitespace()
        is_closed = bool(name) and (yield from cursor.literal(end))
        if not is_closed and not arguments:
            raise NoCall
        return Calls((WrittenCall(name, arguments),), is_closed)

    return Syntax.of(row, read)


def _plain_key(text: str) -> tuple[str, str]:
    key = text.strip()
    return (key if _NOT_IN_PLAIN_KEY.isdisjoint(key) else ""), _IS_STRING


def _parse_head(text: str) -> tuple[str, str]:
    """Parse the end of a tag, such as `city" type="string"`, into a name and its attributes.

    The name is "" if the text has another form.
    """
    match = _HEAD.fullmatch(text)
    return (unescape_entities(match["name"]), match["attributes"]) if match else ("", "")


def _parse_typed(text: str, attributes: str) -> JsonValue:
    if _IS_STRING in attributes:
        return text
    match read_only_value(text):
        case Value(value, is_closed=True):
            return value
        case _:
            return text


_WORD = re.compile(r'[^"\n=]+')


def key_value_words(row: Format) -> Syntax:
    """Return the syntax of `key_values` after an engine has dropped all control tokens.

    toolscall tool="NAME"argument key="KEY" type="string"valueargumentcalltools

    This occurred with the control tokens of Kimi K3 (pwilkin/llama.cpp#20). A value ends at
    `argumentargument` or `argumentcall`, because these do not occur in ordinary text.
    """
    call, (end,) = row.part("call"), row.ends

    def read(cursor: Cursor, opening: str) -> Reading:
        calls: list[WrittenCall] = []
        is_call = True
        while is_call and len(calls) <= MOST_CALLS:
            calls.append((yield from _read_words(cursor, row)))
            is_call = yield from cursor.literal(call)
        return Calls(tuple(calls), (yield from cursor.literal(end)))

    return Syntax.of(row, read)


def _read_words(cursor: Cursor, row: Format) -> Waiting[WrittenCall]:
    """Read one call; a value ends at the word before the next argument or the end of the call."""
    argument, value_end, end = map(row.part, ("argument", "value_end", "end"))
    ends = literals_of(value_end + argument, value_end + end)
    # a value that begins with ` type=` is an attribute whose quotation mark is missing
    attribute_names = tuple(mark.removesuffix('"') for mark in row.parts["attributes"])
    name, _ = yield from _read_word_head(cursor, row)
    arguments: JsonObject = {}
    while (yield from cursor.literal(argument)):
        key, attributes = yield from _read_word_head(cursor, row)
        text = yield from cursor.take_until(ends)
        is_broken = key in arguments or text.startswith(attribute_names)
        if is_broken or not (yield from cursor.literal(value_end)):
            raise NoCall(Reason.BROKEN)
        arguments[key] = _parse_typed(text, attributes)
    if not (yield from cursor.literal(end)):
        raise NoCall(Reason.BROKEN)
    return WrittenCall(name, arguments)


def _read_word_head(cursor: Cursor, row: Format) -> Waiting[tuple[str, str]]:
    name = yield from cursor.take(_WORD)
    if not name or not (yield from cursor.literal('"')):
        raise NoCall(Reason.BROKEN)
    attributes = ""
    while mark := (yield from cursor.one_of(literals_of(*row.parts["attributes"]))):
        attributes += mark + (yield from cursor.take(_WORD)) + '"'
        if not (yield from cursor.literal('"')):
            raise NoCall(Reason.BROKEN)
    return name, attributes
