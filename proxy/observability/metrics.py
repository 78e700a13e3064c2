"""The sink for metrics: every record changes some of the metrics in `metrics.toml`.

One process counts in Python numbers, which prometheus_client collects at a scrape. Several workers
count in memory-mapped files of prometheus_client. The parent process sets the folder of these files
in an environment variable before it starts a worker (`share_folder`), because prometheus_client
reads the variable on import.
"""

import os
import tempfile
from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from itertools import accumulate
from typing import Literal, TypeAlias

import msgspec
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
from proxy.observability.record import AttemptRecord, RequestRecord

Labels: TypeAlias = tuple[str, ...]
Family: TypeAlias = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily

_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_OTHER = "other"
_NONE = "none"
# How gauges of several workers are combined, if not by their sum
# (https://prometheus.github.io/client_python/multiprocess/).
_MODES: Mapping[str, Literal["livemostrecent", "livemin", "livesum"]] = {
    "temper_backend_up": "livemostrecent",  # every worker checks the same server
    "temper_backend_server_up": "livemostrecent",
    "temper_backend_restarts": "livemostrecent",
    "temper_tool_server_up": "livemostrecent",
    "temper_state_up": "livemin",  # each worker has a connection: report 0 if any of them is down
}


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; `buckets` are the upper bounds of a histogram."""

    name: str
    meaning: str
    labels: tuple[str, ...] = ("model",)
    buckets: tuple[float, ...] = ()

    @property
    def kind(self) -> Literal["counter", "gauge", "histogram"]:
        if self.buckets:
            return "histogram"
        return "counter" if self.name.endswith("_total") else "gauge"


class _Table(msgspec.Struct):
    metrics: tuple[Metric, ...]


_FILE = files("proxy.observability") / "metrics.toml"
_TABLE = msgspec.toml.decode(_FILE.read_bytes(), type=_Table)
METRICS = {metric.name: metric for metric in _TABLE.metrics}


@contextmanager
def share_folder() -> Generator[str, None, None]:
    """Share metrics among the processes started within the block; yields their folder."""
    previous = os.environ.get(_FOLDER)
    with tempfile.TemporaryDirectory(prefix="temper-metrics-") as folder:
        os.environ[_FOLDER] = folder
        try:
            yield folder
        finally:
            if previous is None:
                del os.environ[_FOLDER]
            else:
                os.environ[_FOLDER] = previous


def forget_process(process_id: int, folder: str) -> None:
    """Remove a finished process from the gauges; its counters stay, because sums must not fall."""
    mark_process_dead(process_id, folder)  # type: ignore[no-untyped-call]


class _Distribution:
    """One histogram. Its buckets are not cumulative, so that a value changes only one bucket."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, metric: Metric) -> None:
        self.bounds = metric.buckets
        self.counts = [0] * (len(metric.buckets) + 1)
        self.total = 0.0


class _LocalSeries(Collector):
    """Series as Python numbers.

    A request changes about twenty series, and prometheus_client would lock at each change.
    """

    def __init__(self) -> None:
        self._values: dict[str, dict[Labels, float]] = {name: {} for name in METRICS}
        self._distributions: dict[str, dict[Labels, _Distribution]] = {name: {} for name in METRICS}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def add(self, metric: str, labels: Labels, by: float) -> None:
        values = self._values[metric]
        values[labels] = values.get(labels, 0.0) + by

    def put(self, metric: str, labels: Labels, value: float) -> None:
        self._values[metric][labels] = value

    def forget(self, metric: str, labels: Labels) -> None:
        del self._values[metric][labels]

    def measure(self, metric: str, labels: Labels, value: float) -> None:
        distributions = self._distributions[metric]
        distribution = distributions.get(labels)
        if distribution is None:
            distribution = distributions[labels] = _Distribution(METRICS[metric])
        # `bisect_left`, because an upper bound is inclusive (`le`)
        distribution.counts[bisect_left(distribution.bounds, value)] += 1
        distribution.total += value

    def registry(self) -> CollectorRegistry:
        return self._registry

    def collect(self) -> Iterator[Family]:
        for name, metric in METRICS.items():
            meaning, labels = metric.meaning, metric.labels
            if metric.kind == "histogram":
                family = HistogramMetricFamily(name, meaning, labels=labels)
                bounds = [*map(floatToGoString, metric.buckets), "+Inf"]
                for key, values in self._distributions[name].items():
                    # prometheus_client expects floats
                    counts = accumulate(values.counts, initial=0.0)
                    next(counts)
                    family.add_metric(key, [*zip(bounds, counts, strict=True)], values.total)
                yield family
                continue
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            plain = kind(name, meaning, labels=labels)
            for key, value in self._values[name].items():
                plain.add_metric(key, value)
            yield plain


class _SharedSeries:
    """Series of prometheus_client, which several workers write to files in one folder."""

    def __init__(self, folder: str) -> None:
        # otherwise prometheus_client exports an additional `_created` line for each series
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = CollectorRegistry()
        self._folder = folder
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        for name, metric in METRICS.items():
            meaning, labels = metric.meaning, metric.labels
            if metric.kind == "counter":
                self._counters[name] = Counter(name, meaning, labels, registry=registry)
            elif metric.kind == "gauge":
                mode = _MODES.get(name, "livesum")
                self._gauges[name] = Gauge(
                    name, meaning, labels, registry=registry, multiprocess_mode=mode
                )
            else:
                self._histograms[name] = Histogram(
                    name, meaning, labels, registry=registry, buckets=metric.buckets
                )

    def add(self, metric: str, labels: Labels, by: float) -> None:
        series = self._counters.get(metric) or self._gauges[metric]
        series.labels(*labels).inc(by)

    def put(self, metric: str, labels: Labels, value: float) -> None:
        self._gauges[metric].labels(*labels).set(value)

    def forget(self, metric: str, labels: Labels) -> None:
        self._gauges[metric].remove(*labels)

    def measure(self, metric: str, labels: Labels, value: float) -> None:
        self._histograms[metric].labels(*labels).observe(value)

    def registry(self) -> CollectorRegistry:
        # a separate registry: the registry of the metrics themselves would export them twice
        registry = CollectorRegistry()
        MultiProcessCollector(registry, self._folder)  # type: ignore[no-untyped-call]
        return registry


class Metrics:
    """The metrics of this process, or its part of the metrics of several workers.

    Models that are not configured are counted as `other`, because a client could create a series
    with each invented name.
    """

    def __init__(self) -> None:
        folder = os.environ.get(_FOLDER)
        self._series = _SharedSeries(folder) if folder else _LocalSeries()
        self._loads: dict[str, ServiceLoad] = {}
        self._clients: set[str] = set()
        self._tool_servers: set[str] = set()

    def follow(self, services: Iterable[str]) -> None:
        self._loads = {service: ServiceLoad(self._series, (service,)) for service in services}
        # Create the gauges with 0. A shared file has no series before its first change, and a
        # missing gauge looks like an error.
        for load in self._loads.values():
            load.wait(0)
            load.run(0, 0.0)

    def take(self, record: RequestRecord) -> None:
        model = record.service if record.service in self._loads else _OTHER
        outcome = record.outcome.value if record.outcome is not None else _NONE
        count, key = self._series.add, (model,)
        count("temper_requests_total", (model, record.dialect, str(record.status), outcome), 1)
        if record.left is not None:
            count("temper_cancelled_requests_total", (model, record.left), 1)
        self._measure("temper_request_duration_seconds", key, record.seconds)
        self._measure("temper_overhead_seconds", key, record.overhead)
        self._measure("temper_time_to_first_token_seconds", key, record.first_token)
        self._measure("temper_queue_duration_seconds", key, record.queued)
        generated_by = _answering_model(record) or model
        for kind, number in _tokens(record):
            count("temper_tokens_total", (generated_by, kind), number)
        if record.client is not None:
            self._count_client(record, record.client, outcome)
        for attempt in record.attempts:
            sent_to, result = attempt.model or model, _result(attempt, record)
            count("temper_attempts_total", (sent_to, attempt.kind, result), 1)
            if attempt.error is not None:
                count("temper_backend_errors_total", (sent_to, attempt.error), 1)
        for fact in record.facts:
            self._count_fact(fact, model)
        if record.tools:
            self._count_tools(record, model)

    def load(self, service: str) -> "ServiceLoad":
        return self._loads[service]

    def report_backend(self, service: str, are_up: Mapping[str, bool], *, restarts: int) -> None:
        """Report the state of each server of a model; the model is up if any server is up."""
        self._series.put("temper_backend_up", (service,), int(any(are_up.values())))
        for server, is_up in are_up.items():
            self._series.put("temper_backend_server_up", (service, server), int(is_up))
        self._series.put("temper_backend_restarts", (service,), restarts)

    def report_tool_servers(self, are_up: Mapping[str, bool]) -> None:
        for name in self._tool_servers - {*are_up}:
            self._series.forget("temper_tool_server_up", (name,))
        self._tool_servers = {*are_up}
        for name, is_up in are_up.items():
            self._series.put("temper_tool_server_up", (name,), int(is_up))

    def count_unstored(self, reason: str) -> None:
        self._series.add("temper_unstored_responses_total", (reason,), 1)

    def report_state(self, server: str, *, is_up: bool) -> None:
        self._series.put("temper_state_up", (server,), int(is_up))

    def count_state_error(self, operation: str) -> None:
        self._series.add("temper_state_errors_total", (operation,), 1)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        encode, content_type = choose_encoder(accept)
        return encode(self._series.registry()), content_type

    def _measure(self, metric: str, labels: Labels, value: float | None) -> None:
        if value is not None:
            self._series.measure(metric, labels, value)

    def _count_client(self, record: RequestRecord, client: str, outcome: str) -> None:
        """Count a request for the owner of its API key; at most 200 owners have a series."""
        # the file of keys can be edited while Temper runs, so it does not limit the number of names
        if client not in self._clients and len(self._clients) >= 200:
            client = _OTHER
        self._clients.add(client)
        self._series.add("temper_client_requests_total", (client, outcome), 1)
        for kind, number in _tokens(record):
            self._series.add("temper_client_tokens_total", (client, kind), number)

    def _count_fact(self, fact: Fact, model: str) -> None:
        if isinstance(fact, facts.Compacted):
            self._series.measure("temper_context_tokens", (model,), fact.sent)
            if fact.is_new:
                self._series.add("temper_compactions_total", (model, str(fact.tier)), 1)
        elif isinstance(fact, facts.RoundsMade):
            self._series.measure("temper_conversation_rounds", (model,), fact.rounds)
        elif (entry := _COUNTED_FACTS.get(type(fact))) is not None:
            metric, fields = entry
            labels = (model, *[str(getattr(fact, field)) for field in fields.split()])
            self._series.add(metric, labels, 1)

    def _count_tools(self, record: RequestRecord, model: str) -> None:
        for tool in record.tools:
            self._series.add("temper_tool_calls_total", (tool.server, tool.status), 1)
            seconds = tool.seconds if tool.status != "refused" else None
            self._measure("temper_tool_duration_seconds", (tool.server,), seconds)
        self._series.add(
            "temper_rounds_total", (model,), len({tool.round for tool in record.tools})
        )


@dataclass(frozen=True, slots=True)
class ServiceLoad:
    """The gauges of one model: waiting and running requests, and their share of the KV cache."""

    _series: _LocalSeries | _SharedSeries
    _labels: Labels

    def wait(self, by: int, priority: str = "normal") -> None:
        self._series.add("temper_requests_waiting", self._labels, by)
        self._series.add("temper_requests_waiting_by_priority", (*self._labels, priority), by)

    def run(self, by: int, share: float) -> None:
        self._series.add("temper_requests_running", self._labels, by)
        self._series.add("temper_kv_cache_usage_ratio", self._labels, share)


def _tokens(record: RequestRecord) -> list[tuple[str, int]]:
    """Return the reported numbers of tokens by kind."""
    tokens = record.tokens
    kinds = (("input", tokens.prompt), ("cached", tokens.cached), ("output", tokens.output))
    # a counter raises ValueError for a negative number, which a broken backend may report
    return [(kind, max(0, number)) for kind, number in kinds if number is not None]


def _answering_model(record: RequestRecord) -> str:
    """Return the fallback model if it generated the last accepted reply, else ""."""
    if not record.attempts or record.attempts[-1].defect is not None:
        return ""
    return record.attempts[-1].model if record.outcome is not None else ""


def _result(attempt: AttemptRecord, record: RequestRecord) -> str:
    if attempt.error is not None:
        return "failed"
    if attempt.defect is not None:
        return "rejected"
    return "accepted" if record.outcome is not None else "cancelled"


# type of fact -> its metric, and the fields of the fact that become labels of the metric
_COUNTED_FACTS: Mapping[type[Fact], tuple[str, str]] = {
    facts.BrokeOff: ("temper_broken_off_calls_total", ""),
    facts.Withheld: ("temper_withheld_attempts_total", ""),
    facts.Resent: ("temper_resent_requests_total", ""),
    facts.ClosedOut: ("temper_close_out_checks_total", "cause result"),
    facts.FellBack: ("temper_fallbacks_total", "result"),
    facts.Rescued: ("temper_rescued_calls_total", "syntax"),
    facts.Refused: ("temper_refused_calls_total", "reason"),
    facts.RejectedReply: ("temper_rejected_replies_total", "defect"),
    facts.Healed: ("temper_healings_total", "what"),
    facts.Omitted: ("temper_omissions_total", "what"),
    facts.Repaired: ("temper_repairs_total", "name"),
    facts.Coerced: ("temper_repairs_total", "name"),
    facts.Renamed: ("temper_repairs_total", "name"),
    facts.Dropped: ("temper_repairs_total", "name"),
}
