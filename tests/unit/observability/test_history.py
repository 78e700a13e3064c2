import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from proxy.facts import ReplyOutcome
from proxy.observability.history import (
    BUCKETS,
    STEP,
    Counts,
    History,
    kind_of,
    percentile,
    totals_of,
)
from proxy.observability.metrics import Metrics
from proxy.observability.record import CLIENT_LEFT, RequestRecord, Tokens
from tests.fakes.exposition import Exposition

RECORD = RequestRecord(id="r", begun_at=0.0, seconds=1.0, status=200, service="one")

records = st.builds(
    RequestRecord,
    id=st.just("r"),
    begun_at=st.just(0.0),
    seconds=st.just(1.0),
    status=st.sampled_from([200, 400, CLIENT_LEFT, 502]),
    service=st.sampled_from([None, "one", "two"]),
    outcome=st.sampled_from([None, *ReplyOutcome]),
    tokens=st.builds(
        Tokens, *[st.one_of(st.none(), st.integers(min_value=-1, max_value=9)) for _ in range(3)]
    ),
    first_token=st.one_of(st.none(), st.floats(min_value=0, max_value=9)),
)


@given(st.lists(st.tuples(records, st.floats(min_value=0, max_value=40)), max_size=30))
def test_counts_and_buckets_of_the_history_equal_the_prometheus_counters(
    finished: list[tuple[RequestRecord, float]],
) -> None:
    history, metrics, now = History(), Metrics(), 10_000.0
    metrics.follow(["one", "two"])
    for record, pause in finished:
        now += pause
        history.count(record, now)
        metrics.take(record)
    seen = Exposition.read(metrics.exposition("")[0].decode())
    totals = totals_of([history.counts()], now)
    for name in ("one", "two", "other"):
        counts = totals.start.get(name, Counts())
        for outcome in ReplyOutcome:
            counted = seen.value("temper_requests_total", model=name, outcome=outcome.value)
            assert getattr(counts, outcome.value) == counted
        assert counts.prompt == seen.value("temper_tokens_total", model=name, type="input")
        assert counts.output == seen.value("temper_tokens_total", model=name, type="output")
    assert totals.start[""].requests == totals.hour[""].requests == len(finished)
    if now < 10_000 + STEP * (BUCKETS - 1):
        points = history.points(now)
        assert sum(point.clean for point in points) == totals.start[""].clean
        assert sum(point.output for point in points) == totals.start[""].output


def test_a_request_is_counted_by_its_outcome_unless_it_failed_or_its_client_left() -> None:
    assert kind_of(replace(RECORD, outcome=ReplyOutcome.CLEAN)) == "clean"
    assert kind_of(replace(RECORD, status=502)) == "failed"
    assert kind_of(replace(RECORD, status=CLIENT_LEFT)) == "left"


def test_a_prompt_counts_as_measured_only_if_its_cached_tokens_were_reported() -> None:
    history = History()
    history.count(replace(RECORD, tokens=Tokens(100, 80, 1)), 0.0)
    history.count(replace(RECORD, tokens=Tokens(100, None, 1)), 0.0)
    counts = totals_of([history.counts()], 0.0).start["one"]
    assert (counts.prompt, counts.measured, counts.cached) == (200, 100, 80)


def test_a_request_older_than_an_hour_is_in_the_total_but_not_in_the_last_hour() -> None:
    history = History()
    history.count(RECORD, 0.0)
    history.count(RECORD, 3000.0)
    totals = totals_of([history.counts()], 3700.0)
    assert (totals.hour[""].requests, totals.start[""].requests) == (1, 2)


def test_the_number_of_services_and_buckets_is_limited() -> None:
    history = History()
    for number in range(500):
        history.count(replace(RECORD, service=f"s{number}", first_token=0.1), number * 5.0)
    assert len(totals_of([history.counts()], 2500.0).start) <= 66
    assert totals_of([history.counts()], 2500.0).start["other"].requests > 400
    assert len(history.points(2500.0)) <= BUCKETS
    for _ in range(1000):
        history.count(replace(RECORD, first_token=9.0), 2500.0)
    assert history.points(2500.0)[-1].median == 9.0


def test_a_bucket_without_events_shows_the_requests_that_are_still_running() -> None:
    history = History()
    history.note_load(2, 1, 1.0)
    history.note_load(1, 0, 2.0)
    before, now = history.points(60.0)
    assert (before.running, before.waiting) == (2, 1)
    assert (now.at, now.running, now.waiting) == (60, 1, 0)
    assert history.points(60.0, most=1) == (now,)


@pytest.mark.parametrize(("share", "value"), [(0.5, 2.0), (0.95, 4.0), (0.0, 1.0), (1.0, 4.0)])
def test_a_percentile_is_always_an_element_of_the_list(share: float, value: float) -> None:
    assert percentile([3.0, 1.0, 4.0, 2.0], share) == value


def test_a_request_that_waited_one_millisecond_is_not_shown_as_waiting() -> None:
    history = History()
    history.note_load(0, 1, 1.0)
    history.note_load(1, 0, 1.001)
    (point,) = history.points(2.0)
    assert (point.running, point.waiting) == (1, 0)


def test_the_returned_counts_are_a_copy_that_later_requests_do_not_change() -> None:
    history = History()
    history.count(RECORD, 58.0)
    history.count(RECORD, 60.0)  # in another bucket, of another minute
    published = history.counts()
    history.count(RECORD, 61.0)
    assert [minute for minute, _ in published.minutes] == [0, 1]
    assert [counts["one"].requests for _, counts in published.minutes] == [1, 1]
    assert published.start["one"].requests == 2
    assert history.counts().start["one"].requests == 3
