"""The sink that counts: every record changes some of the metrics in `metric_table`.

One process counts in plain numbers, which Prometheus' client reads on request. Several workers
count through the client's files: the parent names their folder (`share_folder`) in an environment
variable that the client reads on import, so it has to be set before a worker starts.
"""

import os
import tempfile
from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, TypeAlias

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from proxy import facts
from proxy.facts import Fact
from proxy.observability import metric_table as table
from proxy.observability.metric_table import Metric
from proxy.observability.record import AttemptRecord, RequestRecord

Labels: TypeAlias = tuple[str, ...]
Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_OTHER = "other"
_NONE = "none"
# how gauges of several workers are combined, if not by their sum
_MODES: Mapping[Metric, Literal["livemostrecent", "livemin", "livesum"]] = {
    table.UP: "livemostrecent",  # of whichever worker looked last; they all find the same
    table.RESTARTS: "livemostrecent",
    table.TOOL_SERVER_UP: "livemostrecent",
    table.STATE_UP: "livemin",  # every worker finds out for itself
}


@contextmanager
def share_folder() -> Generator[str, None, None]:
    """Let the processes that are started within the block count together; yields their folder."""
    before = os.environ.get(_FOLDER)
    with tempfile.TemporaryDirectory(prefix="temper-metrics-") as folder:
        os.environ[_FOLDER] = folder
        try:
            yield folder
        finally:
            if before is None:
                del os.environ[_FOLDER]
            else:
                os.environ[_FOLDER] = before


def forget_process(process_id: int, folder: str) -> None:
    """Remove a finished process from the gauges; its counts stay."""
    mark_process_dead(process_id, folder)  # type: ignore[no-untyped-call]


class _Distribution:
    """The values of one histogram, in buckets that are not cumulative."""

    __slots__ = ("buckets", "total")

    def __init__(self, metric: Metric) -> None:
        self.buckets = [0] * (len(metric.buckets) + 1)
        self.total = 0.0


class _OwnSeries(Collector):
    """Plain numbers: a call changes twenty, and the library would take a lock for each."""

    def __init__(self) -> None:
        self._values: dict[Metric, dict[Labels, float]] = {
            metric: {} for metric in table.METRICS if metric.kind != "histogram"
        }
        self._distributions: dict[Metric, dict[Labels, _Distribution]] = {
            metric: {} for metric in table.METRICS if metric.kind == "histogram"
        }
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def add(self, metric: Metric, labels: Labels, by: float) -> None:
        values = self._values[metric]
        values[labels] = values.get(labels, 0.0) + by

    def put(self, metric: Metric, labels: Labels, value: float) -> None:
        self._values[metric][labels] = value

    def forget(self, metric: Metric, labels: Labels) -> None:
        del self._values[metric][labels]

    def measure(self, metric: Metric, labels: Labels, value: float) -> None:
        distributions = self._distributions[metric]
        found = distributions.get(labels)
        if found is None:
            found = distributions[labels] = _Distribution(metric)
        found.buckets[bisect_left(metric.buckets, value)] += 1
        found.total += value

    def registry(self) -> CollectorRegistry:
        return self._registry

    def collect(self) -> Iterator[Family]:
        for metric in table.METRICS:
            name, meaning, labels = metric.name, metric.meaning, metric.labels
            if metric.kind == "histogram":
                family = HistogramMetricFamily(name, meaning, labels=labels)
                bounds = [*map(floatToGoString, metric.buckets), "+Inf"]
                for key, found in self._distributions[metric].items():
                    counts = accumulate(found.buckets, initial=0.0)
                    next(counts)
                    family.add_metric(key, [*zip(bounds, counts, strict=True)], found.total)
                yield family
                continue
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            plain = kind(name, meaning, labels=labels)
            for key, value in self._values[metric].items():
                plain.add_metric(key, value)
            yield plain


class _SharedSeries:
    """The library's metrics, which several workers write to files in one folder."""

    def __init__(self, folder: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # one line less for each series
        registry = CollectorRegistry()
        self._folder = folder
        self._counters: dict[Metric, Counter] = {}
        self._gauges: dict[Metric, Gauge] = {}
        self._histograms: dict[Metric, Histogram] = {}
        for one in table.METRICS:
            name, meaning, labels = one.name, one.meaning, one.labels
            if one.kind == "counter":
                self._counters[one] = Counter(name, meaning, labels, registry=registry)
            elif one.kind == "gauge":
                mode = _MODES.get(one, "livesum")
                self._gauges[one] = Gauge(
                    name, meaning, labels, registry=registry, multiprocess_mode=mode
                )
            else:
                self._histograms[one] = Histogram(
                    name, meaning, labels, registry=registry, buckets=one.buckets
                )

    def add(self, metric: Metric, labels: Labels, by: float) -> None:
        if metric.kind == "counter":
            self._counters[metric].labels(*labels).inc(by)
        else:
            self._gauges[metric].labels(*labels).inc(by)

    def put(self, metric: Metric, labels: Labels, value: float) -> None:
        self._gauges[metric].labels(*labels).set(value)

    def forget(self, metric: Metric, labels: Labels) -> None:
        self._gauges[metric].remove(*labels)

    def measure(self, metric: Metric, labels: Labels, value: float) -> None:
        self._histograms[metric].labels(*labels).observe(value)

    def registry(self) -> CollectorRegistry:
        found = CollectorRegistry()
        MultiProcessCollector(found, self._folder)  # type: ignore[no-untyped-call]
        return found


class Metrics:
    """Counts requests."""

    def __init__(self) -> None:
        folder = os.environ.get(_FOLDER)
        self._series = _SharedSeries(folder) if folder else _OwnSeries()
        self._loads: dict[str, ServiceLoad] = {}
        self._clients: set[str] = set()
        self._tool_servers: set[str] = set()

    def follow(self, services: Iterable[str]) -> None:
        self._loads = {service: ServiceLoad(self._series, (service,)) for service in services}
        for load in self._loads.values():  # several workers show only metrics that were touched
            load.wait(0)
            load.run(0, 0.0)

    def take(self, record: RequestRecord) -> None:
        model = record.service if record.service in self._loads else _OTHER
        outcome = record.outcome.value if record.outcome is not None else _NONE
        count, key = self._series.add, (model,)
        count(table.REQUESTS, (model, record.dialect, str(record.status), outcome), 1)
        if record.left is not None:
            count(table.CANCELLED, (model, record.left), 1)
        self._measure(table.DURATION, key, record.seconds)
        self._measure(table.OVERHEAD, key, record.overhead)
        self._measure(table.FIRST_TOKEN, key, record.first_token)
        self._measure(table.QUEUED, key, record.queued)
        for kind, number in _tokens(record):
            count(table.TOKENS, (model, kind), number)
        if record.client is not None:
            self._count_client(record, record.client, outcome)
        for attempt in record.attempts:
            count(table.ATTEMPTS, (model, attempt.kind, _result(attempt, record)), 1)
            if attempt.error is not None:
                count(table.BACKEND_ERRORS, (model, attempt.error), 1)
        for fact in record.facts:
            self._count_fact(fact, model)
        if record.tools:
            self._count_tools(record, model)

    def load(self, service: str) -> "ServiceLoad":
        return self._loads[service]

    def report_backend(self, service: str, *, is_up: bool, restarts: int) -> None:
        self._series.put(table.UP, (service,), int(is_up))
        self._series.put(table.RESTARTS, (service,), restarts)

    def report_tool_servers(self, are_up: Mapping[str, bool]) -> None:
        for name in self._tool_servers - {*are_up}:
            self._series.forget(table.TOOL_SERVER_UP, (name,))
        self._tool_servers = {*are_up}
        for name, is_up in are_up.items():
            self._series.put(table.TOOL_SERVER_UP, (name,), int(is_up))

    def count_unstored(self, reason: str) -> None:
        self._series.add(table.UNSTORED, (reason,), 1)

    def report_state(self, server: str, *, is_up: bool) -> None:
        self._series.put(table.STATE_UP, (server,), int(is_up))

    def count_state_error(self, operation: str) -> None:
        self._series.add(table.STATE_ERRORS, (operation,), 1)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        encode, content_type = choose_encoder(accept)
        return encode(self._series.registry()), content_type

    def _measure(self, metric: Metric, labels: Labels, value: float | None) -> None:
        if value is not None:
            self._series.measure(metric, labels, value)

    def _count_client(self, record: RequestRecord, client: str, outcome: str) -> None:
        """Count for the owner of a key; their names come from a file, which may keep changing."""
        if client not in self._clients and len(self._clients) >= 200:
            client = _OTHER
        self._clients.add(client)
        self._series.add(table.CLIENT_REQUESTS, (client, outcome), 1)
        for kind, number in _tokens(record):
            self._series.add(table.CLIENT_TOKENS, (client, kind), number)

    def _count_fact(self, fact: Fact, model: str) -> None:
        if isinstance(fact, facts.Compacted):
            self._series.measure(table.CONTEXT, (model,), fact.sent)
            if fact.is_new:
                self._series.add(table.COMPACTIONS, (model, str(fact.tier)), 1)
        elif (counted := _COUNTED.get(type(fact))) is not None:
            metric, fields = counted
            labels = (model, *[str(getattr(fact, field)) for field in fields.split()])
            self._series.add(metric, labels, 1)

    def _count_tools(self, record: RequestRecord, model: str) -> None:
        for tool in record.tools:
            self._series.add(table.TOOL_CALLS, (tool.server, tool.status), 1)
            ran = tool.seconds if tool.status != "refused" else None
            self._measure(table.TOOL_DURATION, (tool.server,), ran)
        self._series.add(table.ROUNDS, (model,), len({tool.round for tool in record.tools}))


@dataclass(frozen=True, slots=True)
class ServiceLoad:
    """Follows the load of one service."""

    _series: _OwnSeries | _SharedSeries
    _labels: Labels

    def wait(self, by: int) -> None:
        self._series.add(table.WAITING, self._labels, by)

    def run(self, by: int, share: float) -> None:
        self._series.add(table.RUNNING, self._labels, by)
        self._series.add(table.CACHE, self._labels, share)


def _tokens(record: RequestRecord) -> list[tuple[str, int]]:
    """Return the tokens that a reply cost, by kind, as far as they are known."""
    tokens = record.tokens
    kinds = (("input", tokens.prompt), ("cached", tokens.cached), ("output", tokens.output))
    return [(kind, max(0, number)) for kind, number in kinds if number is not None]


def _result(attempt: AttemptRecord, record: RequestRecord) -> str:
    if attempt.error is not None:
        return "failed"
    if attempt.defect is not None:
        return "rejected"
    return "accepted" if record.outcome is not None else "cancelled"


# the metric of each fact that is counted, and the fields that are its labels
_COUNTED: Mapping[type[Fact], tuple[Metric, str]] = {
    facts.BrokeOff: (table.BROKEN_OFF, ""),
    facts.Withheld: (table.WITHHELD, ""),
    facts.ClosedOut: (table.CHECKS, "cause result"),
    facts.Rescued: (table.RESCUES, "syntax"),
    facts.Refused: (table.REFUSALS, "reason"),
    facts.RejectedReply: (table.REJECTIONS, "defect"),
    facts.Healed: (table.HEALINGS, "what"),
    facts.Omitted: (table.OMISSIONS, "what"),
    facts.Repaired: (table.REPAIRS, "name"),
    facts.Coerced: (table.REPAIRS, "name"),
    facts.Renamed: (table.REPAIRS, "name"),
    facts.Dropped: (table.REPAIRS, "name"),
}
