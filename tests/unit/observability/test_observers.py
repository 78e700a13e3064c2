from dataclasses import dataclass, field

from proxy.observability.logs import RequestLog
from proxy.observability.observers import Observers
from proxy.observability.record import RequestRecord


@dataclass
class CollectingSink:
    """Keeps the reported records."""

    records: list[RequestRecord] = field(default_factory=list)

    def take(self, record: RequestRecord) -> None:
        self.records.append(record)


def test_observers_pass_a_record_to_every_sink() -> None:
    record = RequestRecord(id="r", begun_at=0, seconds=1, status=200)
    sinks = (CollectingSink(), CollectingSink())
    Observers(sinks).take(record)
    assert [sink.records for sink in sinks] == [[record], [record]]


def test_the_only_default_sink_is_the_request_log() -> None:
    observers = Observers()
    assert [type(sink) for sink in observers.sinks] == [RequestLog]
    assert observers.load("default") is None
    assert not observers.traces
