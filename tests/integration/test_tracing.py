"""Traces of real exchanges: the client's trace continues in Temper and upstream."""

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from proxy.observability.observers import Observers
from proxy.observability.tracing import Tracing
from tests.fakes.running_proxy import request, temper
from tests.fakes.scripted_backend import Script, refuses
from tests.fakes.sse import calls, says

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = calls("get_weather", '{"city": "Paris"}')


def name_of(span: ReadableSpan) -> str:
    return f"{span.context.span_id:016x}"


async def test_each_attempt_is_the_parent_span_of_its_upstream_request(*, stream: bool) -> None:
    exporter = InMemorySpanExporter()
    tracing = Tracing(exporter)
    observers = Observers((tracing,), traces=True)
    async with temper(says("Prose."), GOOD, observers=observers) as proxy:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "x-temper-text-policy": "respond"}
        await proxy.ask(request(), stream=stream, headers=headers)
        parents = [
            upstream_request.headers["traceparent"]
            for upstream_request in proxy.backend.upstream_requests
        ]
    tracing.close()
    first, second, whole = sorted(
        exporter.get_finished_spans(), key=lambda span: span.kind.name == "SERVER"
    )
    assert parents == [f"00-{TRACE}-{name_of(span)}-01" for span in (first, second)]
    assert whole.parent is not None
    assert f"{whole.parent.span_id:016x}" == PARENT
    assert {f"{span.context.trace_id:032x}" for span in (first, second, whole)} == {TRACE}


async def test_traceparent_is_forwarded_unchanged_without_tracing(*, stream: bool) -> None:
    async with temper(says("Hi.")) as proxy:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        await proxy.ask(request(tools=None), stream=stream, headers=headers)
        assert proxy.backend.upstream_requests[0].headers["traceparent"] == headers["traceparent"]


@pytest.mark.parametrize("traces", [False, True])
async def test_tracestate_is_forwarded_with_the_trace(*, traces: bool, stream: bool) -> None:
    observers = Observers((), traces=traces)
    async with temper(says("Hi."), says("Hi."), observers=observers) as proxy:
        for parent in (f"00-{TRACE}-{PARENT}-01", "nonsense"):
            headers = {"traceparent": parent, "tracestate": "rojo=1,congo=2"}
            await proxy.ask(request(tools=None), stream=stream, headers=headers)
        sound, broken = (
            upstream_request.headers for upstream_request in proxy.backend.upstream_requests
        )
    assert sound["tracestate"] == "rojo=1,congo=2"
    assert "tracestate" not in broken


@pytest.mark.parametrize("headers", [{}, {"traceparent": f"00-{TRACE}-{PARENT}-01"}])
async def test_passthrough_requests_have_spans(headers: dict[str, str]) -> None:
    exporter = InMemorySpanExporter()
    tracing = Tracing(exporter)
    observers = Observers((tracing,), traces=True)
    reply = Script((b"{}",), headers={"content-type": "application/json"})
    async with temper(reply, reply, observers=observers) as proxy:
        for path, member in (("/v1/completions", "prompt"), ("/v1/embeddings", "input")):
            await proxy.client.post(path, json={"model": "m", member: "Hi"}, headers=headers)
        parents = [
            upstream_request.headers["traceparent"]
            for upstream_request in proxy.backend.upstream_requests
        ]
    tracing.close()
    names = [span.name for span in exporter.get_finished_spans()]
    attempts = exporter.get_finished_spans()[::2]
    assert names == [
        "text_completion m",
        "POST /v1/completions",
        "embeddings m",
        "POST /v1/embeddings",
    ]
    assert [header.split("-")[2] for header in parents] == [name_of(span) for span in attempts]
    if headers:
        assert {header.split("-")[1] for header in parents} == {TRACE}


async def test_failed_requests_have_spans(*, stream: bool) -> None:
    exporter = InMemorySpanExporter()
    tracing = Tracing(exporter)
    observers = Observers((tracing,), traces=True)
    async with temper(refuses(500, {"message": "no"}), observers=observers) as proxy:
        await proxy.ask(request(), stream=stream)
    tracing.close()
    spans = exporter.get_finished_spans()
    assert [span.status.is_ok for span in spans] == [False, False]
