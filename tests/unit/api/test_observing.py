import sys
from pathlib import Path

import pytest

from proxy.api.observing import open_observers, secrets_in
from proxy.errors import InvalidConfiguration
from proxy.observability.live_request import LiveRequest
from proxy.observability.logs import RequestLog
from proxy.observability.metrics import Metrics
from proxy.observability.recording import RecordedAnswer
from proxy.observability.tracing import Tracing
from proxy.settings import Settings, load_settings
from tests.fakes.recorded import exchange

TRACED = {"tracing": {"url": "http://127.0.0.1:4318"}}


def test_requests_are_always_logged_but_counted_only_if_metrics_are_enabled() -> None:
    with open_observers(Settings()) as observers:
        assert [type(sink) for sink in observers.sinks] == [RequestLog]
        assert isinstance(observers.meter, Metrics)
        assert not observers.traces
    with open_observers(load_settings(None, {"metrics": {"enabled": False}})) as observers:
        assert observers.meter is None


def test_requests_are_recorded_for_the_dashboard_unless_it_is_disabled() -> None:
    keeping = {"recording": {"keep_bytes": 1_000_000}}
    with open_observers(load_settings(None, keeping)) as observers:
        recording, board = observers.recording, observers.board
        assert recording is not None
        assert recording.kept is not None
        assert board is not None
        recording.write(exchange(), number=1)
        number = board.open(LiveRequest("r"))
        board.close(number, LiveRequest("r").record())
        assert board.rows()[0].has_exchange
    with open_observers(load_settings(None, {"ui": {"enabled": False}})) as observers:
        assert observers.board is None
    with open_observers(Settings()) as observers:
        assert observers.board is not None
        assert observers.recording is None


def test_spans_are_exported_when_a_collector_is_configured() -> None:
    with open_observers(load_settings(None, TRACED)) as observers:
        assert [type(sink) for sink in observers.sinks] == [RequestLog, Tracing]
        assert observers.traces


def test_the_error_for_missing_tracing_names_the_optional_dependencies_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "proxy.observability.tracing", None)
    with (
        pytest.raises(InvalidConfiguration, match=r"temper-proxy\[otel\]"),
        open_observers(load_settings(None, TRACED)),
    ):
        pass


def test_a_recording_is_opened_and_closed_and_redacts_every_secret(tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    settings = load_settings(
        None,
        {
            "recording": {"path": str(path)},
            "server": {"api_key": "canary-server"},
            "backend": {"api_key": "canary-backend", "headers": {"x-team": "canary-header"}},
        },
    )
    with open_observers(settings) as observers:
        assert observers.recording is not None
        secrets = " ".join(secrets_in(settings))
        observers.recording.write(exchange(answer=RecordedAnswer(text=secrets)))
    assert sorted(secrets_in(settings)) == ["canary-backend", "canary-header", "canary-server"]
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") == 1
    assert "canary" not in text
    observers.recording.write(exchange())  # has no effect, because the file is closed
    assert path.read_text(encoding="utf-8") == text
