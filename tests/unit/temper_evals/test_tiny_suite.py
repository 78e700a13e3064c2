import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from temper_evals.scenarios.scenario import Judgement, ToolFailed
from temper_evals.tiny_model.tasks import FAMILIES, TinyCall
from temper_evals.tiny_suite import SIZES, TinyScenario, tiny_suite

SUITE = tiny_suite("full")
WITH_CALLS = [one for one in SUITE if one.task.calls]
WITHOUT = [one for one in SUITE if not one.task.calls]


def played(scenario: TinyScenario, *calls: TinyCall, answer: str) -> Judgement:
    """Make these calls, and say this."""
    world = scenario.world()
    said: list[JsonObject] = []
    for call in calls:
        function: JsonObject = {"name": call.name, "arguments": json.dump_text(call.arguments)}
        said.append({"role": "assistant", "tool_calls": [{"id": "1", "function": function}]})
        for _ in range(1 + call.fails_once):
            try:
                said.append({"role": "tool", "content": world.call(call.name, call.arguments)})
            except ToolFailed as failure:
                said.append({"role": "tool", "content": str(failure)})
    said.append({"role": "assistant", "content": answer})
    return scenario.judge(world, said)


def test_a_suite_has_as_many_of_every_family_the_same_every_time() -> None:
    assert len(SUITE) == SIZES["full"] * len(FAMILIES)
    assert tiny_suite("full") == SUITE
    assert tiny_suite("quick", ("chain",)) == tiny_suite("full", ("chain",))[: SIZES["quick"]]
    assert len({one.name for one in SUITE}) == len(SUITE)


@pytest.mark.parametrize(("size", "families"), [("huge", ()), ("quick", ("long",))])
def test_what_there_is_not_is_refused(size: str, families: tuple[str, ...]) -> None:
    with pytest.raises(InvalidConfiguration, match="there is no"):
        tiny_suite(size, families)


def test_the_right_calls_and_answer_are_right_everywhere() -> None:
    for scenario in SUITE:
        task = scenario.task
        assert played(scenario, *task.calls, answer=task.answer) == Judgement(right=True)
        assert scenario.limit > len(task.calls) + 1


def test_who_calls_nothing_is_right_only_where_nothing_is_due() -> None:
    assert not any(played(one, answer="Done.").right for one in WITH_CALLS)
    assert all(played(one, answer="Done.").right for one in WITHOUT)


def test_a_wrong_value_is_wrong_and_a_change_that_nobody_wanted_is_damage() -> None:
    for scenario in WITH_CALLS:
        *before, last = scenario.task.calls
        name, value = next(iter(last.arguments.items()))
        other = value + 1 if isinstance(value, int) else f"{value}x"
        wrong = TinyCall(last.name, {**last.arguments, name: other}, last.result)
        judged = played(scenario, *before, wrong, answer=scenario.task.answer)
        changes = next(one.changes for one in scenario.task.tools if one.name == last.name)
        assert not judged.right
        assert judged.damage == int(changes)


def test_a_call_too_much_is_wrong_where_nothing_is_due() -> None:
    scenario = next(one for one in WITHOUT if one.task.tools)
    tool = scenario.task.tools[0]
    arguments: JsonObject = {
        name: 3 if tool.type_of(name) == "integer" else "x" for name in tool.parameters
    }
    judged = played(scenario, TinyCall(tool.name, arguments, ""), answer="Done.")
    assert "nothing was to be called" in judged.why


@pytest.mark.parametrize(
    ("answer", "why"),
    [("", "no answer"), ('<tool_call>{"name": "x"}', "nobody read"), ("Result: 0x", "lacks")],
)
def test_the_answer_has_to_tell_the_result(answer: str, why: str) -> None:
    scenario = WITH_CALLS[0]
    assert why in played(scenario, *scenario.task.calls, answer=answer).why


def test_a_request_is_greedy_and_short() -> None:
    request = SUITE[0].request(7)
    assert (request["temperature"], request["seed"]) == (0, 7)
    assert isinstance(request["max_tokens"], int)
    assert SUITE[0].first_fields() == {}
    assert SUITE[0].family == "single"
