"""`<|tools_prefix|>[{"NAME": {...}}]<|tools_suffix|>`, as Apertus writes it."""

from proxy.conversation.json import JsonValue
from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls, NotACall, Place, Reading, Reason
from proxy.guardrails.rescue.syntaxes.envelope import calls_in
from proxy.guardrails.rescue.values.cursor import Cursor
from proxy.guardrails.rescue.values.reader import Style, Unreadable, read_value

_CLOSER = "<|tools_suffix|>"


class Apertus:
    """A list of objects whose one key is the name of the tool; other envelopes count as well."""

    name = "apertus"
    openings = ("<|tools_prefix|>",)
    place = Place.ANYWHERE
    is_marked = True

    def read(self, cursor: Cursor, opening: str) -> Reading:
        """Read the list and its closing mark."""
        value = yield from read_value(cursor, None, Style((_CLOSER,)))
        if isinstance(value, Unreadable):
            return NotACall(Reason.BROKEN)
        calls = _calls_in(value.value) or calls_in(value.value, is_marked=True)
        if not calls:
            return NotACall(Reason.NOT_A_CALL)
        yield from cursor.whitespace()
        is_closed = yield from cursor.literal(_CLOSER)
        return Calls(calls, value.is_closed and is_closed)


def _calls_in(value: JsonValue) -> tuple[WrittenCall, ...]:
    items = value if isinstance(value, list) else [value]
    calls: list[WrittenCall] = []
    for item in items:
        if not isinstance(item, dict) or len(item) != 1:
            return ()
        calls += (WrittenCall(name, arguments) for name, arguments in item.items())
    return tuple(calls)
