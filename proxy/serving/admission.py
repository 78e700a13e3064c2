"""Limits concurrent requests to the backend's slots; clients with different keys take turns.

    waiting (oldest first)    a1 a2 a3 b1 c1
    served                    a1 b1 c1 a2 a3

An engine with more requests than slots serves them in order of arrival, so one client with fifty
requests would block all others. The queue is bounded, so that excess requests fail immediately.
When the queue is full, a request of a key with few waiting requests displaces the newest request of
the key with the most waiting requests, so that no key can occupy the whole queue.
"""

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

import msgspec

from proxy.errors import QueueFull
from proxy.shares import find_displaced

MOST_WAITING = 256  # default of `server.max_waiting`
# A lower priority is served next after it was passed over this many times in a row.
MOST_PASSED_OVER = 8


class Priority(Enum):
    """The priority of a request; the order of the members is from high to low."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Ticket(msgspec.Struct, eq=False):
    """A request in the queue.

    `is_served` means that the request has a slot. `is_displaced` means that it was removed from a
    full queue in favor of another key.
    """

    key: str
    priority: Priority = Priority.NORMAL
    number: int = 0
    is_served: bool = False
    is_displaced: bool = False


# key -> its waiting tickets, the oldest first; the first key is served next
_Keys: TypeAlias = OrderedDict[str, deque[Ticket]]


class WaitingQueue:
    """The order of requests, without clocks or tasks.

    At most `capacity` tickets are served at once; None means no limit. A ticket is refused
    if `most_waiting` tickets of its priority or a higher priority already wait. Of the waiting
    tickets, the highest priority is served first. A priority that was passed over
    `MOST_PASSED_OVER` times in a row is served next, so that no request starves. Within a priority,
    keys take turns. The tickets of one key are served in order of arrival.
    """

    def __init__(self, most_waiting: int = MOST_WAITING, capacity: int | None = None) -> None:
        self._most_waiting = most_waiting
        self._capacity = capacity
        self.served = 0
        self._waiting: dict[Priority, _Keys] = {priority: OrderedDict() for priority in Priority}
        self._passed_over = dict.fromkeys(Priority, 0)

    @property
    def waiting(self) -> int:
        return self._count_waiting(Priority.LOW)

    def join(
        self, key: str, priority: Priority = Priority.NORMAL, number: int = 0
    ) -> Ticket | None:
        """Add a ticket at the end of its key's queue; None if the queue is full."""
        ticket = Ticket(key, priority, number)
        if self._has_slot and not self._has_waiting:
            self._serve(ticket)
        elif self._count_waiting(priority) >= self._most_waiting:
            return None
        else:
            self._append(ticket)
        return ticket

    def displace(
        self, key: str, priority: Priority = Priority.NORMAL, number: int = 0
    ) -> tuple[Ticket, Ticket] | None:
        """Add a ticket to a full queue; return the new ticket and the displaced ticket.

        The newest ticket of the key with the most waiting tickets is displaced. Returns None if
        `key`, with the new ticket, would have at least as many waiting tickets as every other key.
        A ticket of priority LOW displaces only tickets of priority LOW.
        """
        lowest = [*Priority].index(priority)
        displaceable = [priority] if priority is Priority.LOW else [*Priority][: lowest + 1]
        waiting = [
            ticket
            for level in displaceable
            for tickets in self._waiting[level].values()
            for ticket in tickets
        ]
        index = find_displaced([ticket.key for ticket in waiting], key)
        if index is None:
            return None
        displaced = waiting[index]
        self._remove(displaced)
        displaced.is_displaced = True
        return self._append(Ticket(key, priority, number)), displaced

    def leave(self, ticket: Ticket) -> list[Ticket]:
        """Remove a served or waiting ticket; return the tickets that get a slot as a result."""
        if ticket.is_served:
            self.served -= 1
        elif not ticket.is_displaced:
            self._remove(ticket)
        return self._advance()

    def resize(self, capacity: int | None) -> list[Ticket]:
        """Change the number of slots; return the tickets that get a slot as a result."""
        self._capacity = capacity
        return self._advance()

    def upcoming(self) -> Iterator[Ticket]:
        """Yield the waiting tickets in the order in which they will be served.

        A ticket that joins the queue later may change this order.
        """
        # the simulated serving below empties this copy of the queue
        waiting = {
            priority: OrderedDict((key, deque(tickets)) for key, tickets in keys.items())
            for priority, keys in self._waiting.items()
        }
        passed_over = dict(self._passed_over)
        while any(waiting.values()):
            yield _pop_next(waiting, passed_over)

    @property
    def _has_slot(self) -> bool:
        return self._capacity is None or self.served < self._capacity

    @property
    def _has_waiting(self) -> bool:
        return any(self._waiting.values())

    def _advance(self) -> list[Ticket]:
        served: list[Ticket] = []
        while self._has_slot and self._has_waiting:
            served.append(_pop_next(self._waiting, self._passed_over))
            self._serve(served[-1])
        return served

    def _append(self, ticket: Ticket) -> Ticket:
        self._waiting[ticket.priority].setdefault(ticket.key, deque()).append(ticket)
        return ticket

    def _remove(self, ticket: Ticket) -> None:
        tickets = self._waiting[ticket.priority][ticket.key]
        tickets.remove(ticket)
        if not tickets:
            del self._waiting[ticket.priority][ticket.key]

    def _count_waiting(self, priority: Priority) -> int:
        """Count the waiting tickets of the same or a higher priority."""
        counts = [sum(map(len, keys.values())) for keys in self._waiting.values()]
        return sum(counts[: [*Priority].index(priority) + 1])

    def _serve(self, ticket: Ticket) -> None:
        ticket.is_served = True
        self.served += 1


def _pop_next(waiting: Mapping[Priority, _Keys], passed_over: dict[Priority, int]) -> Ticket:
    """Pop the next ticket; move the rest of its key's queue to the back (round robin)."""
    keys = waiting[_next_priority(waiting, passed_over)]
    key, tickets = keys.popitem(last=False)
    ticket = tickets.popleft()
    if tickets:
        keys[key] = tickets
    return ticket


def _next_priority(waiting: Mapping[Priority, _Keys], passed_over: dict[Priority, int]) -> Priority:
    """Choose the priority to serve; count how often each other priority was passed over."""
    present = [priority for priority, keys in waiting.items() if keys]
    # `present[0]`, the highest waiting priority, is chosen unless another priority starves
    starving = [level for level in present[1:] if passed_over[level] >= MOST_PASSED_OVER]
    chosen = starving[-1] if starving else present[0]
    for priority in Priority:
        is_passed_over = priority in present[1:] and priority is not chosen
        passed_over[priority] = passed_over[priority] + 1 if is_passed_over else 0
    return chosen


@dataclass(slots=True)
class Admission:
    """Admits requests to the slots of a backend; other requests wait."""

    queue: WaitingQueue = field(default_factory=WaitingQueue)
    clock: Callable[[], float] = time.monotonic
    _events: dict[Ticket, asyncio.Event] = field(default_factory=dict)
    _usual_seconds: float = 1.0

    def resize(self, capacity: int | None) -> None:
        self._wake(self.queue.resize(capacity))

    def slot(self, key: str, priority: Priority = Priority.NORMAL, number: int = 0) -> "Slot":
        """Wait for a slot, and release it after the block; raises `QueueFull`."""
        return Slot(self, key, priority, number)

    async def enter(
        self, key: str, priority: Priority = Priority.NORMAL, number: int = 0
    ) -> Ticket:
        """Wait for a slot; raises `QueueFull`."""
        ticket = self.queue.join(key, priority, number)
        if ticket is None:
            tickets = self.queue.displace(key, priority, number)
            if tickets is None:
                raise self._full()
            ticket, displaced = tickets
            self._wake([displaced])
        if not ticket.is_served:
            event = self._events[ticket] = asyncio.Event()
            try:
                await event.wait()
            except BaseException:
                self.leave(ticket)
                raise
            finally:
                self._events.pop(ticket, None)
        if ticket.is_displaced:
            raise self._full()
        return ticket

    def leave(self, ticket: Ticket, seconds: float | None = None) -> None:
        """Release a slot.

        `seconds` is the duration of a successful request, None after a failure. The Retry-After of
        `QueueFull` is computed from the durations.
        """
        # failures are not counted: they are short, so Retry-After would be too short
        if seconds is not None:
            self._usual_seconds += 0.1 * (seconds - self._usual_seconds)
        self._wake(self.queue.leave(ticket))

    def _full(self) -> QueueFull:
        # the number of requests that each slot must serve in turn before the queue is empty
        requests_per_slot = self.queue.waiting / max(1, self.queue.served)
        seconds = max(1, math.ceil(requests_per_slot * self._usual_seconds))
        return QueueFull(self.queue.waiting, min(60, seconds))

    def _wake(self, tickets: list[Ticket]) -> None:
        for ticket in tickets:
            self._events[ticket].set()


class Slot:
    """Context manager for a slot.

    It is a class, because `@asynccontextmanager` would take more time than the admission itself.
    """

    def __init__(self, admission: Admission, key: str, priority: Priority, number: int) -> None:
        self._admission = admission
        self._key, self._priority, self._number = key, priority, number
        self._ticket: Ticket | None = None
        self._begun = 0.0

    async def __aenter__(self) -> None:
        self._ticket = await self._admission.enter(self._key, self._priority, self._number)
        self._begun = self._admission.clock()

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        assert self._ticket is not None  # noqa: S101 - it was entered
        seconds = self._admission.clock() - self._begun if kind is None else None
        self._admission.leave(self._ticket, seconds)
