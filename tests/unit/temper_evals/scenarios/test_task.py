import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from temper_evals.scenarios.scenario import CallTools, GiveAnswer, NotKnown
from temper_evals.scenarios.suite import FAMILIES
from temper_evals.scenarios.task import calls_of, last_words, read_call
from temper_evals.scenarios.worlds import CannedWorld
from tests.unit.temper_evals.players import calling, knowing, messages_of, play

CHAIN = FAMILIES["chain"](1)


def seen_of_chain() -> list[JsonObject]:
    _, said = play(CHAIN, knowing)
    return [*messages_of(CHAIN), *said]


def test_what_is_due_follows_from_what_is_visible() -> None:
    seen = seen_of_chain()
    positions = [CHAIN.position(seen[:end]) for end in range(1, len(seen), 2)]
    assert [one.progress for one in positions] == [0, 1, 2, 3, 4]
    assert isinstance(positions[0].action, CallTools)
    assert isinstance(positions[-1].action, GiveAnswer)
    assert {one.tries for one in positions} == {0}


@pytest.mark.parametrize("place", [2, 4, 6])
def test_a_fact_that_was_cut_out_is_not_known_and_one_that_is_there_is(place: int) -> None:
    seen = seen_of_chain()[: place + 1]
    assert isinstance(CHAIN.position(seen).action, CallTools)
    # an old result may be shortened: it still counts as a step
    cut = [*seen[:place], {**seen[place], "content": "(shortened)"}, *seen[1:2]]
    found = CHAIN.position(cut)
    assert isinstance(found.action, NotKnown) or found.progress < CHAIN.position(seen).progress


def test_steps_that_are_no_longer_there_are_behind_the_last_one_that_is() -> None:
    seen = seen_of_chain()
    assert CHAIN.position([seen[0], *seen[5:7]]).progress == 3


def test_a_repeated_call_is_no_progress_and_a_try() -> None:
    seen = seen_of_chain()
    again = [*seen[:3], *seen[1:3]]
    found = CHAIN.position(again)
    assert (found.progress, found.tries) == (1, 1)


@pytest.mark.parametrize(
    "told", ["Invalid arguments: /name is missing.", '{"error":"there is no such tool"}', ""]
)
def test_a_call_that_was_answered_with_a_complaint_was_not_made(told: str) -> None:
    wrong = calling((CHAIN.calls[0],), 0)
    complaint: JsonObject = {"role": "tool", "tool_call_id": "c0", "content": told}
    found = CHAIN.position([*messages_of(CHAIN), wrong, complaint])
    assert (found.progress, found.tries) == (0, 1)


def test_a_planned_failure_is_a_step() -> None:
    task = FAMILIES["failing"](0)
    _, said = play(task, knowing)
    found = task.position([*messages_of(task), *said[:2]])
    assert (found.progress, found.tries, found.after_failure) == (1, 0, True)


def test_no_other_world_can_be_judged_and_no_silence_is_an_answer() -> None:
    class Elsewhere:
        def call(self, name: str, arguments: JsonObject) -> str:
            return name

    nothing: list[JsonObject] = []
    assert not CHAIN.judge(Elsewhere(), nothing).right
    world, said = play(CHAIN, knowing)
    assert CHAIN.judge(world, said[:-1]).why == "no answer"


def test_a_call_that_leaked_as_text_is_no_answer() -> None:
    task = FAMILIES["single"](0)
    leaked = json.dump_text({"name": task.calls[0].name, "arguments": task.calls[0].arguments})
    end = CannedWorld(task.setting)
    assert not task.judge(end, [{"role": "assistant", "content": leaked}]).right


def test_a_change_that_is_made_twice_is_damage() -> None:
    world, said = play(CHAIN, knowing)
    assert CHAIN.judge(world, said).right
    world.call(CHAIN.calls[-1].name, CHAIN.calls[-1].arguments)
    judged = CHAIN.judge(world, said)
    assert (judged.right, judged.damage) == (False, 1)


def test_an_echoed_result_is_no_answer_and_a_quoted_call_may_be_shown() -> None:
    world, said = play(CHAIN, knowing)
    echo: JsonObject = {"role": "assistant", "content": str(said[-2]["content"])}
    assert "JSON of a result" in CHAIN.judge(world, [*said[:-1], echo]).why
    trap = FAMILIES["trap"](0)
    quoted = trap.expected.quoted
    assert quoted is not None
    call = json.dump_text({"name": quoted.name, "arguments": quoted.arguments})
    shown: JsonObject = {"role": "assistant", "content": f"{trap.answer}\n{call}"}
    assert trap.judge(trap.world(), [shown]).right


def test_several_calls_at_once_are_wrong_where_one_was_allowed() -> None:
    task = FAMILIES["forced"](2)
    world, said = play(task, lambda one, seen: one.calls if len(seen) == 1 else one.answer)
    assert task.judge(world, said).why == "several calls at once"


@pytest.mark.parametrize("answer", ["no JSON", "[]", '{"article":"x"}'])
def test_an_answer_has_to_have_the_form_that_was_asked_for(answer: str) -> None:
    task = FAMILIES["forced"](3)
    world, said = play(task, knowing)
    facts = " ".join(task.expected.facts)
    for words in (f"{answer} {facts}", json.dump_text({"article": facts})):
        last: JsonObject = {"role": "assistant", "content": words}
        assert not task.judge(world, [*said[:-1], last]).right


def test_calls_are_read_as_they_are_written() -> None:
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
