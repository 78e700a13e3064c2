"""Exchanges written by hand; tests/integration/test_recorded_runs.py replays what was recorded."""

import pytest

from proxy.conversation.replies import ReplyEvent, ReplyFinished, TextDelta
from proxy.observability.recording import (
    Piece,
    RecordedExchange,
    RecordedOutcome,
    RecordedRound,
    RecordedRun,
)
from proxy.observability.replayed_turns import ReplayedTurns, lost_generations
from proxy.profiles.files import load_profiles
from tests.fakes.recorded import exchange

PROFILES = load_profiles(None)
CALLED: tuple[Piece, ...] = (
    ["call", 0, "1", "get_weather"],
    ["arguments", 0, '{"city": "Paris"}'],
    ["finished", "tool_calls"],
)
SAID: tuple[Piece, ...] = (
    ["call", 0, "2", "respond"],
    ["arguments", 0, '{"message": "Fine."}'],
    ["finished", "tool_calls"],
)
LOST: tuple[Piece, ...] = (["failed", "context_overflow"],)
SUNNY = RecordedOutcome(
    name="get_weather", arguments='{"city": "Paris"}', text="sunny", status="done"
)


def run_of(*rounds: RecordedRound, generations: tuple[tuple[Piece, ...], ...]) -> RecordedExchange:
    run = RecordedRun(owned=("get_weather",), most_rounds=3, most_failed_rounds=3, rounds=rounds)
    return exchange(*generations).model_copy(update={"run": run})


def played(recorded: RecordedExchange) -> tuple[ReplayedTurns, list[ReplyEvent]]:
    turns = ReplayedTurns(recorded, PROFILES)
    return turns, [*turns.events()]


ONE, LAST = RecordedRound(generations=1, outcomes=(SUNNY,)), RecordedRound(generations=1)


def test_what_became_of_a_call_leads_to_the_next_question() -> None:
    turns, events = played(run_of(ONE, LAST, generations=(CALLED, SAID)))
    assert [event for event in events if isinstance(event, TextDelta)] == [TextDelta("Fine.")]
    assert isinstance(events[-1], ReplyFinished)
    assert [one.role for one in turns.asked[1].messages] == ["user", "assistant", "tool"]
    assert (turns.unfinished, turns.following) == ("", None)


def test_a_run_ends_where_its_calls_are_others() -> None:
    other = SUNNY.model_copy(update={"arguments": "{}"})
    turns, _ = played(
        run_of(ONE.model_copy(update={"outcomes": (other,)}), LAST, generations=(CALLED, SAID))
    )
    assert (turns.unfinished, len(turns.asked)) == ("calls other tools", 1)


def test_a_run_that_is_over_sooner_leaves_generations_over() -> None:
    turns, _ = played(run_of(LAST, LAST, generations=(SAID, SAID)))
    assert (turns.unfinished, len(turns.asked)) == ("", 1)


def test_a_run_whose_model_says_nothing_more_has_no_end() -> None:
    turns, _ = played(run_of(ONE, RecordedRound(generations=0), generations=(CALLED,)))
    assert turns.unfinished == "asks again"
    following = turns.following
    assert following is not None
    assert following.messages[-1].text == "sunny"


def test_a_run_without_rounds_asks_nothing() -> None:
    turns, events = played(run_of(generations=()))
    assert (events, turns.asked, turns.following) == ([], [], None)


def test_generations_of_prompts_that_proved_too_long_are_lost_in_any_round() -> None:
    assert lost_generations(exchange(SAID)) == 0
    assert lost_generations(exchange(LOST, SAID)) == 1
    two = RecordedRound(generations=2)
    recorded = run_of(ONE, two, generations=(CALLED, LOST, SAID))
    assert lost_generations(recorded) == 1
    assert played(recorded)[0].unfinished == ""


def test_a_generation_without_an_end_makes_no_sense() -> None:
    with pytest.raises(ValueError, match="has to end"):
        played(exchange((["text", "It"],)))
