import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from temper_evals.scenarios.scenario import CallTools, GiveAnswer, NotKnown
from temper_evals.scenarios.suite import FAMILIES
from temper_evals.scenarios.task import calls_of, last_words, read_call
from temper_evals.scenarios.worlds import CannedWorld
from tests.unit.temper_evals.players import calling, follow_plan, messages_of, play

CHAIN = FAMILIES["chain"](1)


def seen_of_chain() -> list[JsonObject]:
    _, transcript = play(CHAIN, follow_plan)
    return [*messages_of(CHAIN), *transcript]


def test_position_returns_the_next_calls_or_the_answer_after_each_executed_step() -> None:
    seen = seen_of_chain()
    positions = [CHAIN.position(seen[:end]) for end in range(1, len(seen), 2)]
    assert [position.progress for position in positions] == [0, 1, 2, 3, 4]
    assert isinstance(positions[0].action, CallTools)
    assert isinstance(positions[-1].action, GiveAnswer)
    assert {position.tries for position in positions} == {0}


@pytest.mark.parametrize("index", [2, 4, 6])
def test_position_does_not_advance_if_the_result_that_the_next_step_needs_was_removed(
    index: int,
) -> None:
    seen = seen_of_chain()[: index + 1]
    assert isinstance(CHAIN.position(seen).action, CallTools)
    # the client shortened the last result, which contains the value for the next step
    cut = [*seen[:index], {**seen[index], "content": "(shortened)"}, *seen[1:2]]
    position = CHAIN.position(cut)
    assert (
        isinstance(position.action, NotKnown) or position.progress < CHAIN.position(seen).progress
    )


def test_steps_before_the_last_visible_step_are_counted_as_executed() -> None:
    seen = seen_of_chain()
    assert CHAIN.position([seen[0], *seen[5:7]]).progress == 3


def test_a_repeated_call_increases_tries_but_not_progress() -> None:
    seen = seen_of_chain()
    again = [*seen[:3], *seen[1:3]]
    position = CHAIN.position(again)
    assert (position.progress, position.tries) == (1, 1)


@pytest.mark.parametrize(
    "complaint_text",
    ["Invalid arguments: /name is missing.", '{"error":"there is no such tool"}', ""],
)
def test_a_call_whose_result_is_an_error_of_the_client_is_not_counted_as_executed(
    complaint_text: str,
) -> None:
    wrong = calling((CHAIN.calls[0],), 0)
    complaint: JsonObject = {"role": "tool", "tool_call_id": "c0", "content": complaint_text}
    position = CHAIN.position([*messages_of(CHAIN), wrong, complaint])
    assert (position.progress, position.tries) == (0, 1)


def test_a_call_that_fails_as_planned_is_counted_as_executed() -> None:
    task = FAMILIES["failing"](0)
    _, transcript = play(task, follow_plan)
    position = task.position([*messages_of(task), *transcript[:2]])
    assert (position.progress, position.tries, position.after_failure) == (1, 0, True)


def test_a_run_in_another_world_or_without_an_answer_is_judged_wrong() -> None:
    class ForeignWorld:
        def call(self, name: str, arguments: JsonObject) -> str:
            return name

    nothing: list[JsonObject] = []
    assert not CHAIN.judge(ForeignWorld(), nothing).right
    world, transcript = play(CHAIN, follow_plan)
    assert CHAIN.judge(world, transcript[:-1]).why == "no answer"


def test_a_call_written_as_text_is_not_accepted_as_an_answer() -> None:
    task = FAMILIES["single"](0)
    leaked = json.dump_text({"name": task.calls[0].name, "arguments": task.calls[0].arguments})
    end = CannedWorld(task.setting)
    assert not task.judge(end, [{"role": "assistant", "content": leaked}]).right


def test_a_change_that_is_made_twice_is_judged_wrong_with_damage() -> None:
    world, transcript = play(CHAIN, follow_plan)
    assert CHAIN.judge(world, transcript).right
    world.call(CHAIN.calls[-1].name, CHAIN.calls[-1].arguments)
    judged = CHAIN.judge(world, transcript)
    assert (judged.right, judged.damage) == (False, 1)


def test_an_answer_may_show_a_quoted_call_but_no_json_of_a_result() -> None:
    world, transcript = play(CHAIN, follow_plan)
    echo: JsonObject = {"role": "assistant", "content": str(transcript[-2]["content"])}
    assert "JSON of a result" in CHAIN.judge(world, [*transcript[:-1], echo]).why
    trap = FAMILIES["trap"](0)
    quoted = trap.expected.quoted
    assert quoted is not None
    call = json.dump_text({"name": quoted.name, "arguments": quoted.arguments})
    shown: JsonObject = {"role": "assistant", "content": f"{trap.answer}\n{call}"}
    assert trap.judge(trap.world(), [shown]).right


def test_several_calls_in_one_reply_are_wrong_if_parallel_tool_calls_is_false() -> None:
    task = FAMILIES["forced"](2)
    world, transcript = play(
        task, lambda planned, seen: planned.calls if len(seen) == 1 else planned.answer
    )
    assert task.judge(world, transcript).why == "several calls at once"


@pytest.mark.parametrize("answer", ["no JSON", "[]", '{"article":"x"}'])
def test_an_answer_that_does_not_match_response_format_is_wrong(answer: str) -> None:
    task = FAMILIES["forced"](3)
    world, transcript = play(task, follow_plan)
    facts = " ".join(task.expected.facts)
    for words in (f"{answer} {facts}", json.dump_text({"article": facts})):
        last: JsonObject = {"role": "assistant", "content": words}
        assert not task.judge(world, [*transcript[:-1], last]).right


def test_calls_and_last_words_are_read_from_the_messages_of_a_transcript() -> None:
    function: JsonObject = {"name": "a", "arguments": '{"b":1}'}
    call: JsonObject = {"id": "x", "function": function}
    assert read_call(call) == read_call({"function": {"name": "a", "arguments": {"b": 1}}})
    assert read_call({"function": {"name": "a", "arguments": "{"}}) is None
    assert read_call({"function": {"name": "a", "arguments": "[]"}}) is None
    assert read_call({}) is None
    assert calls_of({"tool_calls": [call, 3]}) == [call]
    assert last_words([{"role": "assistant", "tool_calls": [call]}]) is None
    urged: list[JsonObject] = [
        {"role": "assistant", "content": "one"},
        {"role": "user", "content": "go on"},
        {"role": "assistant", "content": "two"},
    ]
    assert last_words(urged) == "one\ntwo"
