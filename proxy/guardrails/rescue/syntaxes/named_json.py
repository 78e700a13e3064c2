"""Reads calls that consist of a name and a JSON object of arguments, each after a mark."""

import re

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.formats import Format, end_of
from proxy.guardrails.rescue.rows import FENCE, read_consecutive
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reading, Reason, Syntax
from proxy.guardrails.rescue.syntaxes.envelope import read_arguments
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting, literals_of
from proxy.guardrails.rescue.values.reader import read_value
from proxy.guardrails.rescue.values.scalars import Style

_NAME = re.compile(r"[\w./:\\-]+")
_NUMBER = re.compile(r":\d+$")  # Kimi numbers its calls: `functions.get_weather:0`


def named_json(row: Format) -> Syntax:
    """Return the syntax of a name, marks, a JSON object and closing marks.

        <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{"KEY": "value"}<|call|>

    The `parts` of the row are:

    - `required`: one of these marks must occur between the name and the object. There are two
      exceptions: a mark `before_name` precedes the name, or the opening occurs only in calls
      (`is_sure`)
    - `before_name`: a mark before the name; an id may precede it
    - `next`: the marks that introduce further calls
    - `user`: a message with this name is not a call
    """
    marks = row.parts.get("next")

    def read(cursor: Cursor, opening: str) -> Reading:
        if not marks:
            return (yield from _read(cursor, row))
        return (
            yield from read_consecutive(
                cursor,
                lambda cursor: _read(cursor, row),
                lambda cursor: cursor.one_of(literals_of(*marks)),
            )
        )

    return Syntax.of(row, read)


def _read(cursor: Cursor, row: Format) -> Reading:
    yield from cursor.whitespace()
    if row.has_id:
        yield from cursor.take(_NAME)
    is_sure = row.is_sure
    if (yield from cursor.one_of(literals_of(*row.parts.get("before_name", ())))):
        is_sure = True
        yield from cursor.whitespace()
    name = _NUMBER.sub("", (yield from cursor.take(_NAME)))
    has_mark = yield from _pass_marks(cursor, row)
    if name in ("", *row.parts.get("user", ())) or not (has_mark or is_sure):
        raise NoCall
    if (yield from _pass_closers(cursor, row)):
        return Calls((WrittenCall(name, {}),))
    if not (yield from cursor.is_next("{")):
        raise NoCall
    result = yield from read_arguments(cursor, name, row.ends)
    is_closed = (yield from _pass_closers(cursor, row)) or not row.ends
    return Calls(result.calls, result.closed and is_closed)


def _pass_marks(cursor: Cursor, row: Format) -> Waiting[bool]:
    """Skip the marks after a name; return whether one of the required marks is among them."""
    required = row.parts["required"]
    known = literals_of(*required, *row.parts.get("optional", ()))
    is_any_required = False
    yield from cursor.whitespace()
    while mark := (yield from cursor.one_of(known)):
        is_any_required |= mark in required
        yield from cursor.whitespace()
    return is_any_required


def _pass_closers(cursor: Cursor, row: Format) -> Waiting[bool]:
    """Skip all closing marks; return whether there are any."""
    if not row.ends:
        return False
    yield from cursor.whitespace()
    if (yield from cursor.literal(FENCE)):  # DeepSeek encloses the object in a fence
        yield from cursor.whitespace()
    is_closed = False
    while (yield from cursor.one_of(literals_of(*row.ends))):
        is_closed = True
    return is_closed


_PLAIN_NAME = re.compile(r"[\w.-]+")


def named_line(row: Format) -> Syntax:
    """Return the syntax of consecutive calls, each a line with the name and a line with an object.

    >>>NAME
    {"KEY": "value"}
    """
    mark = row.openings[0].strip()

    def read(cursor: Cursor, opening: str) -> Reading:
        return read_consecutive(cursor, _read_line, lambda cursor: cursor.literal(mark))

    return Syntax.of(row, read)


def _read_line(cursor: Cursor) -> Reading:
    name = yield from cursor.take(_PLAIN_NAME)
    is_line = yield from cursor.literal("\n")
    if not name or not is_line or not (yield from cursor.is_next("{")):
        raise NoCall
    return (yield from read_arguments(cursor, name))


_LONGEST_NAME = 200


def named_tags(row: Format) -> Syntax:
    """Return the syntax of a name in a tag, and a JSON object of arguments in another tag.

    <tool_call><tool_name>NAME</tool_name><arguments>{"KEY": "value"}</arguments></tool_call>
    """
    names, arguments = (literals_of(*row.parts[part]) for part in ("name", "arguments"))

    def read(cursor: Cursor, opening: str) -> Reading:
        yield from cursor.whitespace()
        mark = yield from cursor.one_of(names)
        name = (yield from cursor.take_until(literals_of("<"))).strip() if mark else ""
        has_end = bool(mark) and (yield from cursor.literal(end_of(mark)))
        if not has_end or not 0 < len(name) <= _LONGEST_NAME:
            raise NoCall
        yield from cursor.whitespace()
        members: JsonObject = {}
        if mark := (yield from cursor.one_of(arguments)):
            members = yield from _read_object(cursor, name, end_of(mark))
        yield from cursor.whitespace()
        is_closed = yield from cursor.literal(row.marks[opening])
        if not is_closed and not mark:
            raise NoCall
        return Calls((WrittenCall(name, members),), is_closed)

    return Syntax.of(row, read)


def _read_object(cursor: Cursor, name: str, end: str) -> Waiting[JsonObject]:
    yield from cursor.whitespace()
    value: JsonValue = {}
    if not (yield from cursor.is_next(end)):
        cursor.start_arguments(name)
        value = (yield from read_value(cursor, None, Style((end,)))).value
        cursor.end_arguments()
        yield from cursor.whitespace()
    if not (yield from cursor.literal(end)) or not isinstance(value, dict):
        raise NoCall(Reason.BROKEN)
    return value
