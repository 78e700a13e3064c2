"""The spans of requests and of agents' runs, and the names of their attributes.

Tracing needs the extra `otel`; a program that configures its own tracer needs only the SDK. The
spans of a request are created when it ends, but their ids are generated when it arrives. Temper
sends an id to the engine, so that the engine's spans become children. The spans of an agent's run
are created while it runs, inside the program's current span. OpenTelemetry's variables (`OTEL_*`)
configure resource attributes and batches.

Names with `gen_ai.` are from OpenTelemetry's semantic conventions for generative AI, whose status
is still "development". Spans never contain prompts, answers, arguments or results.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from threading import Timer
from typing import ParamSpec, TypeAlias
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagate import inject
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator

from proxy.backends.client import Headers
from proxy.conversation.tools import ToolCall
from proxy.errors import BackendFailed, InvalidRequest
from proxy.facts import context, repairs, tools
from proxy.observability.live_request import word_for
from proxy.observability.logs import replica_name
from proxy.observability.record import CLIENT_LEFT, AttemptRecord, RequestRecord, ToolRecord
from proxy.observability.trace_context import TraceContext
from proxy.tools.executor import Outcome
from proxy.tools.executor import Status as ToolStatus

Attribute: TypeAlias = str | bool | int | float | Sequence[str]
Subject = ParamSpec("Subject")  # the records that an attribute is read from

_NAME = "temper"
_TIMEOUT = 2.0  # seconds for a collector; losing spans is better than a slow shutdown


# The GenAI semantic conventions (OpenTelemetry 1.37) define `text_completion` and `embeddings`, and
# allow other names.
_OPERATIONS = {
    "completions": "text_completion",
    "embeddings": "embeddings",
    "rerank": "rerank",
    "reranking": "rerank",
    "score": "score",
}


def operation(request: RequestRecord) -> str:
    """Return the operation name for a request's path; `/v1/chat/completions` is a chat."""
    is_chat = request.path.endswith("/chat/completions")
    return "chat" if is_chat else _OPERATIONS.get(request.path.rpartition("/")[2], "chat")


REQUEST: Mapping[str, Callable[[RequestRecord], Attribute | None]] = {
    "gen_ai.operation.name": operation,
    "gen_ai.provider.name": lambda _: _NAME,
    "gen_ai.request.model": lambda request: request.model,
    "gen_ai.request.stream": lambda request: request.stream,
    "gen_ai.response.finish_reasons": lambda request: (
        [request.finish_reason] if request.finish_reason is not None else None
    ),
    "gen_ai.response.time_to_first_chunk": lambda request: request.first_token,
    "gen_ai.usage.input_tokens": lambda request: request.tokens.prompt,
    "gen_ai.usage.cache_read.input_tokens": lambda request: request.tokens.cached,
    "gen_ai.usage.output_tokens": lambda request: request.tokens.output,
    "http.request.method": lambda _: "POST",
    "http.response.status_code": lambda request: request.status,
    "error.type": lambda request: request.error,
    "temper.request.id": lambda request: request.id,
    "temper.dialect": lambda request: request.dialect,
    "temper.service": lambda request: request.service,
    "temper.outcome": lambda request: request.outcome.value if request.outcome else None,
    "temper.repairs": lambda request: repairs(request.facts) or None,
    "temper.context": lambda request: context(request.facts) or None,
    "temper.attempts": lambda request: len(request.attempts),
    "temper.queued_seconds": lambda request: request.queued,
    "temper.overhead_seconds": lambda request: request.overhead,
    "temper.tools": lambda request: tools(request.facts) or None,
    "temper.left": lambda request: request.left,
}

ATTEMPT: Mapping[str, Callable[[RequestRecord, AttemptRecord], Attribute | None]] = {
    "gen_ai.operation.name": lambda request, _: operation(request),
    "gen_ai.request.model": lambda request, _: request.model,
    "server.address": lambda request, _: urlsplit(request.backend or "").hostname,
    "server.port": lambda request, _: urlsplit(request.backend or "").port,
    "error.type": lambda _, attempt: attempt.error,
    "temper.attempt.reason": lambda _, attempt: attempt.kind,
    "temper.attempt.defect": lambda _, attempt: attempt.defect,
    "temper.round": lambda _, attempt: attempt.round or None,
}

TOOL: Mapping[str, Callable[[ToolRecord], Attribute | None]] = {
    "gen_ai.operation.name": lambda _: "execute_tool",
    "gen_ai.tool.name": lambda tool: tool.name,
    "gen_ai.tool.call.id": lambda tool: tool.call_id,
    "gen_ai.tool.type": lambda _: "extension",
    "error.type": lambda tool: tool.error,
    "mcp.method.name": lambda _: "tools/call",
    "mcp.protocol.version": lambda tool: tool.protocol or None,
    "network.transport": lambda tool: tool.transport or None,
    "temper.round": lambda tool: tool.round,
    "temper.tool.server": lambda tool: tool.server,
    "temper.tool.status": lambda tool: tool.status,
}


def exporter_to(url: str) -> SpanExporter:
    """Return an exporter to a collector's base URL, for OTLP over HTTP.

    Raises ImportError if the exporter's package is not installed.
    """
    # imported here, because a program with another exporter does not need this package
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=f"{url}/v1/traces", timeout=_TIMEOUT)


class Tracing:
    """Writes the spans of a `replica`'s requests to an exporter, in a background thread."""

    def __init__(self, exporter: SpanExporter, replica: str | None = None) -> None:
        self._exporter = exporter
        self._ids = _IdsOfRequest()
        defaults = {"service.name": _NAME, "service.instance.id": replica or replica_name()}
        self._provider = TracerProvider(
            # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES override the defaults
            resource=Resource(defaults).merge(OTELResourceDetector().detect()),
            id_generator=self._ids,
            span_limits=SpanLimits(max_attribute_length=256),  # names come from clients
            shutdown_on_exit=False,  # `close` does this, with a time limit
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(_NAME)

    def take(self, record: RequestRecord) -> None:
        request, begun = record.trace, record.begun_at
        if request is None:
            return
        self._ids.trace_id, self._ids.span_id = request.trace_id, request.span_id
        span = self._tracer.start_span(
            f"POST {record.path}",
            Context() if request.parent_id is None else _context(request, request.parent_id),
            trace.SpanKind.SERVER,
            _read(REQUEST, record),
            start_time=_nanoseconds(begun),
        )
        parts: list[tuple[str, AttemptRecord | ToolRecord, dict[str, Attribute]]] = [
            (f"{operation(record)} {record.model}", attempt, _read(ATTEMPT, record, attempt))
            for attempt in record.attempts
        ]
        parts += ((f"execute_tool {tool.name}", tool, _read(TOOL, tool)) for tool in record.tools)
        parent = _context(request, request.span_id)
        for name, part, attributes in parts:
            self._ids.span_id = part.span_id
            at = begun + part.begun
            child = self._tracer.start_span(
                name, parent, trace.SpanKind.CLIENT, attributes, start_time=_nanoseconds(at)
            )
            _end(child, at + part.seconds, is_failed=part.error is not None)
        # 499 (the client disconnected) is no failure of the server
        is_failed = record.status > CLIENT_LEFT or record.error is not None
        _end(span, begun + record.seconds, is_failed=is_failed)

    def close(self) -> None:
        """Send the remaining spans; after `_TIMEOUT` seconds, unsent spans are lost."""
        _shut_down(self._provider, self._exporter)


def _end(span: trace.Span, moment: float, *, is_failed: bool) -> None:
    if is_failed:
        span.set_status(trace.Status(trace.StatusCode.ERROR))
    span.end(_nanoseconds(moment))


def _shut_down(provider: TracerProvider, exporter: SpanExporter) -> None:
    # the provider waits for the exporter's retries, and only closing the exporter ends them
    timer = Timer(_TIMEOUT, exporter.shutdown)
    timer.start()
    provider.shutdown()
    timer.cancel()


class _IdsOfRequest(IdGenerator):
    """Returns the ids that were generated when the request arrived."""

    trace_id = 0
    span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id

    def is_trace_id_random(self) -> bool:
        return True


def _context(request: TraceContext, parent_id: int) -> Context:
    # the client decides about sampling (W3C Trace Context, 3.2.2.5.1)
    flag = trace.TraceFlags.SAMPLED if request.is_sampled else trace.TraceFlags.DEFAULT
    flags = trace.TraceFlags(flag)
    parent = trace.SpanContext(request.trace_id, parent_id, is_remote=True, trace_flags=flags)
    return trace.set_span_in_context(trace.NonRecordingSpan(parent), Context())


def _read(
    table: Mapping[str, Callable[Subject, Attribute | None]],
    *subject: Subject.args,
    **named: Subject.kwargs,
) -> dict[str, Attribute]:
    values = ((name, read(*subject, **named)) for name, read in table.items())
    return {name: value for name, value in values if value is not None}


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


class RunTracing:
    """Creates the spans of runs, with an exporter or else with the program's tracer."""

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        self._exporter = exporter
        self._provider: TracerProvider | None = None
        if exporter is None:
            self._tracer = trace.get_tracer(_NAME)
            return
        resource = Resource({"service.name": _NAME}).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(_NAME)

    @contextmanager
    def run(self, agent: str, model: str) -> Generator["RunSpans", None, None]:
        """Create the span of a run for the duration of the block, as the current span."""
        attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": _NAME,
            "gen_ai.agent.name": agent,
            "gen_ai.request.model": model,
        }
        with self._tracer.start_as_current_span(
            f"invoke_agent {agent}",
            attributes=attributes,
            record_exception=False,  # the message could contain a prompt or a result
        ) as span:
            spans = RunSpans(self._tracer, span, model)
            try:
                yield spans
            finally:
                spans.close()

    def close(self) -> None:
        if self._provider is not None and self._exporter is not None:
            _shut_down(self._provider, self._exporter)


class RunSpans:
    """The spans of one run: a child for each attempt and for each tool call."""

    def __init__(self, tracer: trace.Tracer, span: trace.Span, model: str) -> None:
        self._tracer = tracer
        self._span = span
        self._context = trace.set_span_in_context(span)
        self._model = model
        self._calls: dict[str, trace.Span] = {}

    @contextmanager
    def attempt(
        self, headers: Headers, number: int, defect: str | None
    ) -> Generator[Headers, None, None]:
        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": self._model,
            "temper.round": number,
        }
        if defect is not None:
            attributes["temper.attempt.defect"] = defect
        span = self._tracer.start_span(
            f"chat {self._model}", self._context, trace.SpanKind.CLIENT, attributes
        )
        traced = dict(headers)
        inject(traced, trace.set_span_in_context(span))
        try:
            yield traced
        except (BackendFailed, InvalidRequest) as error:
            _fail(span, word_for(error))
            raise
        finally:
            span.end()

    def tool_started(self, call: ToolCall, number: int) -> None:
        attributes: dict[str, str | int] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
            "temper.round": number,
        }
        self._calls[call.id] = self._tracer.start_span(
            f"execute_tool {call.name}", self._context, attributes=attributes
        )

    def tool_finished(self, outcome: Outcome) -> None:
        if (span := self._calls.pop(outcome.call.id, None)) is None:
            return
        if outcome.is_failure:
            _fail(span, "timeout" if outcome.status is ToolStatus.TIMED_OUT else "tool_error")
        span.end()

    def finish(self, stop: str, rounds: int, tokens: tuple[int, int]) -> None:
        self._span.set_attributes(
            {
                "temper.stop": stop,
                "temper.rounds": rounds,
                "gen_ai.usage.input_tokens": tokens[0],
                "gen_ai.usage.output_tokens": tokens[1],
            }
        )

    def close(self) -> None:
        """End the spans of unfinished calls: a span that never ends is never exported."""
        for span in self._calls.values():
            _fail(span, "cancelled")
            span.end()


def _fail(span: trace.Span, word: str) -> None:
    span.set_attribute("error.type", word)
    span.set_status(trace.Status(trace.StatusCode.ERROR))
