"""A history in units that are kept or given up as a whole: a call is never torn from its result.

A unit is what an assistant said together with the results of its calls, or a message of a user.
"""

from collections.abc import Iterator

import msgspec

from proxy.conversation import roles
from proxy.conversation.messages import Message, Messages
from proxy.conversation.tools import ToolCall


class Result(msgspec.Struct, frozen=True):
    """The result of a call, at its place in the history."""

    place: int
    call: ToolCall
    message: Message


class Unit(msgspec.Struct):
    """Messages that belong together, by their places; `results` answer the first one's calls.

    `number` counts the groups with calls before this one, and `missing` the results still due.
    """

    message: Message
    places: list[int]
    number: int
    missing: int = 0
    results: list[Result] = []

    @property
    def is_group(self) -> bool:
        return bool(self.message.calls)


class Grouping:
    """Sorts messages into units; system messages, the user's first and stray ones are in none."""

    def __init__(self) -> None:
        self.groups = 0
        self._length = 0
        self._has_user = False
        self._waiting: dict[str, list[tuple[Unit, ToolCall]]] = {}

    def add(self, message: Message) -> Unit | None:
        """Take the next message; returns the unit that it completes."""
        place = self._length
        self._length += 1
        if message.role == "tool":
            return self._answer(message, place)
        if message.role == "user" and not self._has_user:
            self._has_user = True
            return None
        if message.role not in roles.TURNS:
            return None
        unit = Unit(message, [place], self.groups, len(message.calls))
        if not message.calls:
            return unit
        self.groups += 1
        for call in message.calls:
            self._waiting[call.id] = []
        for call in message.calls:
            self._waiting[call.id].append((unit, call))
        return None

    def _answer(self, message: Message, place: int) -> Unit | None:
        waiting = self._waiting.get(message.tool_call_id or "")
        if not waiting:
            return None
        unit, call = waiting.pop(0)
        unit.places.append(place)
        unit.results.append(Result(place, call, message))
        unit.missing -= 1
        return None if unit.missing else unit


def units_of(messages: Messages) -> Iterator[Unit]:
    """Give the complete units of a history in the order in which they were completed."""
    grouping = Grouping()
    for message in messages:
        unit = grouping.add(message)
        if unit is not None:
            yield unit
