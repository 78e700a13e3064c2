"""From the settings to whoever wants to know what happens to requests."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager

from proxy.errors import InvalidConfiguration
from proxy.observability.logs import RequestLog
from proxy.observability.metrics import Metrics
from proxy.observability.observers import Observers
from proxy.observability.record import Sink
from proxy.settings import Settings


@contextmanager
def observing(settings: Settings) -> Generator[Observers, None, None]:
    """Open the observers that are configured; raises `InvalidConfiguration`."""
    sinks: list[Sink] = [RequestLog()]
    collector = settings.tracing.url
    with ExitStack() as opened:
        if collector is not None:
            sinks.append(_open_tracing(collector, opened))
        meter = Metrics() if settings.metrics.enabled else None
        yield Observers(tuple(sinks), meter, traces=collector is not None)


def _open_tracing(url: str, opened: ExitStack) -> Sink:
    try:
        from proxy.observability.tracing import Tracing, exporter_to
    except ImportError as missing:
        problem = "needs OpenTelemetry: pip install 'temper-proxy[otel]'"
        raise InvalidConfiguration("tracing.url", problem) from missing
    tracing = Tracing(exporter_to(url))
    opened.callback(tracing.close)
    return tracing
