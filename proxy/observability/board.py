"""The board: running requests, the latest records, and their totals, for the dashboard.

Theory of operation: each change of a request increments a counter, whose value is stored with the
request as the number of the change. A page sends the number of the latest change that it has, and
receives every row that changed later. Rows are created only when a page requests them. The board
removes the oldest finished requests, and stores the highest change number of the removed requests.
A page with an older number must reload. The board does no I/O.

    page -> since=41        board -> number=43, rows of the changes 42 and 43
    page -> since=7         board -> number=43, is_lost=true (change 9 was removed)
"""

import secrets
import time
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Protocol

import msgspec

from proxy.facts import Asked, Compacted
from proxy.observability.history import History
from proxy.observability.record import RequestRecord, RequestStage
from proxy.observability.rows import Row, ToolCalls, row_of

MOST_ROWS = 500  # finished requests that a board stores
_FACTS_WITHOUT_TEXT = frozenset((Asked, Compacted))  # they contain no text of a client or a model
# A larger record is converted at once into its row, whose texts are cut.
_LONGEST_TEXT = 64  # characters
_MOST_FACTS = 64  # facts of a record that is stored unchanged


class LiveSource(Protocol):
    """A running request, as the board uses it."""

    def snapshot(self) -> tuple[RequestRecord, RequestStage, float | None]:
        """Return the record so far, the stage, and the share of the prompt read (0 to 1)."""

    def cancel(self) -> bool:
        """End the request as if its client had disconnected; return False if impossible."""


class _BoardEntry(msgspec.Struct):
    """One request: it has a `source` while it runs, then a `record`, and a `row` once shown."""

    source: LiveSource | None
    stage: RequestStage = RequestStage.RECEIVING
    record: RequestRecord | None = None
    row: Row | None = None
    changed: int = 0


class Changes(msgspec.Struct, frozen=True):
    """The rows that changed up to the change `number`; if `is_lost`, the page must reload all."""

    number: int
    rows: tuple[Row, ...]
    is_lost: bool = False


def steady_clock() -> Callable[[], float]:
    """Return a clock of Unix times that never jumps when the system clock is set."""
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()


class Board:
    """Stores `most` finished requests and all running requests; `clock` returns Unix times."""

    def __init__(
        self,
        most: int = MOST_ROWS,
        *,
        clock: Callable[[], float] | None = None,
        has_exchange: Callable[[int], bool] = lambda _number: False,
    ) -> None:
        # part of each row's name, because row numbers are not unique: each process starts at 1
        self.instance = secrets.token_hex(3)
        self.clock = clock or steady_clock()
        self.started = self.clock()
        self.number = 0
        self._most = most
        self._has_exchange = has_exchange
        self._entries: dict[int, _BoardEntry] = {}
        self._finished: deque[int] = deque()
        self._latest_removed_change = 0
        self._last_number = self._running = self._waiting = 0
        self.history = History()
        self.tool_calls = ToolCalls()

    def open(self, source: LiveSource) -> int:
        """Add a new request and return its number."""
        self._last_number += 1
        entry = self._entries[self._last_number] = _BoardEntry(source)
        self._note_change(entry)
        return self._last_number

    def advance(self, number: int, stage: RequestStage) -> None:
        entry = self._entries[number]
        previous = entry.stage
        if previous is not stage:
            entry.stage = stage
            running = stage.is_running - previous.is_running
            self._note_load(running, stage.is_waiting - previous.is_waiting)
        self._note_change(entry)

    def close(self, number: int, record: RequestRecord) -> None:
        entry = self._entries[number]
        entry.source = None
        # most records are small, and most rows are never shown, so the row is created later
        if _is_small(record):
            entry.record = record
        else:
            entry.row = row_of(record, self.name_of(number))
        self._note_load(-entry.stage.is_running, -entry.stage.is_waiting)
        self.history.count(record, self.clock())
        if record.tools:
            self.tool_calls.count(record)
        self._note_change(entry)
        self._finished.append(number)
        if len(self._finished) > self._most:
            self._remove(self._finished.popleft())

    def rows(self, most: int = MOST_ROWS, before: int | None = None) -> tuple[Row, ...]:
        """Return the `most` newest rows with numbers below `before`, newest first."""
        numbers = (n for n in reversed(self._entries) if before is None or n < before)
        return tuple(map(self._row, islice(numbers, most)))

    def latest(self, most: int) -> tuple[Row, ...]:
        """Return the `most` newest rows and the rows of all running requests, newest first."""
        shown = [
            number
            for index, (number, entry) in enumerate(reversed(self._entries.items()))
            if index < most or entry.source is not None
        ]
        return tuple(map(self._row, shown))

    def running_rows(self, most: int | None = None) -> tuple[Row, ...]:
        """Return at most `most` rows of running requests, oldest first."""
        running = (number for number, entry in self._entries.items() if entry.source is not None)
        return tuple(map(self._row, islice(running, most)))

    @property
    def running_count(self) -> int:
        return len(self._entries) - len(self._finished)

    def row(self, number: int) -> Row | None:
        return self._row(number) if number in self._entries else None

    def changes(self, since: int, most: int = MOST_ROWS) -> Changes:
        """Return the rows that changed after the change `since`, in the order of their changes.

        If more than `most` rows changed, or a changed row was removed, `is_lost` is set instead.
        """
        changed = sorted(
            (entry.changed, number)
            for number, entry in self._entries.items()
            if entry.changed > since
        )
        if self._latest_removed_change > since or len(changed) > most:
            return Changes(self.number, (), is_lost=True)
        return Changes(self.number, tuple(self._row(number) for _, number in changed))

    def cancel(self, number: int) -> bool | None:
        """End a running request; None if it is unknown, False if it cannot be ended."""
        entry = self._entries.get(number)
        if entry is None:
            return None
        return entry.source is not None and entry.source.cancel()

    def name_of(self, number: int) -> str:
        """Return the dashboard's name of a request, which is unique among all processes."""
        return f"{self.instance}-{number}"

    def number_of(self, name: str) -> int | None:
        """Parse a request's name; None if it is invalid or from another process."""
        instance, _, number = name.partition("-")
        is_valid = instance == self.instance and number.isascii() and number.isdecimal()
        # Python refuses to parse more than 4300 digits (CVE-2020-10735)
        return int(number) if is_valid and len(number) < 16 else None

    def _note_change(self, entry: _BoardEntry) -> None:
        self.number += 1
        entry.changed = self.number

    def _note_load(self, running: int, waiting: int) -> None:
        if running or waiting:
            self._running += running
            self._waiting += waiting
            self.history.note_load(self._running, self._waiting, self.clock())

    def _remove(self, number: int) -> None:
        change = self._entries.pop(number).changed
        self._latest_removed_change = max(self._latest_removed_change, change)

    def _row(self, number: int) -> Row:
        entry = self._entries[number]
        if entry.record is not None:
            entry.row = row_of(entry.record, self.name_of(number))
            entry.record = None
        if entry.row is not None:
            # not stored in the row, because the exchange may be evicted from memory before the row
            has_exchange = self._has_exchange(number)
            row = entry.row
            return msgspec.structs.replace(row, has_exchange=True) if has_exchange else row
        assert entry.source is not None  # noqa: S101 - a running request has a source
        record, stage, progress = entry.source.snapshot()
        return row_of(record, self.name_of(number), phase=stage.value, progress=progress)


def _is_small(record: RequestRecord) -> bool:
    """Return whether a record has no long text of a client or model, so it is stored unchanged."""
    if record.tools or record.prefix_broken is not None or record.reread is not None:
        return False
    texts = (record.finish_reason or "", record.refusal)
    if max(map(len, texts)) > _LONGEST_TEXT or len(record.facts) > _MOST_FACTS:
        return False
    return _FACTS_WITHOUT_TEXT.issuperset(map(type, record.facts))
