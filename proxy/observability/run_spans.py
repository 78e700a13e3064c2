"""The spans of agents' runs: one for the run, a child for each generation and each call of a tool.

They are made while a run goes on, within the span of the program around it, by the tracer of that
program or by one that sends to a collector. It needs the extra `otel`. Prompts, answers, arguments
and results are in none of them.
"""

from collections.abc import Generator
from contextlib import contextmanager
from threading import Timer

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.propagate import inject
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

from proxy.conversation.tools import ToolCall
from proxy.engine import Headers
from proxy.errors import BackendFailed, InvalidRequest
from proxy.observability import span_names as names
from proxy.observability.live_request import word_for
from proxy.tool_rounds.executor import Outcome
from proxy.tool_rounds.executor import Status as CallStatus

_NAME = "temper"
_PATIENCE = 2.0  # seconds for a collector
_CANCELLED = "cancelled"


class RunTracing:
    """Makes the spans of runs, by the program's tracer, or to an exporter."""

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        self._exporter = exporter
        self._provider: TracerProvider | None = None
        if exporter is None:
            self._tracer = trace.get_tracer(_NAME)
            return
        own = Resource({"service.name": _NAME}).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=own, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(_NAME)

    @contextmanager
    def run(self, agent: str, model: str) -> Generator["RunSpans", None, None]:
        """Follow a run while the block goes on; what it does is within its span."""
        given = {
            names.OPERATION: "invoke_agent",
            names.PROVIDER: _NAME,
            names.AGENT: agent,
            names.MODEL: model,
        }
        with self._tracer.start_as_current_span(
            f"invoke_agent {agent}", attributes=given, record_exception=False
        ) as span:
            spans = RunSpans(self._tracer, span, model)
            try:
                yield spans
            finally:
                spans.close()

    def close(self) -> None:
        """Send what is left, if the collector takes it soon."""
        if self._provider is None or self._exporter is None:
            return
        patience = Timer(_PATIENCE, self._exporter.shutdown)
        patience.start()
        self._provider.shutdown()
        patience.cancel()


class RunSpans:
    """The spans of one run."""

    def __init__(self, tracer: Tracer, span: Span, model: str) -> None:
        self._tracer = tracer
        self._span = span
        self._model = model
        self._calls: dict[str, Span] = {}

    @contextmanager
    def attempt(
        self, headers: Headers, number: int, defect: str | None
    ) -> Generator[Headers, None, None]:
        """Follow a generation, the first or one after a `defect`; gives the headers to send."""
        span = self._tracer.start_span(
            f"chat {self._model}", self._context(), SpanKind.CLIENT, self._asked(number, defect)
        )
        sent = dict(headers)
        inject(sent, trace.set_span_in_context(span))
        try:
            yield sent
        except (BackendFailed, InvalidRequest) as error:
            _fail(span, word_for(error))
            raise
        finally:
            span.end()

    def tool_started(self, call: ToolCall, number: int) -> None:
        """Begin the span of a call."""
        given: dict[str, str | int] = {
            names.OPERATION: "execute_tool",
            names.TOOL_NAME: call.name,
            names.TOOL_CALL: call.id,
            names.TOOL_TYPE: "function",
            names.ROUND: number,
        }
        self._calls[call.id] = self._tracer.start_span(
            f"execute_tool {call.name}", self._context(), attributes=given
        )

    def tool_finished(self, outcome: Outcome) -> None:
        """End the span of a call."""
        span = self._calls.pop(outcome.call.id, None)
        if span is None:
            return
        if outcome.is_failure:
            is_late = outcome.status is CallStatus.TIMED_OUT
            _fail(span, "timeout" if is_late else "tool_error")
        span.end()

    def finished(self, stop: str, rounds: int, tokens: tuple[int, int]) -> None:
        """Note how the run ended, and what its prompts and replies had in tokens."""
        self._span.set_attributes(
            {
                names.STOP: stop,
                names.ROUNDS: rounds,
                names.INPUT_TOKENS: tokens[0],
                names.OUTPUT_TOKENS: tokens[1],
            }
        )

    def close(self) -> None:
        """End what was not finished."""
        for span in self._calls.values():
            _fail(span, _CANCELLED)
            span.end()

    def _context(self) -> Context:
        return trace.set_span_in_context(self._span)

    def _asked(self, number: int, defect: str | None) -> dict[str, str | int]:
        given: dict[str, str | int] = {
            names.OPERATION: "chat",
            names.MODEL: self._model,
            names.ROUND: number,
        }
        return given if defect is None else {**given, names.DEFECT: defect}


def _fail(span: Span, word: str) -> None:
    span.set_attribute(names.ERROR, word)
    span.set_status(Status(StatusCode.ERROR))
