"""Groups a history into units; compaction removes only whole units.

A unit is a message of the assistant with the results of its calls, or a message of the user. So a
call is never sent without its result.
"""

from collections.abc import Iterator

import msgspec

from proxy.conversation import roles
from proxy.conversation.messages import Message, Messages
from proxy.conversation.tools import ToolCall


class Result(msgspec.Struct, frozen=True):
    """The result of a call, with the index of its message in the history."""

    index: int
    call: ToolCall
    message: Message


class Unit(msgspec.Struct):
    """Messages that belong together, by their `indexes` in the history.

    `results` are the results of the calls of `message`; `missing` is the number of outstanding
    results. `number` is the number of earlier units with calls.
    """

    message: Message
    indexes: list[int]
    number: int
    missing: int = 0
    results: list[Result] = []

    @property
    def is_group(self) -> bool:
        return bool(self.message.calls)


class Grouping:
    """Groups messages into units.

    System messages, the first message of the user and results without a call are in no unit.
    """

    def __init__(self) -> None:
        self.groups = 0
        self._length = 0
        self._has_user = False
        self._waiting: dict[str, list[tuple[Unit, ToolCall]]] = {}

    def add(self, message: Message) -> Unit | None:
        """Add the next message; return the unit that it completes, if any."""
        index = self._length
        self._length += 1
        if message.role == "tool":
            return self._add_result(message, index)
        if message.role == "user" and not self._has_user:
            self._has_user = True
            return None
        if message.role not in roles.TURNS:
            return None
        unit = Unit(message, [index], self.groups, len(message.calls))
        if not message.calls:
            return unit
        self.groups += 1
        # If a later message uses an id again, later results with this id belong to its calls, in
        # order.
        for call in message.calls:
            self._waiting[call.id] = []
        for call in message.calls:
            self._waiting[call.id].append((unit, call))
        return None

    def _add_result(self, message: Message, index: int) -> Unit | None:
        waiting = self._waiting.get(message.tool_call_id or "")
        if not waiting:
            return None
        unit, call = waiting.pop(0)
        unit.indexes.append(index)
        unit.results.append(Result(index, call, message))
        unit.missing -= 1
        return None if unit.missing else unit


def units_of(messages: Messages) -> Iterator[Unit]:
    """Yield the complete units of a history in the order in which they were completed."""
    grouping = Grouping()
    for message in messages:
        unit = grouping.add(message)
        if unit is not None:
            yield unit
