"""Whether the runs of a model are traced, and a tracing that does nothing where they are not."""

import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol

from proxy.conversation.tools import ToolCall
from proxy.engine import Headers
from proxy.errors import InvalidConfiguration
from proxy.tool_rounds.executor import Outcome


class Spans(Protocol):
    """Is told of one run while it goes on; see `observability.tracing`."""

    def attempt(
        self, headers: Headers, number: int, defect: str | None
    ) -> AbstractContextManager[Headers]:
        """Follow a generation, the first or one after a `defect`; gives the headers to send."""

    def tool_started(self, call: ToolCall, number: int) -> None: ...
    def tool_finished(self, outcome: Outcome) -> None: ...
    def finish(self, stop: str, rounds: int, tokens: tuple[int, int]) -> None:
        """Note how the run ended, and what its prompts and replies had in tokens."""


class RunTracer(Protocol):
    """Follows runs."""

    def run(self, agent: str, model: str) -> AbstractContextManager[Spans]: ...


class NoTracing:
    """Follows nothing: the tracing and the spans of a model that is not traced."""

    @contextmanager
    def run(self, agent: str, model: str) -> Generator["NoTracing"]:
        del agent, model
        yield self

    @contextmanager
    def attempt(self, headers: Headers, number: int, defect: str | None) -> Generator[Headers]:
        del number, defect
        yield headers

    def _ignore(self, *_: object, **__: object) -> None:
        """Take no notice."""

    tool_started = tool_finished = finish = _ignore


def open_tracing(collector: str | None, opened: ExitStack) -> RunTracer:
    """Trace to a collector, or else as the program does, if it does; closed with `opened`.

    Raises `InvalidConfiguration` where a collector is named and OpenTelemetry is not installed.
    """
    if collector is None and "opentelemetry.sdk.trace" not in sys.modules:
        return NoTracing()
    try:
        from proxy.observability.tracing import RunTracing, exporter_to
    except ImportError as missing:
        problem = "needs OpenTelemetry: pip install 'temper-proxy[otel]'"
        raise InvalidConfiguration("tracing.url", problem) from missing
    tracing = RunTracing(None if collector is None else exporter_to(collector))
    opened.callback(tracing.close)
    return tracing
