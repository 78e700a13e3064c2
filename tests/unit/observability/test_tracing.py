from collections.abc import Sequence
from threading import Event

import pytest
from msgspec.structs import replace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import (
    error_attributes,
    http_attributes,
    network_attributes,
    server_attributes,
)
from opentelemetry.trace import SpanKind, StatusCode

from proxy.errors import BackendUnavailable
from proxy.facts import Coerced, ReplyOutcome
from proxy.observability import tracing
from proxy.observability.record import AttemptRecord, RequestRecord, Tokens, ToolRecord
from proxy.observability.trace_context import TraceContext
from proxy.observability.tracing import (
    ATTEMPT,
    REQUEST,
    TOOL,
    RunSpans,
    RunTracing,
    Tracing,
    exporter_to,
    operation,
)
from proxy.tools.executor import Status
from tests.fakes.rounds import called, done
from tests.timeouts import TIMEOUT_SECONDS

PUBLISHED = {
    value
    for module in (
        gen_ai_attributes,
        error_attributes,
        http_attributes,
        network_attributes,
        server_attributes,
    )
    for name, value in vars(module).items()
    if name.isupper() and isinstance(value, str)
}
CONTENT = ("messages", "instructions", "prompt", "completion", "arguments", "result", "definitions")


def test_every_attribute_is_a_semantic_convention_or_has_the_temper_prefix() -> None:
    names = {*REQUEST, *ATTEMPT, *TOOL}
    prefixes = (
        "temper.",
        "mcp.",
    )  # the semantic conventions list MCP's attributes in a text, not in a table
    assert {name for name in names if not name.startswith(prefixes)} <= PUBLISHED


def test_no_attribute_contains_prompts_or_answers() -> None:
    parts = {part for name in (*REQUEST, *ATTEMPT, *TOOL) for part in name.split(".")}
    assert parts.isdisjoint(CONTENT)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/chat/completions", "chat"),
        ("/chat/completions", "chat"),
        ("/v1/messages", "chat"),
        ("/api/chat", "chat"),
        ("/v1/completions", "text_completion"),
        ("/v1/embeddings", "embeddings"),
        ("/v1/rerank", "rerank"),
        ("/reranking", "rerank"),
        ("/score", "score"),
    ],
)
def test_operations_have_the_names_of_the_semantic_conventions(path: str, name: str) -> None:
    record = RequestRecord(id="r", begun_at=0, seconds=0, status=200, path=path)
    assert operation(record) == name
    published = {value.value for value in gen_ai_attributes.GenAiOperationNameValues}
    assert name in published | {"rerank", "score"}


TRACE = TraceContext(trace_id=0xABC, span_id=0x1, parent_id=0x9)
RECORD = RequestRecord(
    id="r",
    begun_at=1000.0,
    seconds=4.0,
    status=200,
    model="qwen3",
    service="default",
    backend="http://10.0.0.1:8080",
    stream=True,
    queued=0.25,
    first_token=1.5,
    tokens=Tokens(100, 60, 7),
    finish_reason="tool_calls",
    attempts=(
        AttemptRecord("as_asked", 1.0, 1.0, "prose", span_id=0x2),
        AttemptRecord("nudged", 2.0, 1.5, span_id=0x3),
    ),
    facts=(Coerced("f", "/a"),),
    outcome=ReplyOutcome.RETRIED,
    trace=TRACE,
)


@pytest.fixture(autouse=True)
def _without_otel_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    monkeypatch.delenv("OTEL_RESOURCE_ATTRIBUTES", raising=False)


def spans_of(*records: RequestRecord) -> list[ReadableSpan]:
    """Return the spans of some records, ordered by their beginnings."""
    exporter = InMemorySpanExporter()
    sink = Tracing(exporter)
    for record in records:
        sink.take(record)
    sink.close()
    return sorted(exporter.get_finished_spans(), key=lambda span: span.start_time or 0)


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def test_a_request_is_a_span_and_each_attempt_is_a_child_of_it() -> None:
    request, first, second = spans_of(RECORD)
    assert [span.name for span in (request, first, second)] == [
        "POST /v1/chat/completions",
        "chat qwen3",
        "chat qwen3",
    ]
    assert [span.kind for span in (request, first)] == [SpanKind.SERVER, SpanKind.CLIENT]
    assert (request.start_time, request.end_time) == (1000 * 10**9, 1004 * 10**9)
    assert (second.start_time, second.end_time) == (1002 * 10**9, 1003_500_000_000)
    assert request.parent is not None
    assert request.parent.span_id == 0x9
    for span, span_id in ((request, 0x1), (first, 0x2), (second, 0x3)):
        assert (span.context.trace_id, span.context.span_id) == (0xABC, span_id)
    assert first.parent is not None
    assert first.parent.span_id == 0x1


def test_otel_resource_attributes_override_the_replica_as_service_instance_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def instance() -> object:
        exporter = InMemorySpanExporter()
        sink = Tracing(exporter, "temper-0")
        sink.take(RECORD)
        sink.close()
        return exporter.get_finished_spans()[0].resource.attributes["service.instance.id"]

    assert instance() == "temper-0"
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=another")
    assert instance() == "another"


def test_spans_use_the_semantic_conventions() -> None:
    request, first, second = map(attributes, spans_of(RECORD))
    assert request == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "temper",
        "gen_ai.request.model": "qwen3",
        "gen_ai.request.stream": True,
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.response.time_to_first_chunk": 1.5,
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.output_tokens": 7,
        "http.request.method": "POST",
        "http.response.status_code": 200,
        "temper.request.id": "r",
        "temper.dialect": "chat",
        "temper.service": "default",
        "temper.outcome": "retried",
        "temper.repairs": "coerced=1",
        "temper.attempts": 2,
        "temper.queued_seconds": 0.25,
        "temper.overhead_seconds": 1.25,
    }
    assert first == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "qwen3",
        "server.address": "10.0.0.1",
        "server.port": 8080,
        "temper.attempt.reason": "as_asked",
        "temper.attempt.defect": "prose",
    }
    assert "temper.attempt.defect" not in second


def test_spans_of_failed_requests_have_status_error_but_spans_of_disconnects_do_not() -> None:
    failed = replace(
        RECORD,
        status=502,
        outcome=None,
        attempts=(AttemptRecord("as_asked", 1.0, 1.0, error="unavailable", span_id=2),),
    )
    request, attempt = spans_of(failed)
    assert request.status.status_code is attempt.status.status_code is StatusCode.ERROR
    assert attributes(request)["error.type"] == "unavailable"
    (disconnected,) = spans_of(
        replace(RECORD, status=499, attempts=(), outcome=None, left="queued")
    )
    assert disconnected.status.status_code is StatusCode.UNSET
    assert attributes(disconnected)["temper.left"] == "queued"


def test_without_a_span_of_the_client_the_request_span_has_no_parent() -> None:
    request, *_ = spans_of(replace(RECORD, trace=TraceContext(0xABC, 0x1)))
    assert request.parent is None
    assert request.context.trace_id == 0xABC


def test_an_unsampled_request_has_no_spans() -> None:
    assert spans_of(replace(RECORD, trace=replace(TRACE, is_sampled=False))) == []


def test_a_request_without_a_trace_has_no_spans() -> None:
    assert spans_of(replace(RECORD, trace=None)) == []


def test_span_attributes_are_truncated_to_256_characters() -> None:
    request, *_ = spans_of(replace(RECORD, model="m" * 1000))
    assert attributes(request)["gen_ai.request.model"] == "m" * 256


def test_otel_service_name_overrides_the_service_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert spans_of(RECORD)[0].resource.attributes["service.name"] == "temper"
    monkeypatch.setenv("OTEL_SERVICE_NAME", "kitchen")
    assert spans_of(RECORD)[0].resource.attributes["service.name"] == "kitchen"


class HangingExporter(SpanExporter):
    """An exporter whose collector never responds; `shutdown` ends the wait."""

    def __init__(self) -> None:
        self.is_shut_down = Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.is_shut_down.wait(TIMEOUT_SECONDS)
        return SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self.is_shut_down.set()


def test_a_hanging_collector_does_not_delay_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracing, "_TIMEOUT", 0.01)
    exporter = HangingExporter()
    sink = Tracing(exporter)
    sink.take(RECORD)
    sink.close()
    assert exporter.is_shut_down.is_set()


def test_the_exporter_sends_to_v1_traces_at_the_configured_url() -> None:
    exporter = exporter_to("http://127.0.0.1:4318")
    assert vars(exporter)["_endpoint"] == "http://127.0.0.1:4318/v1/traces"
    exporter.shutdown()


def test_the_span_of_an_attempt_has_the_number_of_its_tool_round() -> None:
    in_round = AttemptRecord("as_asked", 1.0, 1.0, span_id=2, round=2)
    without_round = AttemptRecord("as_asked", 1.0, 1.0, span_id=3)
    spans = spans_of(replace(RECORD, attempts=(in_round, without_round)))
    attributes = [dict(span.attributes or {}) for span in spans]
    attempts = [attribute for attribute in attributes if "temper.attempt.reason" in attribute]
    assert [attempt.get("temper.round") for attempt in attempts] == [2, None]


def test_each_tool_call_has_a_span_that_is_a_child_of_the_request_span() -> None:
    tools = (
        ToolRecord("search", "find", "1", 1, 2.0, 0.5, "done", None, "pipe", "2026-07-28", 0x4),
        ToolRecord("search", "find", "2", 2, 3.0, 0.5, "timed_out", "timeout", span_id=0x5),
    )
    spans = [span for span in spans_of(replace(RECORD, tools=tools)) if "tool" in span.name]
    assert [span.name for span in spans] == ["execute_tool find"] * 2
    assert [span.kind for span in spans] == [SpanKind.CLIENT] * 2
    assert [span.context and span.context.span_id for span in spans] == [0x4, 0x5]
    assert [span.parent and span.parent.span_id for span in spans] == [0x1, 0x1]
    span_attributes = attributes(spans[0])
    assert span_attributes["gen_ai.operation.name"] == "execute_tool"
    assert span_attributes["mcp.protocol.version"] == "2026-07-28"
    assert span_attributes["network.transport"] == "pipe"
    assert span_attributes["temper.round"] == 1
    assert "error.type" not in span_attributes
    assert attributes(spans[1])["error.type"] == "timeout"
    assert [span.status.status_code for span in spans] == [StatusCode.UNSET, StatusCode.ERROR]


def run_spans_of(work: object) -> dict[str, ReadableSpan]:
    """Call `work` with the tracer of a run; return the finished spans by name."""
    exporter = InMemorySpanExporter()
    tracing = RunTracing(exporter)
    with tracing.run("reader", "tiny") as spans:
        assert callable(work)
        work(spans)
    tracing.close()
    return {span.name: span for span in exporter.get_finished_spans()}


NAMES = ("invoke_agent reader", "chat tiny", "execute_tool add")
sent: list[dict[str, str]] = []


def work(spans: RunSpans) -> None:
    with spans.attempt({"a": "b"}, 1, "prose") as headers:
        sent.append(headers)
    spans.tool_started(called(1), 1)
    spans.tool_finished(done(called(1)))
    spans.finish("answered", 1, (11, 7))


def test_the_span_of_a_run_is_the_parent_of_the_generation_and_tool_spans() -> None:
    spans = run_spans_of(work)
    root, chat, tool = (spans[name] for name in NAMES)
    assert (root.kind, chat.kind, tool.kind) == (
        SpanKind.INTERNAL,
        SpanKind.CLIENT,
        SpanKind.INTERNAL,
    )
    assert root.context is not None
    assert {span.parent.span_id for span in (chat, tool) if span.parent} == {root.context.span_id}
    assert chat.context is not None
    assert f"{chat.context.span_id:016x}" in sent[-1]["traceparent"]
    assert sent[-1]["a"] == "b"


def test_spans_of_a_run_have_exactly_the_documented_attributes() -> None:
    spans = run_spans_of(work)
    root, chat, tool = (spans[name] for name in NAMES)
    assert attributes(root) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "temper",
        "gen_ai.agent.name": "reader",
        "gen_ai.request.model": "tiny",
        "gen_ai.usage.input_tokens": 11,
        "gen_ai.usage.output_tokens": 7,
        "temper.stop": "answered",
        "temper.rounds": 1,
    }
    assert attributes(chat) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "tiny",
        "temper.round": 1,
        "temper.attempt.defect": "prose",
    }
    assert attributes(tool) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.type": "function",
        "temper.round": 1,
    }


@pytest.mark.parametrize(
    ("status", "word"), [(Status.TIMED_OUT, "timeout"), (Status.FAILED, "tool_error")]
)
def test_the_span_of_a_failed_tool_call_has_error_type_and_status_error(
    status: Status, word: str
) -> None:
    def work(spans: RunSpans) -> None:
        spans.tool_started(called(1), 1)
        spans.tool_finished(done(called(1), "Error: no", status))
        spans.tool_finished(done(called(2)))  # without a parent

    span = run_spans_of(work)["execute_tool add"]
    assert attributes(span)["error.type"] == word
    assert span.status.status_code is StatusCode.ERROR


def test_a_tool_call_that_is_unfinished_when_the_run_ends_has_error_type_cancelled() -> None:
    span = run_spans_of(lambda spans: spans.tool_started(called(1), 1))["execute_tool add"]
    assert attributes(span)["error.type"] == "cancelled"


def test_the_span_of_a_failed_generation_has_error_type() -> None:
    def work(spans: RunSpans) -> None:
        with pytest.raises(BackendUnavailable), spans.attempt({}, 1, None):
            raise BackendUnavailable("here", "is down")

    assert attributes(run_spans_of(work)["chat tiny"])["error.type"] == "unavailable"


def test_without_an_exporter_the_headers_of_an_attempt_are_unchanged() -> None:
    tracing = RunTracing()
    with tracing.run("reader", "tiny") as spans, spans.attempt({"a": "b"}, 1, None) as headers:
        assert headers == {"a": "b"}
    tracing.close()
