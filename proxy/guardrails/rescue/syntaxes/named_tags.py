"""`<tool_call><name>NAME</name><arguments>{...}</arguments></tool_call>`: the envelope as tags."""

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls, NotACall, Place, Reading, Reason
from proxy.guardrails.rescue.values.cursor import Cursor, Waiting
from proxy.guardrails.rescue.values.literals import Literals, literals_of
from proxy.guardrails.rescue.values.reader import Style, Unreadable, read_value

_WRAPPERS = ("tool_call", "tool_use", "function_call", "tool", "invoke")
_NAMES = Literals(f"<{tag}>" for tag in ("name", "tool_name", "function_name", "tool"))
_ARGUMENTS = Literals(
    f"<{tag}>" for tag in ("arguments", "parameters", "args", "input", "params", "tool_input")
)
_LONGEST_NAME = 200


class NamedTags:
    """A name in a tag, and a JSON object of arguments in another."""

    name = "named_tags"
    openings = tuple(f"<{tag}>" for tag in _WRAPPERS)
    place = Place.ANYWHERE
    is_marked = True

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read one call and its closing tag."""
        yield from cursor.whitespace()
        mark = yield from cursor.one_of(_NAMES)
        name = (yield from _text(cursor, mark)).strip() if mark else ""
        if not name or len(name) > _LONGEST_NAME:
            return NotACall(Reason.NOT_A_CALL)
        yield from cursor.whitespace()
        arguments: JsonObject | None = {}
        if mark := (yield from cursor.one_of(_ARGUMENTS)):
            arguments = yield from _object(cursor, name, mark)
        if arguments is None:
            return NotACall(Reason.BROKEN)
        yield from cursor.whitespace()
        is_closed = yield from cursor.literal(_end_of(opening))
        if not is_closed and not mark:
            return NotACall(Reason.NOT_A_CALL)
        return Calls((WrittenCall(name, arguments),), is_closed)


def _text(cursor: Cursor, mark: str) -> Waiting[str]:
    """Read a short text up to its closing tag."""
    text = yield from cursor.take_until(literals_of("<"))
    return text if (yield from cursor.literal(_end_of(mark))) else ""


def _object(cursor: Cursor, name: str, mark: str) -> Waiting[JsonObject | None]:
    """Read the object of arguments and its closing tag."""
    end = _end_of(mark)
    yield from cursor.whitespace()
    value: JsonValue = {}
    if not (yield from cursor.is_next(end)):
        cursor.start_arguments(name)
        read = yield from read_value(cursor, None, Style((end,)))
        cursor.end_arguments()
        value = None if isinstance(read, Unreadable) else read.value
        yield from cursor.whitespace()
    is_closed = yield from cursor.literal(end)
    return value if is_closed and isinstance(value, dict) else None


def _end_of(mark: str) -> str:
    return f"</{mark[1:]}"
