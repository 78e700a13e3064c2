from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import ReplyEvent, ReplyFinished, TextDelta
from proxy.errors import InvalidConfiguration
from proxy.guardrails.offer import TextPolicy
from proxy.observability.recording import (
    Piece,
    RecordedAnswer,
    RecordedCall,
    RecordedExchange,
    RecordedOutcome,
    RecordedRound,
    RecordedRun,
    RecordedVerdict,
)
from proxy.observability.replay import (
    BeforeAfter,
    Change,
    Nudge,
    ReplayedTurns,
    ReplayResult,
    before_after,
    document,
    lost_generations,
    replay,
    replay_file,
    summary,
)
from proxy.profiles.files import load_profiles
from tests.fakes.recorded import CALL, REQUEST, exchange

PROFILES = load_profiles(None)
CALLED: tuple[Piece, ...] = (
    ["call", 0, "1", "get_weather"],
    ["arguments", 0, '{"city": "Paris"}'],
    ["finished", "tool_calls"],
)
ANSWERED: tuple[Piece, ...] = (
    ["call", 0, "2", "respond"],
    ["arguments", 0, '{"message": "Fine."}'],
    ["finished", "tool_calls"],
)
OVERFLOWED: tuple[Piece, ...] = (["failed", "context_overflow"],)
SUNNY = RecordedOutcome(
    name="get_weather", arguments='{"city": "Paris"}', text="sunny", status="done"
)


def run_of(*rounds: RecordedRound, generations: tuple[tuple[Piece, ...], ...]) -> RecordedExchange:
    run = RecordedRun(owned=("get_weather",), most_rounds=3, most_failed_rounds=3, rounds=rounds)
    return structs.replace(exchange(*generations), run=run)


def replay_turns(recorded: RecordedExchange) -> tuple[ReplayedTurns, list[ReplyEvent]]:
    turns = ReplayedTurns(recorded, PROFILES)
    return turns, [*turns.events()]


ROUND, LAST_ROUND = RecordedRound(generations=1, outcomes=(SUNNY,)), RecordedRound(generations=1)


def test_the_replay_appends_the_recorded_tool_result_to_the_next_upstream_request() -> None:
    turns, events = replay_turns(run_of(ROUND, LAST_ROUND, generations=(CALLED, ANSWERED)))
    assert [event for event in events if isinstance(event, TextDelta)] == [TextDelta("Fine.")]
    assert isinstance(events[-1], ReplyFinished)
    assert [message.role for message in turns.sent[1].messages] == ["user", "assistant", "tool"]
    assert (turns.unfinished, turns.following) == ("", None)


def test_a_replay_stops_if_the_model_calls_differ_from_the_recorded_calls() -> None:
    other = structs.replace(SUNNY, arguments="{}")
    turns, _ = replay_turns(
        run_of(
            structs.replace(ROUND, outcomes=(other,)), LAST_ROUND, generations=(CALLED, ANSWERED)
        )
    )
    assert (turns.unfinished, len(turns.sent)) == ("calls other tools", 1)


def test_a_replay_may_end_before_the_last_recorded_generation() -> None:
    turns, _ = replay_turns(run_of(LAST_ROUND, LAST_ROUND, generations=(ANSWERED, ANSWERED)))
    assert (turns.unfinished, len(turns.sent)) == ("", 1)


def test_a_replay_that_needs_another_generation_is_unfinished() -> None:
    turns, _ = replay_turns(run_of(ROUND, RecordedRound(generations=0), generations=(CALLED,)))
    assert turns.unfinished == "asks again"
    following = turns.following
    assert following is not None
    assert following.messages[-1].text == "sunny"


def test_a_run_without_recorded_rounds_sends_no_request() -> None:
    turns, events = replay_turns(run_of(generations=()))
    assert (events, turns.sent, turns.following) == ([], [], None)
    assert replay(run_of(generations=()), PROFILES).changes[0].now == "asks again"


def test_a_generation_that_overflowed_the_context_is_skipped_in_the_replay() -> None:
    assert lost_generations(exchange(ANSWERED)) == 0
    assert lost_generations(exchange(OVERFLOWED, ANSWERED)) == 1
    two = RecordedRound(generations=2)
    recorded = run_of(ROUND, two, generations=(CALLED, OVERFLOWED, ANSWERED))
    assert lost_generations(recorded) == 1
    assert replay_turns(recorded)[0].unfinished == ""


def test_a_recorded_generation_without_finish_reason_or_error_raises_value_error() -> None:
    with pytest.raises(ValueError, match="has to end"):
        replay_turns(exchange((["text", "It"],)))


def changes(recorded: RecordedExchange) -> dict[str, tuple[str, str]]:
    return {
        change.what: (change.before, change.now) for change in replay(recorded, PROFILES).changes
    }


def test_a_replay_with_the_same_verdict_and_answer_has_no_changes() -> None:
    assert replay(exchange(), PROFILES) == ReplayResult("r", "m")


def test_a_replay_separates_reasoning_by_the_recorded_value_of_opens_thoughts() -> None:
    recorded = exchange((["text", f"I look.\n</think>\n{CALL}"], ["finished", "stop"]))
    recorded = structs.replace(
        recorded, policy=structs.replace(recorded.policy, text_policy=TextPolicy.AUTO)
    )
    knows = structs.replace(recorded.model, opens_thoughts=True)
    assert "text" in changes(recorded)
    assert changes(structs.replace(recorded, model=knows)) == {}


def test_a_call_in_text_that_is_rescued_only_in_the_replay_is_a_change() -> None:
    recorded = exchange(
        answer=RecordedAnswer(text=CALL, finish_reason="stop"),
        verdict=RecordedVerdict(outcome="clean", attempts=(("as_asked", None),), repairs=""),
    )
    assert changes(recorded) == {
        "outcome": ("clean", "repaired"),
        "repairs": ("", "rescued=hermes"),
        "text": (CALL, ""),
        "finish_reason": ("stop", "tool_calls"),
        "calls.0.name": ("", "get_weather"),
        "calls.0.arguments": ("", '{"city":"Paris"}'),
    }


def test_a_call_that_is_rejected_only_in_the_replay_is_a_change() -> None:
    recorded = exchange((["text", CALL.replace("city", "town")], ["finished", "stop"]))
    changes_ = changes(recorded)
    assert changes_["outcome"] == ("repaired", "asks again")
    assert changes_["attempts"] == ("as_asked (accepted)", "as_asked (invalid_arguments)")
    assert changes_["calls.0.name"] == ("get_weather", "")


def test_a_replay_ends_at_the_first_accepted_reply_even_if_a_retry_was_recorded() -> None:
    recorded = exchange(
        (["text", CALL], ["finished", "stop"]),
        (["text", CALL], ["finished", "stop"]),
        verdict=RecordedVerdict(
            outcome="retried",
            attempts=(("as_asked", "prose"), ("nudged", None)),
            repairs="rescued=hermes;rejected=prose",
        ),
    )
    changes_ = changes(recorded)
    assert changes_["outcome"] == ("retried", "repaired")
    assert changes_["attempts"] == ("as_asked (prose), nudged (accepted)", "as_asked (accepted)")


def test_a_replay_has_the_outcome_fails_if_the_only_recorded_generation_failed() -> None:
    assert changes(exchange((["failed", "timed_out"],)))["outcome"] == ("repaired", "fails")


def test_a_replay_of_an_invalid_request_has_the_outcome_refused_with_the_reason() -> None:
    broken: JsonObject = {**REQUEST, "messages": "none"}
    assert changes(exchange(request=broken))["outcome"][1].startswith("refused: messages")


def test_a_retry_that_was_not_made_in_the_recording_is_not_made_in_the_replay() -> None:
    prose: tuple[Piece, ...] = (["text", "Prose."], ["finished", "stop"])
    recorded = exchange(
        prose,
        answer=RecordedAnswer(text="Prose.", finish_reason="stop"),
        verdict=RecordedVerdict(
            outcome="clean", attempts=(("as_asked", "prose"),), repairs="rejected=prose;withheld=1"
        ),
    )
    assert changes(recorded) == {}


def test_a_failed_generation_is_skipped_if_its_request_was_resent_to_another_server() -> None:
    prose: tuple[Piece, ...] = (["text", "Prose."], ["finished", "stop"])
    recorded = exchange(
        (["text", "Pro"], ["failed", "unavailable"]),
        prose,
        answer=RecordedAnswer(text="Prose.", finish_reason="stop"),
        verdict=RecordedVerdict(
            outcome="retried",
            attempts=(("as_asked", None), ("as_asked", "prose")),
            repairs="rejected=prose;resent=1;withheld=1",
        ),
    )
    assert changes(recorded) == {}


@pytest.mark.parametrize("outcome", ["fallback", "exhausted"])
def test_the_reply_of_a_fallback_is_not_compared(outcome: str) -> None:
    bad: tuple[Piece, ...] = (
        ["call", 0, "1", "get_weather"],
        ["arguments", 0, "{}"],
        ["finished", "tool_calls"],
    )
    tried = (("as_asked", "invalid_arguments"), ("nudged", "invalid_arguments"))
    verdict = RecordedVerdict(
        outcome=outcome, attempts=(*tried, ("fallback", None)), repairs="rejected=invalid_arguments"
    )
    answer = RecordedAnswer(text="It is sunny.", calls=(), finish_reason="stop")
    recorded = structs.replace(exchange(bad, bad, verdict=verdict), answer=answer)
    assert changes(recorded) == {}
    repaired = structs.replace(recorded, generations=(bad, CALLED))
    assert [*changes(repaired)] == ["attempts"]


def test_an_unknown_recorded_profile_is_ignored() -> None:
    assert changes(exchange(profile="hermes")) == {}
    assert changes(exchange(profile="gone")) == {}


def test_an_exchange_without_an_outcome_is_incomplete() -> None:
    verdict = RecordedVerdict(outcome=None, attempts=(), repairs="")
    result = replay(exchange(verdict=verdict), PROFILES)
    assert (result.is_complete, result.status) == (False, "incomplete")


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (["text", "no end"],),
        (["finished", "stop"], ["finished", "stop"]),
        (["odd"], ["finished", "stop"]),
        ([], ["finished", "stop"]),
        ([],),
    ],
)
def test_invalid_pieces_in_a_generation_raise_invalid_configuration(
    pieces: tuple[Piece, ...], tmp_path: Path
) -> None:
    path = tmp_path / "recording.jsonl"
    path.write_text(msgspec.json.encode(exchange(pieces)).decode())
    with pytest.raises(InvalidConfiguration, match="generation"):
        replay_file(path, None)


def test_the_json_document_lists_the_changes() -> None:
    replayed = [ReplayResult("a", "m", (Change("text", "x", "y"),)), ReplayResult("b", "m")]
    assert json.dump_text(document(replayed)) == (
        '{"changed":1,"exchanges":['
        '{"id":"a","model":"m","status":"changed",'
        '"changes":[{"what":"text","before":"x","now":"y"}]},'
        '{"id":"b","model":"m","status":"same","changes":[]}]}'
    )


def test_the_summary_escapes_and_truncates_text_of_models_and_clients() -> None:
    changed = ReplayResult("a", "m\x1b[31m", (Change("text", "", "y\n" + "z" * 300),))
    lines = list(summary([changed, ReplayResult("b", "m", is_complete=False)]))
    assert lines[0] == r"a  m\x1b[31m: changed"
    assert lines[1].startswith(r"    text: (nothing) -> y\nzzz")
    assert lines[1].endswith("...")
    assert lines[2:] == ["b  m: incomplete", "1 of 2 changed"]
    assert all(line.isprintable() for line in lines)


def show(*generations: tuple[Piece, ...], **others: object) -> BeforeAfter:
    recorded = structs.replace(exchange(*generations), **others)
    return before_after(msgspec.json.encode(recorded) + b"\n", ())


PROSE: tuple[Piece, ...] = (["text", "It will "], ["text", "rain."], ["finished", "stop"])
RESCUED: tuple[Piece, ...] = (["text", CALL], ["finished", "stop"])


def test_the_function_before_after_returns_the_generation_and_the_recorded_answer() -> None:
    comparison = show(RESCUED)
    (generation,) = comparison.generations
    assert (generation.text, generation.ending) == (CALL, "finished: stop")
    assert comparison.calls == (RecordedCall(name="get_weather", arguments='{"city":"Paris"}'),)
    assert comparison.finish_reason == "tool_calls"
    assert json.parse(comparison.line)


def test_a_rejected_generation_has_the_nudge_that_was_sent_after_it() -> None:
    verdict = RecordedVerdict(
        outcome="retried", attempts=(("as_asked", "prose"), ("nudged", None)), repairs=""
    )
    first, second = show(PROSE, RESCUED, verdict=verdict).generations
    (nudge,) = first.nudge
    assert isinstance(nudge, Nudge)
    assert nudge.role == "user"
    assert nudge.text.startswith("You answered in plain text.")
    assert second.nudge == []


def test_reasoning_and_calls_of_a_generation_are_separate_fields() -> None:
    pieces: tuple[Piece, ...] = (
        ["reasoning", "Hm."],
        ["call", 0, "id", "get_weather"],
        ["arguments", 0, '{"city": '],
        ["arguments", 0, '"Paris"}'],
        ["arguments", 7, "of no call"],
        ["finished", "tool_calls"],
    )
    (generation,) = show(pieces).generations
    assert generation.thoughts == "Hm."
    assert generation.calls == (RecordedCall(name="get_weather", arguments='{"city": "Paris"}'),)


def test_a_generation_that_overflowed_the_context_has_no_nudge() -> None:
    overflowed: tuple[Piece, ...] = (["failed", "context_overflow"],)
    first, second, third = show(overflowed, PROSE, RESCUED).generations
    assert (first.ending, first.nudge) == ("failed: context_overflow", [])
    assert second.nudge[0].text.startswith("You answered")
    assert third.nudge == []


def test_an_exchange_with_an_unfinished_generation_is_shown_without_nudges() -> None:
    unfinished: tuple[Piece, ...] = (["text", "It"],)
    comparison = show(unfinished, RESCUED, answer=RecordedAnswer(text="It"))
    assert [generation.nudge for generation in comparison.generations] == [[], []]
    assert comparison.text == "It"
