from benchmarks.healthy.client import Seen
from benchmarks.healthy.ledger import ReceivedRequest
from benchmarks.healthy.replies import Wish
from benchmarks.healthy.request import body_of
from benchmarks.healthy.tally import Batch, Pair, counted, problems_of, timed, timed_name, worst

TEXT = "All 1 tests pass. Nothing else in the repository has changed since the last release."
WISH = Wish("prose", 1)


def seen(text: str, first: float) -> Seen:
    arrived = {"text": [(1, first), (len(text), first + 1)]}
    return Seen(200, [("text", text)], "stop", {}, "", arrived, total=first + 2)


def received(side: str, *, wish: Wish = WISH) -> ReceivedRequest:
    named = Wish(wish.kind, wish.number, id=wish.named(side))
    return ReceivedRequest(named.id, body_of(named), [0.5])


def batch(through: Seen, generations: int = 1, wish: Wish = WISH) -> Batch:
    ledger = {"1-direct": [received("direct")], "1-temper": [received("temper")] * generations}
    return Batch([Pair(wish, seen(TEXT, 1.0), through)], ledger)


def test_a_healthy_reply_is_counted_as_one() -> None:
    found = batch(seen(TEXT, 1.0))
    assert counted(found) == {
        "replies": 1,
        "changed": 0,
        "again": 0,
        "generations": 1,
        "prompts": 0,
    }
    assert problems_of("prose", found) == []


def test_a_reply_that_was_changed_or_asked_for_again_is_counted_and_named() -> None:
    found = batch(seen("No.", 1.0), generations=3)
    counts = counted(found)
    assert (counts["changed"], counts["again"], counts["generations"]) == (1, 1, 3)
    assert problems_of("prose", found) == [f"prose: text 'No.', not text {TEXT[:80]!r}"]


def test_a_prompt_that_was_changed_is_counted_and_named() -> None:
    found = batch(seen(TEXT, 1.0))
    found.ledger["1-temper"] = [received("temper", wish=Wish("one call", 1))]
    assert counted(found)["prompts"] == 1
    assert problems_of("prose", found) == ["prose: the messages were changed"]
    found.ledger.clear()
    assert problems_of("prose", found) == ["prose: no request arrived"]


def test_what_was_added_is_the_difference_of_the_percentiles_in_milliseconds() -> None:
    figures = timed(batch(seen(TEXT, 1.25)))
    for name in ("first_content_p50", "first_content_p99", "total_p50", "delay_p50"):
        assert figures[name] == 250
    assert figures["generations"] == 1
    assert "first_argument_p50" not in figures


def test_what_the_rules_hold_is_counted_and_makes_nothing_late() -> None:
    wish = Wish("one call", 15)
    arrived = {"name 0": [(11, 1.0)], "arguments 0": [(26, 2.0)]}
    both = Seen(200, reason="tool_calls", arrived=arrived)
    sent = [place / 100 for place in range(17)]
    body = body_of(wish)
    ledger = {wish.named(side): [ReceivedRequest("", body, sent)] for side in ("direct", "temper")}
    figures = timed(Batch([Pair(wish, both, both)], {}))
    assert (figures["held_p50"], figures["held_p99"]) == (3, 7)
    assert "late_p50" not in figures
    figures = timed(Batch([Pair(wish, both, both)], ledger))
    assert (figures["delay_p50"], figures["first_argument_held_p50"]) == (0, 5)
    assert round(figures["first_argument_p50"]) == -50
    assert round(figures["late_p50"]) == -60


def test_of_a_whole_answer_only_the_end_is_timed() -> None:
    figures = timed(batch(seen(TEXT, 1.25), wish=Wish("prose", 1, is_streamed=False)))
    assert figures["total_p50"] == 250
    assert "first_content_p50" not in figures
    assert "delay_p50" not in figures


def test_a_reply_that_failed_has_no_times() -> None:
    figures = timed(batch(Seen(502, problem="broken")))
    assert figures == {"changed": 1, "prompts": 0, "generations": 1}


def test_the_summary_has_the_slowest_kind_and_all_changes() -> None:
    figures = {
        timed_name("prose", "streamed", "first_content_p50"): 1.0,
        timed_name("prose and a call", "streamed", "first_content_p50"): 3.0,
        timed_name("prose", "streamed", "changed"): 2.0,
        timed_name("prose", "whole", "changed"): 1.0,
        "auto: prose: changed": 9.0,
    }
    assert worst(figures) == {"first_content_p50": 3.0, "changed": 3.0}
