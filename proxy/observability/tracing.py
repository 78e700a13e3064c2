"""The sink that writes spans: one for each request, a child for each of its attempts.

It needs the extra `otel`. Spans are made when a request is over, with the ids that it has carried
since it arrived, so that an engine which traces as well finds its parent. Where they are sent, and
in which batches, OpenTelemetry's own variables decide further (`OTEL_*`).
"""

from collections.abc import Mapping
from threading import Timer

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, TraceFlags

from proxy.observability.record import CLIENT_LEFT, AttemptRecord, RequestRecord, ToolRecord
from proxy.observability.replica import replica_name
from proxy.observability.span_names import ATTEMPT, REQUEST, TOOL, Attribute, operation
from proxy.observability.trace_context import TraceContext

_NAME = "temper"
_LONGEST_VALUE = 256
_PATIENCE = 2.0  # seconds for a collector; spans are lost rather than an end delayed


def exporter_to(url: str) -> SpanExporter:
    """Make what sends spans to a collector's address, in the OTLP format over HTTP."""
    return OTLPSpanExporter(endpoint=f"{url}/v1/traces", timeout=_PATIENCE)


class Tracing:
    """Writes the spans of the requests of a `replica` to an exporter, from a thread of its own."""

    def __init__(self, exporter: SpanExporter, replica: str | None = None) -> None:
        self._exporter = exporter
        self._ids = _GivenIds()
        own = Resource({"service.name": _NAME, "service.instance.id": replica or replica_name()})
        self._provider = TracerProvider(
            resource=own.merge(OTELResourceDetector().detect()),
            id_generator=self._ids,
            span_limits=SpanLimits(max_attribute_length=_LONGEST_VALUE),
            shutdown_on_exit=False,
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(_NAME)

    def take(self, record: RequestRecord) -> None:
        """Write the spans of a request that is over."""
        request = record.trace
        if request is None:
            return
        found = {name: read(record) for name, read in REQUEST.items()}
        self._ids.trace_id, self._ids.span_id = request.trace_id, request.span_id
        span = self._tracer.start_span(
            f"POST {record.path}",
            _context(request, request.parent_id) if request.parent_id is not None else Context(),
            SpanKind.SERVER,
            _known(found),
            start_time=_nanoseconds(record.begun_at),
        )
        for attempt in record.attempts:
            self._write(attempt, record, request)
        for tool in record.tools:
            self._write_tool(tool, record, request)
        if record.status >= CLIENT_LEFT + 1 or record.error is not None:
            span.set_status(Status(trace.StatusCode.ERROR))
        span.end(_nanoseconds(record.begun_at + record.seconds))

    def close(self) -> None:
        """Send what is left, if the collector takes it soon."""
        patience = Timer(_PATIENCE, self._exporter.shutdown)
        patience.start()
        self._provider.shutdown()
        patience.cancel()

    def _write(self, attempt: AttemptRecord, record: RequestRecord, request: TraceContext) -> None:
        begun = record.begun_at + attempt.begun
        self._ids.span_id = attempt.span_id
        span = self._tracer.start_span(
            f"{operation(record)} {record.model}",
            _context(request, request.span_id),
            SpanKind.CLIENT,
            _known({name: read(record, attempt) for name, read in ATTEMPT.items()}),
            start_time=_nanoseconds(begun),
        )
        if attempt.error is not None:
            span.set_status(Status(trace.StatusCode.ERROR))
        span.end(_nanoseconds(begun + attempt.seconds))

    def _write_tool(self, tool: ToolRecord, record: RequestRecord, request: TraceContext) -> None:
        begun = record.begun_at + tool.begun
        self._ids.span_id = tool.span_id
        span = self._tracer.start_span(
            f"execute_tool {tool.name}",
            _context(request, request.span_id),
            SpanKind.CLIENT,
            _known({name: read(tool) for name, read in TOOL.items()}),
            start_time=_nanoseconds(begun),
        )
        if tool.error is not None:
            span.set_status(Status(trace.StatusCode.ERROR))
        span.end(_nanoseconds(begun + tool.seconds))


class _GivenIds(IdGenerator):
    """Gives the ids that were made when the request arrived."""

    trace_id = 0
    span_id = 0

    def generate_trace_id(self) -> int:
        """Return the id of the trace that is being written."""
        return self.trace_id

    def generate_span_id(self) -> int:
        """Return the id of the span that is being written."""
        return self.span_id

    def is_trace_id_random(self) -> bool:
        """Tell that all bits of the id are random."""
        return True


def _context(request: TraceContext, parent_id: int) -> Context:
    flags = TraceFlags(TraceFlags.SAMPLED if request.is_sampled else TraceFlags.DEFAULT)
    parent = SpanContext(request.trace_id, parent_id, is_remote=True, trace_flags=flags)
    return trace.set_span_in_context(NonRecordingSpan(parent), Context())


def _known(found: Mapping[str, Attribute | None]) -> dict[str, Attribute]:
    return {name: value for name, value in found.items() if value is not None}


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
