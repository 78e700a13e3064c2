"""All receivers of request records in one value."""

from dataclasses import dataclass

from proxy.observability.board import Board
from proxy.observability.logs import RequestLog
from proxy.observability.metrics import Metrics
from proxy.observability.peer_workers import SharedCounts, SiblingBoards
from proxy.observability.record import Load, RequestRecord, Sink
from proxy.observability.recording import Recording


@dataclass(frozen=True, slots=True)
class Observers:
    """The receivers of request records, and the settings for them.

    With `traces`, requests get span ids, which are sent upstream. Only `recording` receives bodies.
    `board` shows the stages of running requests. If there are several workers, `shared` has the
    counts of the other workers, and `siblings` their boards.
    """

    sinks: tuple[Sink, ...] = (RequestLog(),)
    meter: Metrics | None = None
    traces: bool = False
    recording: Recording | None = None
    board: Board | None = None
    shared: SharedCounts | None = None
    siblings: SiblingBoards | None = None

    def take(self, record: RequestRecord) -> None:
        """Pass the record of a finished request to every receiver."""
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
