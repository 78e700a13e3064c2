import builtins
import sys
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from proxy.agents.tracing import NoTracing, open_tracing
from proxy.errors import InvalidConfiguration
from proxy.observability.tracing import RunTracing
from temper import Agent
from tests.fakes.agents import WEATHER_CALLED, get_weather, scripted
from tests.fakes.rounds import called, done
from tests.fakes.spoken import says


def test_what_is_not_traced_sends_its_headers_as_they_are() -> None:
    with NoTracing().run("agent", "tiny") as spans:
        with spans.attempt({"a": "b"}, 1, None) as headers:
            assert headers == {"a": "b"}
        spans.tool_started(called(1), 1)
        spans.tool_finished(done(called(1)))
        spans.finish("answered", 1, (1, 1))


def test_without_a_collector_a_program_is_traced_if_it_traces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ExitStack() as opened:
        assert isinstance(open_tracing(None, opened), RunTracing)
        monkeypatch.delitem(sys.modules, "opentelemetry.sdk.trace")
        assert isinstance(open_tracing(None, opened), NoTracing)


def test_a_collector_needs_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: Callable[..., object] = builtins.__import__  # type: ignore[explicit-any]

    def refuse(name: str, *rest: object) -> object:
        if name.startswith("proxy.observability.tracing"):
            raise ImportError(name)
        return imported(name, *rest)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with ExitStack() as opened, pytest.raises(InvalidConfiguration, match=r"temper-proxy\[otel\]"):
        open_tracing("http://127.0.0.1:9", opened)


@pytest.mark.anyio
async def test_a_run_is_traced_with_its_generations_and_its_tools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exporter = InMemorySpanExporter()
    tracing = RunTracing(exporter)
    monkeypatch.setattr("proxy.agents.model.open_tracing", lambda *_: tracing)
    wrong = says("I'll check the weather.")
    async with scripted(wrong, WEATHER_CALLED, says("Fine.")) as (model, backend):
        await Agent(model, [get_weather], name="reader").run("How is Paris?")
    tracing.close()
    spans = sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0)
    told = [(span.name, (span.attributes or {}).get("temper.round")) for span in spans]
    assert told == [
        ("invoke_agent reader", None),
        *[("chat default", 1)] * 2,
        ("execute_tool get_weather", 1),
        ("chat default", 2),
    ]
    assert (spans[2].attributes or {})["temper.attempt.defect"] == "announced"
    assert (spans[0].attributes or {})["temper.stop"] == "answered"
    assert spans[1].context is not None
    sent = backend.questions[0].headers["traceparent"]
    assert f"{spans[1].context.trace_id:032x}-{spans[1].context.span_id:016x}" in sent
