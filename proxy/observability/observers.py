"""Everything that observes requests, as one value to pass around."""

from dataclasses import dataclass

from proxy.observability.board import Board
from proxy.observability.logs import RequestLog
from proxy.observability.metrics import Metrics
from proxy.observability.peer_workers import SharedCounts, SiblingBoards
from proxy.observability.record import Load, RequestRecord, Sink
from proxy.observability.recording import Recording


@dataclass(frozen=True, slots=True)
class Observers:
    """Who gets the records; with `traces` requests get ids of their own, which are sent upstream.

    A `recording` gets whole exchanges with bodies; nothing else does. Running requests report their
    turning points to a `board`. One of several workers has `shared` counts, and `siblings` to ask
    for the contents of other boards.
    """

    sinks: tuple[Sink, ...] = (RequestLog(),)
    meter: Metrics | None = None
    traces: bool = False
    recording: Recording | None = None
    board: Board | None = None
    shared: SharedCounts | None = None
    siblings: SiblingBoards | None = None

    def take(self, record: RequestRecord) -> None:
        """Pass on the record of a request that is over."""
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
