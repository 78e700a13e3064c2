"""Everything that observes requests, as one value to pass around."""

import asyncio
from dataclasses import dataclass, field

from proxy.observability.board import Board
from proxy.observability.logs import RequestLog
from proxy.observability.metrics import Metrics
from proxy.observability.peer_workers import SharedCounts, SiblingBoards
from proxy.observability.record import Load, RequestRecord, Sink
from proxy.observability.recording import Recording

_MOST_HELD = 32
_HELD_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Observers:
    """Who gets the records; with `traces` requests get ids of their own, which are sent upstream.

    A `recording` gets whole exchanges with bodies; nothing else does. Running requests report their
    turning points to a `board`. One of several workers has `shared` counts, and `siblings` to ask
    for the contents of other boards. What `holds` records passes on some at a time.
    """

    sinks: tuple[Sink, ...] = (RequestLog(),)
    meter: Metrics | None = None
    traces: bool = False
    recording: Recording | None = None
    board: Board | None = None
    shared: SharedCounts | None = None
    siblings: SiblingBoards | None = None
    holds: bool = False
    _held: list[RequestRecord] = field(default_factory=list, init=False)

    def take(self, record: RequestRecord) -> None:
        """Pass on the record of a request that is over, soon if it `holds` records."""
        # one at a time, each would drive the code of a request out of the processor's cache
        if self.holds and not self._held:
            asyncio.get_running_loop().call_later(_HELD_SECONDS, self.flush)
        self._held.append(record)
        if not self.holds or len(self._held) == _MOST_HELD:
            self.flush()

    def flush(self) -> None:
        """Pass on what is held."""
        held = self._held.copy()
        self._held.clear()
        for record in held:
            for sink in self.sinks:
                sink.take(record)
            if self.meter is not None:
                self.meter.take(record)

    def count_unstored(self, reason: str) -> None:
        if self.meter is not None:
            self.meter.count_unstored(reason)

    def report_state(self, server: str, *, is_up: bool) -> None:
        if self.meter is not None:
            self.meter.report_state(server, is_up=is_up)

    def count_state_error(self, operation: str) -> None:
        if self.meter is not None:
            self.meter.count_state_error(operation)

    def load(self, service: str) -> Load | None:
        return self.meter.load(service) if self.meter is not None else None
