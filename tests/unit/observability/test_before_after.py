from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.observability.before_after import BeforeAfter, Nudge, WrittenCall, before_after
from proxy.observability.recording import Piece, RecordedAnswer, RecordedVerdict
from tests.fakes.recorded import CALL, exchange


def shown(*generations: tuple[Piece, ...], **others: object) -> BeforeAfter:
    recorded = exchange(*generations).model_copy(update=others)
    plain: JsonObject = recorded.model_dump(mode="json")
    return before_after(json.dump(plain) + b"\n", ())


PROSE: tuple[Piece, ...] = (["text", "It will "], ["text", "rain."], ["finished", "stop"])
RESCUED: tuple[Piece, ...] = (["text", CALL], ["finished", "stop"])


def test_each_generation_stands_beside_what_was_made_of_it() -> None:
    seen = shown(RESCUED)
    (generation,) = seen.generations
    assert (generation.text, generation.ending) == (CALL, "finished: stop")
    assert seen.calls == [WrittenCall("get_weather", '{"city":"Paris"}')]
    assert seen.finish_reason == "tool_calls"
    assert json.parse(seen.line)


def test_what_temper_said_between_two_generations_is_made_again() -> None:
    verdict = RecordedVerdict(
        outcome="retried", attempts=(("as_asked", "prose"), ("nudged", None)), repairs=""
    )
    first, second = shown(PROSE, RESCUED, verdict=verdict).generations
    (nudge,) = first.nudge
    assert isinstance(nudge, Nudge)
    assert nudge.role == "user"
    assert nudge.text.startswith("You answered in plain text.")
    assert second.nudge == []


def test_calls_and_thoughts_are_told_apart_from_text() -> None:
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
    assert generation.calls == [WrittenCall("get_weather", '{"city": "Paris"}')]


def test_a_prompt_that_was_too_long_leads_to_a_second_turn_and_gets_no_nudge() -> None:
    lost: tuple[Piece, ...] = (["failed", "context_overflow"],)
    first, second, third = shown(lost, PROSE, RESCUED).generations
    assert (first.ending, first.nudge) == ("failed: context_overflow", [])
    assert second.nudge[0].text.startswith("You answered")
    assert third.nudge == []


def test_what_makes_no_sense_any_more_is_shown_without_what_was_between() -> None:
    unfinished: tuple[Piece, ...] = (["text", "It"],)
    seen = shown(unfinished, RESCUED, answer=RecordedAnswer(text="It"))
    assert [one.nudge for one in seen.generations] == [[], []]
    assert seen.text == "It"
