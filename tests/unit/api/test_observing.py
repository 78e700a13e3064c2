from proxy.api.observing import observers_of
from proxy.observability.logs import RequestLog
from proxy.observability.metrics import Metrics
from proxy.settings import Settings, load_settings


def test_requests_are_logged_and_counted_unless_the_operator_wants_less() -> None:
    observers = observers_of(Settings())
    assert [type(sink) for sink in observers.sinks] == [RequestLog]
    assert isinstance(observers.meter, Metrics)
    assert observers_of(load_settings(None, {"metrics": {"enabled": False}})).meter is None
