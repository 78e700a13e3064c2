"""All observers of requests, as one value to pass around."""

import asyncio
from dataclasses import dataclass, field

from proxy.observability.board import Board
from proxy.observability.logs import RequestLog
from proxy.observability.metrics import Metrics
from proxy.observability.peer_workers import SharedCounts, SiblingBoards
from proxy.observability.record import Load, RequestRecord, Sink
from proxy.observability.recording import Recording

_MOST_HELD = 32  # requests
_HELD_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Observers:
    """The receivers of records; with `traces`, requests get span ids, which are sent upstream.

    Only a `recording` receives bodies. Running requests report their stages to a `board`. One of
    several workers has `shared` counts, and `siblings`, which give access to the other boards. With
    `holds`, records are passed on in groups.
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
        """Pass on the record of a finished request, with `holds` within 50 ms."""
        # passed on singly, each record would evict the code of requests from the processor's cache
        if self.holds and not self._held:
            asyncio.get_running_loop().call_later(_HELD_SECONDS, self.flush)
        self._held.append(record)
        if not self.holds or len(self._held) == _MOST_HELD:
            self.flush()

    def flush(self) -> None:
        """Pass on the held records."""
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
