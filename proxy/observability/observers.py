"""All who want to know what happens to requests, as one thing to hand around."""

from collections.abc import Callable
from dataclasses import dataclass

from proxy.observability.logs import RequestLog
from proxy.observability.record import Load, RequestRecord, Sink


def _nobody(_service: str) -> None:
    """Follow no load."""


@dataclass(frozen=True, slots=True)
class Observers:
    """Who is told what; with `traces` requests get ids of their own that travel upstream.

    `load` gives whoever follows the load of a service.
    """

    sinks: tuple[Sink, ...] = (RequestLog(),)
    load: Callable[[str], Load | None] = _nobody
    traces: bool = False

    def take(self, record: RequestRecord) -> None:
        """Hand the record of a request that is over to everybody."""
        for sink in self.sinks:
            sink.take(record)
