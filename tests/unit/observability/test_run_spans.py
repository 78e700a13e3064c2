import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from proxy.errors import BackendUnavailable
from proxy.observability.run_spans import RunSpans, RunTracing
from proxy.tool_rounds.executor import Status
from tests.fakes.rounds import called, done


def spans_of(work: object) -> dict[str, ReadableSpan]:
    """Return the spans of a run by their names."""
    exporter = InMemorySpanExporter()
    tracing = RunTracing(exporter)
    with tracing.run("reader", "tiny") as spans:
        assert callable(work)
        work(spans)
    tracing.close()
    return {span.name: span for span in exporter.get_finished_spans()}


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


NAMES = ("invoke_agent reader", "chat tiny", "execute_tool add")
sent: list[dict[str, str]] = []


def work(spans: RunSpans) -> None:
    with spans.attempt({"a": "b"}, 1, "prose") as headers:
        sent.append(headers)
    spans.tool_started(called(1), 1)
    spans.tool_finished(done(called(1)))
    spans.finished("answered", 1, (11, 7))


def test_a_run_is_above_its_generations_and_its_calls() -> None:
    found = spans_of(work)
    root, chat, tool = (found[name] for name in NAMES)
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


def test_spans_say_what_was_done_and_never_what_was_said() -> None:
    found = spans_of(work)
    root, chat, tool = (found[name] for name in NAMES)
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
def test_a_call_that_failed_says_how(status: Status, word: str) -> None:
    def work(spans: RunSpans) -> None:
        spans.tool_started(called(1), 1)
        spans.tool_finished(done(called(1), "Error: no", status))
        spans.tool_finished(done(called(2)))  # which nobody began

    span = spans_of(work)["execute_tool add"]
    assert attributes(span)["error.type"] == word
    assert span.status.status_code is StatusCode.ERROR


def test_a_call_that_never_ended_was_cancelled() -> None:
    span = spans_of(lambda spans: spans.tool_started(called(1), 1))["execute_tool add"]
    assert attributes(span)["error.type"] == "cancelled"


def test_a_generation_that_failed_says_how() -> None:
    def work(spans: RunSpans) -> None:
        with pytest.raises(BackendUnavailable), spans.attempt({}, 1, None):
            raise BackendUnavailable("here", "is down")

    assert attributes(spans_of(work)["chat tiny"])["error.type"] == "unavailable"


def test_a_program_that_traces_nothing_loses_nothing() -> None:
    tracing = RunTracing()
    with tracing.run("reader", "tiny") as spans, spans.attempt({"a": "b"}, 1, None) as headers:
        assert headers == {"a": "b"}
    tracing.close()
