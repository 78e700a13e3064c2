from dataclasses import dataclass, field

from proxy.observability.logs import RequestLog
from proxy.observability.observers import Observers
from proxy.observability.record import RequestRecord


@dataclass
class Kept:
    """Keeps the reported records."""

    records: list[RequestRecord] = field(default_factory=list)

    def take(self, record: RequestRecord) -> None:
        self.records.append(record)


def test_every_observer_is_notified_of_a_request() -> None:
    record = RequestRecord(id="r", begun_at=0, seconds=1, status=200)
    sinks = (Kept(), Kept())
    Observers(sinks).take(record)
    assert [sink.records for sink in sinks] == [[record], [record]]


def test_by_default_there_are_only_log_lines() -> None:
    observers = Observers()
    assert [type(sink) for sink in observers.sinks] == [RequestLog]
    assert observers.load("default") is None
    assert not observers.traces
