"""Counts of requests since the start and for the last hour, and time series for the charts.

Theory of operation: a request is counted in a bucket of five seconds; the latest 180 buckets are
the time series. When a bucket ends, its counts are added to its minute and to the sum since the
start. Only the latest 60 minutes are stored, so memory is bounded. Callers pass the time, and this
module does no I/O.
"""

import math
from collections import deque
from collections.abc import Iterable
from statistics import median

import msgspec

from proxy.observability.record import CLIENT_LEFT, RequestRecord

ALL = ""  # the key of the sum of all services
STEP = 5  # seconds of a bucket
BUCKETS = 180  # fifteen minutes
_MINUTE = 60
_MINUTES = 60
_MOST_SAMPLES = 200  # per bucket; more samples would hardly change its percentiles
_SHORTEST_WAIT = 0.01  # seconds; if a slot is free, a request is in the queue for less time
OTHER = "other"


class Endings(msgspec.Struct):
    """The number of requests by outcome, and their prompt and output tokens."""

    clean: int = 0
    repaired: int = 0
    retried: int = 0
    fallback: int = 0
    exhausted: int = 0
    failed: int = 0
    left: int = 0
    prompt: int = 0
    output: int = 0


class Counts(Endings):
    """All counts; `measured` counts the prompt tokens of requests whose `cached` ones are known."""

    requests: int = 0
    measured: int = 0
    cached: int = 0

    def count(self, record: RequestRecord) -> None:
        kind, tokens = kind_of(record), record.tokens
        self.requests += 1
        setattr(self, kind, getattr(self, kind) + 1)
        prompt = max(0, tokens.prompt or 0)
        self.prompt += prompt
        self.output += max(0, tokens.output or 0)
        if tokens.cached is not None:
            self.measured += prompt
            self.cached += max(0, tokens.cached)

    def add(self, other: "Counts") -> None:
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def kind_of(record: RequestRecord) -> str:
    """Return the field of `Endings` that counts a request."""
    if record.outcome is not None:
        return record.outcome.value
    return "left" if record.status == CLIENT_LEFT else "failed"


class Bucket(msgspec.Struct):
    """Five seconds: the counts of the requests that ended, by service, and the peak load."""

    at: int
    counts: dict[str, Counts]
    running: int
    waiting: int
    first_tokens: list[float]


class Point(Endings, kw_only=True):
    """One point of the charts; `at` is a Unix time, times to the first token are in seconds."""

    at: int
    running: int
    waiting: int
    median: float | None
    p95: float | None


class CountsBySpan(msgspec.Struct, frozen=True):
    """The counts of the last hour and since the start, by service; "" is the sum."""

    hour: dict[str, Counts]
    start: dict[str, Counts]


class ProcessCounts(msgspec.Struct, frozen=True):
    """The counts of one process by service: since its start, and in each of the last minutes."""

    start: dict[str, Counts]
    minutes: tuple[tuple[int, dict[str, Counts]], ...]


class History:
    """The counts and the time series of one process."""

    def __init__(self) -> None:
        self._services: set[str] = set()
        # the counts of ended buckets: since the start, and for each of the latest minutes
        self._start: dict[str, Counts] = {}
        self._minutes: deque[tuple[int, dict[str, Counts]]] = deque(maxlen=_MINUTES)
        self._buckets: deque[Bucket] = deque(maxlen=BUCKETS)
        self._running = self._waiting = 0
        self._since = 0.0

    def count(self, record: RequestRecord, now: float) -> None:
        """Count a request that ended `now`, a Unix time."""
        bucket, service = self._bucket(now), self._limit_services(record.service)
        if service not in bucket.counts:
            bucket.counts[service] = Counts()
        bucket.counts[service].count(record)
        if record.first_token is not None and len(bucket.first_tokens) < _MOST_SAMPLES:
            bucket.first_tokens.append(record.first_token)

    def note_load(self, running: int, waiting: int, now: float) -> None:
        """Store the present load; the previous load counts as a peak only if it lasted 10 ms."""
        if now - self._since >= _SHORTEST_WAIT:
            self._update_peaks(now)
        self._running, self._waiting, self._since = running, waiting, now

    def counts(self) -> ProcessCounts:
        current = self._buckets[-1] if self._buckets else Bucket(0, {}, 0, 0, [])
        minutes, minute = dict(self._minutes), current.at // _MINUTE
        if current.counts:
            minutes[minute] = _sum(minutes.get(minute, {}), current.counts)
        return ProcessCounts(_sum(self._start, current.counts), tuple(minutes.items()))

    def points(self, now: float, most: int = BUCKETS) -> tuple[Point, ...]:
        """Return the `most` latest points, the oldest first; idle buckets have no point."""
        oldest = int(now // STEP) * STEP - (most - 1) * STEP
        # long requests count in each bucket, although they report no change of the load meanwhile
        self._update_peaks(now)
        return tuple(_point(bucket) for bucket in self._buckets if bucket.at >= oldest)

    def _update_peaks(self, now: float) -> None:
        bucket = self._bucket(now)
        bucket.running = max(bucket.running, self._running)
        bucket.waiting = max(bucket.waiting, self._waiting)

    def _limit_services(self, service: str | None) -> str:
        # at most 64 services have separate counts, so that memory and pages stay bounded
        is_new = service not in self._services
        if service is None or (is_new and len(self._services) >= 64):
            return OTHER
        self._services.add(service)
        return service

    def _bucket(self, now: float) -> Bucket:
        at = int(now // STEP) * STEP
        if not self._buckets or self._buckets[-1].at != at:
            if self._buckets and self._buckets[-1].counts:
                self._add_up(self._buckets[-1])
            self._buckets.append(Bucket(at, {}, self._running, self._waiting, []))
        return self._buckets[-1]

    def _add_up(self, bucket: Bucket) -> None:
        minute = bucket.at // _MINUTE
        if not self._minutes or self._minutes[-1][0] != minute:
            self._minutes.append((minute, {}))
        _add(bucket.counts, self._minutes[-1][1])
        _add(bucket.counts, self._start)


def totals_of(processes: Iterable[ProcessCounts], now: float) -> CountsBySpan:
    """Add up the counts of several processes for the last hour and since the start."""
    hour: dict[str, Counts] = {}
    start: dict[str, Counts] = {}
    for process in processes:
        for minute, counts in process.minutes:
            if minute > now // _MINUTE - _MINUTES:
                _add(counts, hour)
        _add(process.start, start)
    return CountsBySpan(
        {ALL: _sum_of_services(hour), **hour}, {ALL: _sum_of_services(start), **start}
    )


def _add(counts: dict[str, Counts], to: dict[str, Counts]) -> None:
    for service, increment in counts.items():
        to.setdefault(service, Counts()).add(increment)


def _sum(*parts: dict[str, Counts]) -> dict[str, Counts]:
    whole: dict[str, Counts] = {}
    for part in parts:
        _add(part, whole)
    return whole


def _sum_of_services(counts: dict[str, Counts]) -> Counts:
    total = Counts()
    for part in counts.values():
        total.add(part)
    return total


def _point(bucket: Bucket) -> Point:
    counts, firsts = _sum_of_services(bucket.counts), bucket.first_tokens
    return Point(
        at=bucket.at,
        running=bucket.running,
        waiting=bucket.waiting,
        median=round(median(firsts), 4) if firsts else None,
        p95=round(percentile(firsts, 0.95), 4) if firsts else None,
        **{name: getattr(counts, name) for name in Endings.__struct_fields__},
    )


def percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that this share of all values does not exceed (nearest rank)."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]
