from pathlib import Path

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from proxy.observability.recording import Piece, RecordedAnswer, RecordedExchange, RecordedVerdict
from proxy.observability.replay import Change, Replayed, document, replay, replay_file, summary
from proxy.profiles.files import load_profiles
from tests.fakes.recorded import CALL, REQUEST, exchange

PROFILES = load_profiles(None)


def changes(recorded: RecordedExchange) -> dict[str, tuple[str, str]]:
    return {one.what: (one.before, one.now) for one in replay(recorded, PROFILES).changes}


def test_what_is_judged_as_it_was_is_the_same() -> None:
    assert replay(exchange(), PROFILES) == Replayed("r", "m")


def test_a_call_that_was_not_found_then_is_found_now() -> None:
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


def test_a_call_that_was_good_enough_then_is_asked_about_now() -> None:
    recorded = exchange((["text", CALL.replace("city", "town")], ["finished", "stop"]))
    found = changes(recorded)
    assert found["outcome"] == ("repaired", "asks again")
    assert found["attempts"] == ("as_asked (accepted)", "as_asked (invalid_arguments)")
    assert found["calls.0.name"] == ("get_weather", "")


def test_attempts_that_are_no_longer_made_leave_their_generations_over() -> None:
    more = exchange(
        (["text", CALL], ["finished", "stop"]),
        (["text", CALL], ["finished", "stop"]),
        verdict=RecordedVerdict(
            outcome="retried",
            attempts=(("as_asked", "prose"), ("nudged", None)),
            repairs="rescued=hermes;rejected=prose",
        ),
    )
    found = changes(more)
    assert found["outcome"] == ("retried", "repaired")
    assert found["attempts"] == ("as_asked (prose), nudged (accepted)", "as_asked (accepted)")


def test_an_answer_that_an_earlier_attempt_saved_needs_that_attempt() -> None:
    assert changes(exchange((["failed", "timed_out"],)))["outcome"] == ("repaired", "fails")


def test_a_request_that_is_refused_now_says_why() -> None:
    broken: JsonObject = {**REQUEST, "messages": "none"}
    assert changes(exchange(request=broken))["outcome"][1].startswith("refused: messages")


def test_leave_that_was_not_given_then_is_not_given_now() -> None:
    prose: tuple[Piece, ...] = (["text", "Prose."], ["finished", "stop"])
    recorded = exchange(
        prose,
        answer=RecordedAnswer(text="Prose.", finish_reason="stop"),
        verdict=RecordedVerdict(
            outcome="clean", attempts=(("as_asked", "prose"),), repairs="rejected=prose;withheld=1"
        ),
    )
    assert changes(recorded) == {}


def test_a_profile_that_the_operator_chose_is_used_if_there_is_one() -> None:
    assert changes(exchange(profile="hermes")) == {}
    assert changes(exchange(profile="gone")) == {}


def test_what_never_came_to_its_end_cannot_be_compared() -> None:
    verdict = RecordedVerdict(outcome=None, attempts=(), repairs="")
    found = replay(exchange(verdict=verdict), PROFILES)
    assert (found.is_complete, found.status) == (False, "incomplete")


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        (["text", "no end"],),
        (["finished", "stop"], ["finished", "stop"]),
        (["odd"], ["finished", "stop"]),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(pieces: tuple[Piece, ...], tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    path.write_text(exchange(pieces).model_dump_json())
    with pytest.raises(InvalidConfiguration, match="generation"):
        replay_file(path, None)


def test_the_outcome_is_told_to_programs() -> None:
    replayed = [Replayed("a", "m", (Change("text", "x", "y"),)), Replayed("b", "m")]
    assert json.dump_text(document(replayed)) == (
        '{"changed":1,"exchanges":['
        '{"id":"a","model":"m","status":"changed",'
        '"changes":[{"what":"text","before":"x","now":"y"}]},'
        '{"id":"b","model":"m","status":"same","changes":[]}]}'
    )


def test_the_outcome_is_told_to_people_without_steering_their_terminal() -> None:
    changed = Replayed("a", "m\x1b[31m", (Change("text", "", "y\n" + "z" * 300),))
    lines = list(summary([changed, Replayed("b", "m", is_complete=False)]))
    assert lines[0] == r"a  m\x1b[31m: changed"
    assert lines[1].startswith(r"    text: (nothing) -> y\nzzz")
    assert lines[1].endswith("...")
    assert lines[2:] == ["b  m: incomplete", "1 of 2 changed"]
    assert all(line.isprintable() for line in lines)
