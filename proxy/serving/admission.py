"""Limits concurrent requests to the backend's slots; waiting clients take turns by key.

A backend with more requests than slots serves them in order of arrival, so one client with fifty
requests would block all others. The queue is bounded, so that late requests fail at once. When it
is full, a request of a key with few of them displaces the newest of the key with the most, so that
no key can fill it for the others.
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

MOST_WAITING = 256
MOST_PASSED_OVER = 8


class Priority(Enum):
    """Who is served first, the highest first."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class SlotRequest(msgspec.Struct, eq=False):
    """A request in the line, with a `number` of its own.

    `is_served` says that it is its turn, `is_displaced` that another key has taken its place.
    """

    key: str
    priority: Priority = Priority.NORMAL
    number: int = 0
    is_served: bool = False
    is_displaced: bool = False


_Turns: TypeAlias = OrderedDict[str, deque[SlotRequest]]  # by the key of those who wait


class WaitingQueue:
    """The order of turns, without clocks or tasks.

    At most `capacity` places are served at once (None: all), and at most `most_waiting` of the same
    or a higher priority wait. The highest priority is served first, but one that was passed over
    `MOST_PASSED_OVER` times in a row is next, so that nobody waits for ever. Within a priority
    places of one key are served in order, and keys take turns.
    """

    def __init__(self, most_waiting: int = MOST_WAITING, capacity: int | None = None) -> None:
        self._most_waiting = most_waiting
        self._capacity = capacity
        self.served = 0
        self._lines: dict[Priority, _Turns] = {one: OrderedDict() for one in Priority}
        self._passed_over = dict.fromkeys(Priority, 0)

    @property
    def waiting(self) -> int:
        return self._waiting_before(Priority.LOW)

    def join(
        self, key: str, priority: Priority = Priority.NORMAL, number: int = 0
    ) -> SlotRequest | None:
        """Take a place at the end of the line of `key`; None if the line is full."""
        place = SlotRequest(key, priority, number)
        if self._is_open and not self._is_anyone_waiting:
            self._serve(place)
        elif self._waiting_before(priority) >= self._most_waiting:
            return None
        else:
            self._append(place)
        return place

    def displace(
        self, key: str, priority: Priority = Priority.NORMAL, number: int = 0
    ) -> tuple[SlotRequest, SlotRequest] | None:
        """Take a place in a full line; return it, and the request that has to go.

        That is the newest request of the key with the most that wait. None if `key` would then have
        as many itself. Background work displaces nothing but other background work.
        """
        lowest = [*Priority].index(priority)
        bounded = [priority] if priority is Priority.LOW else [*Priority][: lowest + 1]
        waiting = [one for each in bounded for line in self._lines[each].values() for one in line]
        displaced = find_displaced([one.key for one in waiting], key)
        if displaced is None:
            return None
        newest = waiting[displaced]
        self._remove(newest)
        newest.is_displaced = True
        return self._append(SlotRequest(key, priority, number)), newest

    def leave(self, place: SlotRequest) -> list[SlotRequest]:
        """Give a place back, served or not; return the places whose turn it is now."""
        if place.is_served:
            self.served -= 1
        elif not place.is_displaced:
            self._remove(place)
        return self._advance()

    def resize(self, capacity: int | None) -> list[SlotRequest]:
        """Serve this many at once; return the places whose turn it is now."""
        self._capacity = capacity
        return self._advance()

    def upcoming(self) -> Iterator[SlotRequest]:
        """Yield who waits, in the order in which they are served if nobody else comes."""
        lines = {
            priority: OrderedDict((key, deque(line)) for key, line in turns.items())
            for priority, turns in self._lines.items()
        }
        passed_over = dict(self._passed_over)
        while any(lines.values()):
            yield _take_next(lines, passed_over)

    @property
    def _is_open(self) -> bool:
        return self._capacity is None or self.served < self._capacity

    @property
    def _is_anyone_waiting(self) -> bool:
        return any(self._lines.values())

    def _advance(self) -> list[SlotRequest]:
        called: list[SlotRequest] = []
        while self._is_open and self._is_anyone_waiting:
            called.append(_take_next(self._lines, self._passed_over))
            self._serve(called[-1])
        return called

    def _append(self, place: SlotRequest) -> SlotRequest:
        self._lines[place.priority].setdefault(place.key, deque()).append(place)
        return place

    def _remove(self, place: SlotRequest) -> None:
        line = self._lines[place.priority][place.key]
        line.remove(place)
        if not line:
            del self._lines[place.priority][place.key]

    def _waiting_before(self, priority: Priority) -> int:
        """Count those of the same or a higher priority."""
        counts = [sum(map(len, turns.values())) for turns in self._lines.values()]
        return sum(counts[: [*Priority].index(priority) + 1])

    def _serve(self, place: SlotRequest) -> None:
        place.is_served = True
        self.served += 1


def _take_next(lines: Mapping[Priority, _Turns], passed_over: dict[Priority, int]) -> SlotRequest:
    """Take who is next out of the lines, and have the others of that key wait behind all keys."""
    turns = lines[_next_priority(lines, passed_over)]
    key, line = turns.popitem(last=False)
    place = line.popleft()
    if line:
        turns[key] = line
    return place


def _next_priority(lines: Mapping[Priority, _Turns], passed_over: dict[Priority, int]) -> Priority:
    """Choose which of those who wait are next, and count how often others were passed over."""
    waiting = [priority for priority, turns in lines.items() if turns]
    late = [one for one in waiting[1:] if passed_over[one] >= MOST_PASSED_OVER]
    chosen = late[-1] if late else waiting[0]
    for priority in Priority:
        is_passed_over = priority in waiting[1:] and priority is not chosen
        passed_over[priority] = passed_over[priority] + 1 if is_passed_over else 0
    return chosen


@dataclass(slots=True)
class Admission:
    """Admits requests to the backend, and makes the others wait."""

    line: WaitingQueue = field(default_factory=WaitingQueue)
    clock: Callable[[], float] = time.monotonic
    _turns: dict[SlotRequest, asyncio.Event] = field(default_factory=dict)
    _usual_seconds: float = 1.0

    def resize(self, capacity: int | None) -> None:
        self._call(self.line.resize(capacity))

    def slot(self, key: str, priority: Priority = Priority.NORMAL, number: int = 0) -> "Slot":
        """Wait for a slot and hold it while the block runs; raises `QueueFull`."""
        return Slot(self, key, priority, number)

    async def enter(
        self, key: str, priority: Priority = Priority.NORMAL, number: int = 0
    ) -> SlotRequest:
        """Wait for a slot; raises `QueueFull`."""
        place = self.line.join(key, priority, number)
        if place is None:
            exchange = self.line.displace(key, priority, number)
            if exchange is None:
                raise self._full()
            place, displaced = exchange
            self._call([displaced])
        if not place.is_served:
            turn = self._turns[place] = asyncio.Event()
            try:
                await turn.wait()
            except BaseException:
                self.leave(place)
                raise
            finally:
                self._turns.pop(place, None)
        if place.is_displaced:
            raise self._full()
        return place

    def leave(self, place: SlotRequest, seconds: float | None = None) -> None:
        """Give a slot back, which was held for so many seconds if all went well."""
        if seconds is not None:
            self._usual_seconds += 0.1 * (seconds - self._usual_seconds)
        self._call(self.line.leave(place))

    def _full(self) -> QueueFull:
        rounds = self.line.waiting / max(1, self.line.served)  # until the queue has room again
        seconds = max(1, math.ceil(rounds * self._usual_seconds))
        return QueueFull(self.line.waiting, min(60, seconds))

    def _call(self, places: list[SlotRequest]) -> None:
        for place in places:
            self._turns[place].set()


class Slot:
    """A slot while a block runs; `contextlib` would cost more than the rest of an admission."""

    def __init__(self, admission: Admission, key: str, priority: Priority, number: int) -> None:
        self._admission = admission
        self._key, self._priority, self._number = key, priority, number
        self._place: SlotRequest | None = None
        self._begun = 0.0

    async def __aenter__(self) -> None:
        self._place = await self._admission.enter(self._key, self._priority, self._number)
        self._begun = self._admission.clock()

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        assert self._place is not None  # noqa: S101 - it was entered
        seconds = self._admission.clock() - self._begun if kind is None else None
        self._admission.leave(self._place, seconds)
