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
    return structs.replace(exchange(*generations), run=run)


def played(recorded: RecordedExchange) -> tuple[ReplayedTurns, list[ReplyEvent]]:
    turns = ReplayedTurns(recorded, PROFILES)
    return turns, [*turns.events()]


ONE, LAST = RecordedRound(generations=1, outcomes=(SUNNY,)), RecordedRound(generations=1)


def test_a_call_result_leads_to_the_next_upstream_request() -> None:
    turns, events = played(run_of(ONE, LAST, generations=(CALLED, SAID)))
    assert [event for event in events if isinstance(event, TextDelta)] == [TextDelta("Fine.")]
    assert isinstance(events[-1], ReplyFinished)
    assert [message.role for message in turns.sent[1].messages] == ["user", "assistant", "tool"]
    assert (turns.unfinished, turns.following) == ("", None)


def test_a_replay_ends_where_its_calls_differ() -> None:
    other = structs.replace(SUNNY, arguments="{}")
    turns, _ = played(
        run_of(structs.replace(ONE, outcomes=(other,)), LAST, generations=(CALLED, SAID))
    )
    assert (turns.unfinished, len(turns.sent)) == ("calls other tools", 1)


def test_a_replay_that_ends_earlier_leaves_generations_unused() -> None:
    turns, _ = played(run_of(LAST, LAST, generations=(SAID, SAID)))
    assert (turns.unfinished, len(turns.sent)) == ("", 1)


def test_a_replay_without_further_output_has_no_end() -> None:
    turns, _ = played(run_of(ONE, RecordedRound(generations=0), generations=(CALLED,)))
    assert turns.unfinished == "asks again"
    following = turns.following
    assert following is not None
    assert following.messages[-1].text == "sunny"


def test_a_replay_without_rounds_sends_nothing() -> None:
    turns, events = played(run_of(generations=()))
    assert (events, turns.sent, turns.following) == ([], [], None)
    assert replay(run_of(generations=()), PROFILES).changes[0].now == "asks again"


def test_generations_of_prompts_that_proved_too_long_are_lost_in_any_round() -> None:
    assert lost_generations(exchange(SAID)) == 0
    assert lost_generations(exchange(LOST, SAID)) == 1
    two = RecordedRound(generations=2)
    recorded = run_of(ONE, two, generations=(CALLED, LOST, SAID))
    assert lost_generations(recorded) == 1
    assert played(recorded)[0].unfinished == ""


def test_a_generation_without_an_end_is_invalid() -> None:
    with pytest.raises(ValueError, match="has to end"):
        played(exchange((["text", "It"],)))


def changes(recorded: RecordedExchange) -> dict[str, tuple[str, str]]:
    return {
        change.what: (change.before, change.now) for change in replay(recorded, PROFILES).changes
    }


def test_an_unchanged_verdict_is_no_change() -> None:
    assert replay(exchange(), PROFILES) == ReplayResult("r", "m")


def test_split_reasoning_is_split_again() -> None:
    recorded = exchange((["text", f"I look.\n</think>\n{CALL}"], ["finished", "stop"]))
    recorded = structs.replace(
        recorded, policy=structs.replace(recorded.policy, text_policy=TextPolicy.AUTO)
    )
    knows = structs.replace(recorded.model, opens_thoughts=True)
    assert "text" in changes(recorded)
    assert changes(structs.replace(recorded, model=knows)) == {}


def test_a_formerly_missed_call_is_found() -> None:
    then = exchange(
        answer=RecordedAnswer(text=CALL, finish_reason="stop"),
        verdict=RecordedVerdict(outcome="clean", attempts=(("as_asked", None),), repairs=""),
    )
    assert changes(then) == {
        "outcome": ("clean", "repaired"),
        "repairs": ("", "rescued=hermes"),
        "text": (CALL, ""),
        "finish_reason": ("stop", "tool_calls"),
        "calls.0.name": ("", "get_weather"),
        "calls.0.arguments": ("", '{"city":"Paris"}'),
    }


def test_a_formerly_accepted_call_is_retried() -> None:
    recorded = exchange((["text", CALL.replace("city", "town")], ["finished", "stop"]))
    changes_ = changes(recorded)
    assert changes_["outcome"] == ("repaired", "asks again")
    assert changes_["attempts"] == ("as_asked (accepted)", "as_asked (invalid_arguments)")
    assert changes_["calls.0.name"] == ("get_weather", "")


def test_attempts_no_longer_made_leave_generations_unused() -> None:
    more = exchange(
        (["text", CALL], ["finished", "stop"]),
        (["text", CALL], ["finished", "stop"]),
        verdict=RecordedVerdict(
            outcome="retried",
            attempts=(("as_asked", "prose"), ("nudged", None)),
            repairs="rescued=hermes;rejected=prose",
        ),
    )
    changes_ = changes(more)
    assert changes_["outcome"] == ("retried", "repaired")
    assert changes_["attempts"] == ("as_asked (prose), nudged (accepted)", "as_asked (accepted)")


def test_an_answer_that_an_earlier_attempt_saved_needs_that_attempt() -> None:
    assert changes(exchange((["failed", "timed_out"],)))["outcome"] == ("repaired", "fails")


def test_a_request_refused_now_says_why() -> None:
    broken: JsonObject = {**REQUEST, "messages": "none"}
    assert changes(exchange(request=broken))["outcome"][1].startswith("refused: messages")


def test_permissions_not_granted_then_are_not_granted_now() -> None:
    prose: tuple[Piece, ...] = (["text", "Prose."], ["finished", "stop"])
    recorded = exchange(
        prose,
        answer=RecordedAnswer(text="Prose.", finish_reason="stop"),
        verdict=RecordedVerdict(
            outcome="clean", attempts=(("as_asked", "prose"),), repairs="rejected=prose;withheld=1"
        ),
    )
    assert changes(recorded) == {}


def test_generation_of_a_server_that_failed_is_not_judged() -> None:
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


def test_a_profile_chosen_by_the_operator_is_used_if_it_exists() -> None:
    assert changes(exchange(profile="hermes")) == {}
    assert changes(exchange(profile="gone")) == {}


def test_an_unfinished_exchange_cannot_be_compared() -> None:
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
def test_an_invalid_file_is_refused(pieces: tuple[Piece, ...], tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    path.write_text(msgspec.json.encode(exchange(pieces)).decode())
    with pytest.raises(InvalidConfiguration, match="generation"):
        replay_file(path, None)


def test_the_result_is_available_as_json() -> None:
    replayed = [ReplayResult("a", "m", (Change("text", "x", "y"),)), ReplayResult("b", "m")]
    assert json.dump_text(document(replayed)) == (
        '{"changed":1,"exchanges":['
        '{"id":"a","model":"m","status":"changed",'
        '"changes":[{"what":"text","before":"x","now":"y"}]},'
        '{"id":"b","model":"m","status":"same","changes":[]}]}'
    )


def test_the_result_is_printed_without_controlling_the_terminal() -> None:
    changed = ReplayResult("a", "m\x1b[31m", (Change("text", "", "y\n" + "z" * 300),))
    lines = list(summary([changed, ReplayResult("b", "m", is_complete=False)]))
    assert lines[0] == r"a  m\x1b[31m: changed"
    assert lines[1].startswith(r"    text: (nothing) -> y\nzzz")
    assert lines[1].endswith("...")
    assert lines[2:] == ["b  m: incomplete", "1 of 2 changed"]
    assert all(line.isprintable() for line in lines)


def shown(*generations: tuple[Piece, ...], **others: object) -> BeforeAfter:
    recorded = structs.replace(exchange(*generations), **others)
    return before_after(msgspec.json.encode(recorded) + b"\n", ())


PROSE: tuple[Piece, ...] = (["text", "It will "], ["text", "rain."], ["finished", "stop"])
RESCUED: tuple[Piece, ...] = (["text", CALL], ["finished", "stop"])


def test_each_generation_is_shown_next_to_its_result() -> None:
    seen = shown(RESCUED)
    (generation,) = seen.generations
    assert (generation.text, generation.ending) == (CALL, "finished: stop")
    assert seen.calls == (RecordedCall(name="get_weather", arguments='{"city":"Paris"}'),)
    assert seen.finish_reason == "tool_calls"
    assert json.parse(seen.line)


def test_nudges_between_generations_are_created_again() -> None:
    verdict = RecordedVerdict(
        outcome="retried", attempts=(("as_asked", "prose"), ("nudged", None)), repairs=""
    )
    first, second = shown(PROSE, RESCUED, verdict=verdict).generations
    (nudge,) = first.nudge
    assert isinstance(nudge, Nudge)
    assert nudge.role == "user"
    assert nudge.text.startswith("You answered in plain text.")
    assert second.nudge == []


def test_calls_and_reasoning_are_distinguished_from_text() -> None:
    pieces: tuple[Piece, ...] = (
        ["reasoning", "Hm."],
        ["call", 0, "id", "get_weather"],
        ["arguments", 0, '{"city": '],
        ["arguments", 0, '"Paris"}'],
        ["arguments", 7, "of no call"],
        ["finished", "tool_calls"],
    )
    (generation,) = shown(pieces).generations
    assert generation.thoughts == "Hm."
    assert generation.calls == (RecordedCall(name="get_weather", arguments='{"city": "Paris"}'),)


def test_an_overflow_leads_to_a_second_turn_without_a_nudge() -> None:
    lost: tuple[Piece, ...] = (["failed", "context_overflow"],)
    first, second, third = shown(lost, PROSE, RESCUED).generations
    assert (first.ending, first.nudge) == ("failed: context_overflow", [])
    assert second.nudge[0].text.startswith("You answered")
    assert third.nudge == []


def test_invalid_nudges_are_omitted() -> None:
    unfinished: tuple[Piece, ...] = (["text", "It"],)
    seen = shown(unfinished, RESCUED, answer=RecordedAnswer(text="It"))
    assert [generation.nudge for generation in seen.generations] == [[], []]
    assert seen.text == "It"
