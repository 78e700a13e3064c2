"""All who want to know what happens to requests, as one thing to hand around."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from proxy.observability.board import Board
from proxy.observability.logs import RequestLog
from proxy.observability.peer_workers import SharedCounts, SiblingBoards
from proxy.observability.record import Load, RequestRecord, Sink
from proxy.observability.recording import Recording


class Meter(Sink, Protocol):
    """A sink that counts, follows the load, and shows what it has."""

    def follow(self, services: Iterable[str]) -> None:
        """Take these names for services; any other is not told apart."""

    def load(self, service: str) -> Load:
        """Return what follows the load of a service."""

    def report_backend(self, service: str, *, is_up: bool, restarts: int) -> None:
        """Note whether a service's backend would answer now, and how often it was restarted."""

    def report_tool_servers(self, are_up: Mapping[str, bool]) -> None:
        """Note which tool servers there are now, and whether each is ready."""

    def count_unstored(self, reason: str) -> None:
        """Count a response that could not be stored."""

    def report_state(self, server: str, *, is_up: bool) -> None:
        """Note whether the store that replicas share can be read and written."""

    def count_state_error(self, operation: str) -> None:
        """Count an operation that the store did not carry out."""

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in a format that `accept` names, and its content type."""


@dataclass(frozen=True, slots=True)
class Observers:
    """Who is told what; with `traces` requests get ids of their own that travel upstream.

    A `recording` gets whole exchanges, bodies included; nobody else does. Living requests tell a
    `board` of their turning points. One of several workers has `shared` counts, and
    `siblings` to ask for what their boards have.
    """

    sinks: tuple[Sink, ...] = (RequestLog(),)
    meter: Meter | None = None
    traces: bool = False
    recording: Recording | None = None
    board: Board | None = None
    shared: SharedCounts | None = None
    siblings: SiblingBoards | None = None

    def take(self, record: RequestRecord) -> None:
        """Hand the record of a request that is over to everybody."""
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
