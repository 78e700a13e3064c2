"""Counts of changed replies, and the time that Temper adds to healthy replies."""

from benchmarks.healthy.client import ClientResponse
from benchmarks.healthy.ledger import ReceivedRequest
from benchmarks.healthy.replies import ReplyChoice
from benchmarks.healthy.request import body_of
from benchmarks.healthy.tally import (
    Batch,
    Pair,
    count_changes,
    measure_times,
    problems_of,
    timed_name,
    worst,
)

TEXT = "All 1 tests pass. Nothing else in the repository has changed since the last release."
CHOICE = ReplyChoice("prose", 1)


def received_text(text: str, first: float) -> ClientResponse:
    arrived = {"text": [(1, first), (len(text), first + 1)]}
    return ClientResponse(200, [("text", text)], "stop", {}, "", arrived, total=first + 2)


def received(side: str, *, choice: ReplyChoice = CHOICE) -> ReceivedRequest:
    named = ReplyChoice(choice.kind, choice.number, id=choice.named(side))
    return ReceivedRequest(named.id, body_of(named), [0.5])


def batch(through: ClientResponse, generations: int = 1, choice: ReplyChoice = CHOICE) -> Batch:
    ledger = {"1-direct": [received("direct")], "1-temper": [received("temper")] * generations}
    return Batch([Pair(choice, received_text(TEXT, 1.0), through)], ledger)


def test_an_unchanged_reply_is_counted_once_without_problems() -> None:
    comparison = batch(received_text(TEXT, 1.0))
    assert count_changes(comparison) == {
        "replies": 1,
        "changed": 0,
        "again": 0,
        "generations": 1,
        "prompts": 0,
    }
    assert problems_of("prose", comparison) == []


def test_a_changed_and_retried_reply_is_counted_and_described() -> None:
    comparison = batch(received_text("No.", 1.0), generations=3)
    counts = count_changes(comparison)
    assert (counts["changed"], counts["again"], counts["generations"]) == (1, 1, 3)
    assert problems_of("prose", comparison) == [f"prose: text 'No.', not text {TEXT[:80]!r}"]


def test_a_changed_or_missing_prompt_is_counted_and_described() -> None:
    comparison = batch(received_text(TEXT, 1.0))
    comparison.ledger["1-temper"] = [received("temper", choice=ReplyChoice("one call", 1))]
    assert count_changes(comparison)["prompts"] == 1
    assert problems_of("prose", comparison) == ["prose: the messages were changed"]
    comparison.ledger.clear()
    assert problems_of("prose", comparison) == ["prose: no request arrived"]


def test_added_latency_is_the_difference_of_percentiles() -> None:
    figures = measure_times(batch(received_text(TEXT, 1.25)))
    for name in ("first_content_p50", "first_content_p99", "total_p50", "delay_p50"):
        assert figures[name] == 250
    assert figures["generations"] == 1
    assert "first_argument_p50" not in figures


def test_arguments_held_back_until_a_later_token_are_not_counted_as_delayed() -> None:
    choice = ReplyChoice("one call", 15)
    arrived = {"name 0": [(11, 1.0)], "arguments 0": [(26, 2.0)]}
    response = ClientResponse(200, reason="tool_calls", arrived=arrived)
    sent = [i / 100 for i in range(17)]
    body = body_of(choice)
    ledger = {
        choice.named(side): [ReceivedRequest("", body, sent)] for side in ("direct", "temper")
    }
    figures = measure_times(Batch([Pair(choice, response, response)], {}))
    assert (figures["held_p50"], figures["held_p99"]) == (3, 7)
    assert "late_p50" not in figures
    figures = measure_times(Batch([Pair(choice, response, response)], ledger))
    assert (figures["delay_p50"], figures["first_argument_held_p50"]) == (0, 5)
    assert round(figures["first_argument_p50"]) == -50
    assert round(figures["late_p50"]) == -60


def test_only_the_end_of_an_unstreamed_response_is_timed() -> None:
    figures = measure_times(
        batch(received_text(TEXT, 1.25), choice=ReplyChoice("prose", 1, is_streamed=False))
    )
    assert figures["total_p50"] == 250
    assert "first_content_p50" not in figures
    assert "delay_p50" not in figures


def test_a_failed_reply_has_no_times() -> None:
    figures = measure_times(batch(ClientResponse(502, problem="broken")))
    assert figures == {"changed": 1, "prompts": 0, "generations": 1}


def test_the_summary_has_the_highest_time_and_the_sum_of_changes() -> None:
    figures = {
        timed_name("prose", "streamed", "first_content_p50"): 1.0,
        timed_name("prose and a call", "streamed", "first_content_p50"): 3.0,
        timed_name("prose", "streamed", "changed"): 2.0,
        timed_name("prose", "whole", "changed"): 1.0,
        "auto: prose: changed": 9.0,
    }
    assert worst(figures) == {"first_content_p50": 3.0, "changed": 3.0}
