import sys

import pytest

from proxy.api.observing import observing
from proxy.errors import InvalidConfiguration
from proxy.observability.logs import RequestLog
from proxy.observability.metrics import Metrics
from proxy.observability.tracing import Tracing
from proxy.settings import Settings, load_settings

TRACED = {"tracing": {"url": "http://127.0.0.1:4318"}}


def test_requests_are_logged_and_counted_unless_the_operator_wants_less() -> None:
    with observing(Settings()) as observers:
        assert [type(sink) for sink in observers.sinks] == [RequestLog]
        assert isinstance(observers.meter, Metrics)
        assert not observers.traces
    with observing(load_settings(None, {"metrics": {"enabled": False}})) as observers:
        assert observers.meter is None


def test_spans_are_written_for_whoever_names_a_collector() -> None:
    with observing(load_settings(None, TRACED)) as observers:
        assert [type(sink) for sink in observers.sinks] == [RequestLog, Tracing]
        assert observers.traces


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "proxy.observability.tracing", None)
    with (
        pytest.raises(InvalidConfiguration, match=r"temper-proxy\[otel\]"),
        observing(load_settings(None, TRACED)),
    ):
        pass
