"""The sink that counts: every record moves some of the metrics in `metric_table`.

Several workers add up through files: the parent names a folder (`shared_folder`) in the variable
that prometheus-client looks at when it is imported, so it has to be set before a worker starts.
"""

import os
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

from proxy import facts
from proxy.facts import Fact
from proxy.observability import metric_table as table
from proxy.observability.metric_table import Metric
from proxy.observability.record import AttemptRecord, RequestRecord

_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_OTHER = "other"
_NONE = "none"
_MOST_CLIENTS = 200
# by whoever looks; anybody finds the same
_FOUND = (table.UP, table.RESTARTS, table.TOOL_SERVER_UP)
# every worker finds out for itself
_LEAST = (table.STATE_UP,)


@contextmanager
def shared_folder() -> Generator[str, None, None]:
    """Let the processes that are started within the block count together; gives their folder."""
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
    """Take what a process that ended had at that moment out of the gauges; its counts stay."""
    mark_process_dead(process_id, folder)  # type: ignore[no-untyped-call]


class Metrics:
    """Counts requests."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call] # one line less for each series
        self._registry = CollectorRegistry()
        self._loads: dict[str, ServiceLoad] = {}
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        self._series: dict[tuple[str, ...], Counter] = {}
        self._clients: set[str] = set()
        self._tool_servers: set[str] = set()
        self._measured: dict[tuple[str, ...], Histogram] = {}
        for metric in table.METRICS:
            self._register(metric)

    def follow(self, services: Iterable[str]) -> None:
        """Take these names for services; any other is not told apart."""
        self._loads = {service: self._follow(service) for service in services}

    def take(self, record: RequestRecord) -> None:
        """Count a request that is over."""
        model = record.service if record.service in self._loads else _OTHER
        outcome = record.outcome.value if record.outcome is not None else _NONE
        self._count(table.REQUESTS, model, record.dialect, str(record.status), outcome)
        if record.left is not None:
            self._count(table.CANCELLED, model, record.left.value)
        self._measure(table.DURATION, model, record.seconds)
        self._measure(table.OVERHEAD, model, record.overhead)
        self._measure(table.FIRST_TOKEN, model, record.first_token)
        self._measure(table.QUEUED, model, record.queued)
        self._count_tokens(record, model)
        if record.client is not None:
            self._count_client(record, record.client, outcome)
        for attempt in record.attempts:
            self._count(table.ATTEMPTS, model, attempt.kind, _result(attempt, record))
            if attempt.error is not None:
                self._count(table.BACKEND_ERRORS, model, attempt.error)
        for fact in record.facts:
            self._count_fact(fact, model)
        for tool in record.tools:
            self._count(table.TOOL_CALLS, tool.server, tool.status)
            ran = tool.seconds if tool.status != "refused" else None
            self._measure(table.TOOL_DURATION, tool.server, ran)
        if record.tools:
            self._count(table.ROUNDS, model, by=len({tool.round for tool in record.tools}))

    def load(self, service: str) -> "ServiceLoad":
        """Return what follows the load of a service."""
        return self._loads[service]

    def find(self, service: str, *, is_up: bool, restarts: int) -> None:
        """Note whether a service's backend would answer now, and how often it was restarted."""
        self._gauges[table.UP.name].labels(service).set(int(is_up))
        self._gauges[table.RESTARTS.name].labels(service).set(restarts)

    def find_tool_servers(self, are_up: Mapping[str, bool]) -> None:
        """Note which tool servers there are now, and whether each is ready."""
        gauge = self._gauges[table.TOOL_SERVER_UP.name]
        for name in self._tool_servers - {*are_up}:
            gauge.remove(name)
        self._tool_servers = {*are_up}
        for name, is_up in are_up.items():
            gauge.labels(name).set(int(is_up))

    def lose(self, reason: str) -> None:
        """Count a response that could not be stored."""
        self._count(table.UNSTORED, reason)

    def find_state(self, server: str, *, is_up: bool) -> None:
        """Note whether the store that replicas share can be read and written."""
        self._gauges[table.STATE_UP.name].labels(server).set(int(is_up))

    def fail_state(self, operation: str) -> None:
        """Count an operation that the store did not carry out."""
        self._count(table.STATE_ERRORS, operation)

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in a format that `accept` names, and its content type."""
        registry = self._registry
        if folder := os.environ.get(_FOLDER):
            registry = CollectorRegistry()
            MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
        encode, content_type = choose_encoder(accept)
        return encode(registry), content_type

    def _follow(self, service: str) -> "ServiceLoad":
        load = ServiceLoad(
            self._gauges[table.WAITING.name].labels(service),
            self._gauges[table.RUNNING.name].labels(service),
            self._gauges[table.CACHE.name].labels(service),
        )
        load.wait(0)  # with several workers only what was touched is shown
        load.run(0, 0.0)
        return load

    def _register(self, metric: Metric) -> None:
        name, meaning, labels = metric.name, metric.meaning, metric.labels
        registry = self._registry
        match metric.kind:
            case "counter":
                self._counters[name] = Counter(name, meaning, labels, registry=registry)
            case "gauge":
                self._gauges[name] = Gauge(
                    name,
                    meaning,
                    labels,
                    registry=registry,
                    multiprocess_mode=_mode(metric),
                )
            case "histogram":
                self._histograms[name] = Histogram(
                    name, meaning, labels, registry=registry, buckets=metric.buckets
                )

    def _count(self, metric: Metric, *labels: str, by: int = 1) -> None:
        """Count; looking a series up by its labels costs more than counting."""
        key = (metric.name, *labels)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = self._counters[metric.name].labels(*labels)
        series.inc(by)

    def _measure(self, metric: Metric, label: str, value: float | None) -> None:
        if value is None:
            return
        key = (metric.name, label)
        series = self._measured.get(key)
        if series is None:
            series = self._measured[key] = self._histograms[metric.name].labels(label)
        series.observe(value)

    def _count_tokens(self, record: RequestRecord, model: str) -> None:
        for kind, number in _tokens(record):
            self._count(table.TOKENS, model, kind, by=number)

    def _count_client(self, record: RequestRecord, client: str, outcome: str) -> None:
        """Count for the owner of a key; names come from a file, which may be changed for ever."""
        if client not in self._clients and len(self._clients) >= _MOST_CLIENTS:
            client = _OTHER
        self._clients.add(client)
        self._count(table.CLIENT_REQUESTS, client, outcome)
        for kind, number in _tokens(record):
            self._count(table.CLIENT_TOKENS, client, kind, by=number)

    def _count_fact(self, fact: Fact, model: str) -> None:
        match fact:
            case facts.BrokeOff():
                self._count(table.BROKEN_OFF, model)
            case facts.Withheld():
                self._count(table.WITHHELD, model)
            case facts.Compacted():
                self._measure(table.CONTEXT, model, fact.sent)
                if fact.is_new:
                    self._count(table.COMPACTIONS, model, str(fact.tier))
            case _:
                if (told := _told(fact)) is not None:
                    self._count(told[0], model, told[1])


def _mode(metric: Metric) -> Literal["livemostrecent", "livemin", "livesum"]:
    """Tell what the gauges of several workers come to."""
    if metric in _FOUND:
        return "livemostrecent"
    return "livemin" if metric in _LEAST else "livesum"


@dataclass(frozen=True, slots=True)
class ServiceLoad:
    """Follows the load of one service."""

    waiting: Gauge
    running: Gauge
    cache: Gauge

    def wait(self, by: int) -> None:
        """Note that so many requests more wait for a slot."""
        self.waiting.inc(by)

    def run(self, by: int, share: float) -> None:
        """Note that so many more have one, and with them this share of all the slots' room."""
        self.running.inc(by)
        self.cache.inc(share)


def _tokens(record: RequestRecord) -> Iterator[tuple[str, int]]:
    """Return what a reply cost, by the kind of tokens, as far as it was told."""
    tokens = record.tokens
    counted = {"input": tokens.prompt, "cached": tokens.cached, "output": tokens.output}
    for kind, number in counted.items():
        if number is not None:
            yield kind, max(0, number)


def _result(attempt: AttemptRecord, record: RequestRecord) -> str:
    if attempt.error is not None:
        return "failed"
    if attempt.defect is not None:
        return "rejected"
    return "accepted" if record.outcome is not None else "cancelled"


# what counts the facts that bring a word of their own
_WORDED: Mapping[type[Fact], Metric] = MappingProxyType(
    {
        facts.Rescued: table.RESCUES,
        facts.Refused: table.REFUSALS,
        facts.RejectedReply: table.REJECTIONS,
        facts.Healed: table.HEALINGS,
        facts.Omitted: table.OMISSIONS,
    }
)


def _told(fact: Fact) -> tuple[Metric, str] | None:
    """Return what counts a fact, and the word for it."""
    match fact:
        case facts.Rescued(word) | facts.Refused(word) | facts.RejectedReply(word):
            return _WORDED[type(fact)], word
        case facts.Healed(word) | facts.Omitted(word):
            return _WORDED[type(fact)], word
        case facts.Repaired() | facts.Coerced() | facts.Renamed() | facts.Dropped():
            return table.REPAIRS, type(fact).__name__.lower()
        case _:
            return None
