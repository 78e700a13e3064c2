import random

import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from temper_evals.scenarios.invention import invent_arguments
from temper_evals.scenarios.scenario import PlannedCall
from temper_evals.scenarios.suite import FAMILIES
from temper_evals.scenarios.worlds import objection, schema_of, tool_name
from temper_evals.simulated import small_models
from temper_evals.simulated.profiles import BEFORE_ANSWERS, Flaw, load_profile
from tests.unit.temper_evals.players import calling, follow_plan, messages_of, play

CHAIN = FAMILIES["chain"](1)
MESSAGES = [*messages_of(CHAIN), *play(CHAIN, follow_plan)[1]]
DONE = small_models.executed(MESSAGES)
CODER = load_profile("coder-1.5b")


def call_text(call: PlannedCall) -> str:
    return json.dump_text({"name": call.name, "arguments": call.arguments})


def text_of(flaw: Flaw, due: tuple[PlannedCall, ...] = (), seed: int = 0) -> str:
    return small_models.flawed_text(flaw, DONE, due, CODER, draw=random.Random(seed))


def test_each_executed_call_is_returned_with_its_first_result() -> None:
    assert [call for call, _ in DONE] == [*CHAIN.calls]
    assert small_models.executed_calls(MESSAGES) == [*CHAIN.calls]
    again = [*MESSAGES[:3], MESSAGES[1], {**MESSAGES[2], "content": "already made"}]
    assert small_models.executed(again) == DONE[:1]
    assert small_models.executed([calling(CHAIN.calls[:1], 0)]) == []
    stray: JsonObject = {"role": "tool", "tool_call_id": "unknown", "content": "{}"}
    assert small_models.executed([stray]) == []


def test_only_a_result_that_a_repeated_call_returned_again_is_removed() -> None:
    note: JsonObject = {**MESSAGES[2], "content": "This call was already made."}
    again = [*MESSAGES[:3], MESSAGES[1], MESSAGES[2], MESSAGES[1], note]
    remaining = small_models.without_same_results(again)
    assert remaining == (*MESSAGES[:3], MESSAGES[1], MESSAGES[1], note)


@pytest.mark.parametrize("flaw", [flaw for flaw in BEFORE_ANSWERS if flaw is not Flaw.ECHOED])
def test_a_flawed_text_contains_the_last_executed_call_instead_of_an_answer(flaw: Flaw) -> None:
    last = CHAIN.calls[-1]
    for seed in range(20):
        assert call_text(last) in text_of(flaw, seed=seed)


def test_flawed_text_returns_the_expected_text_for_each_flaw() -> None:
    first, second = CHAIN.calls[:2]
    last = call_text(CHAIN.calls[-1])
    assert text_of(Flaw.ECHOED) == f"<tool_response>\n{DONE[-1][1]}\n</tool_response>"
    assert {text_of(Flaw.REPEATED_TEXT, seed=seed) for seed in range(20)} == {
        last,
        f"```json\n{last}\n```",
    }
    assert text_of(Flaw.RUNAWAY) == f"{last}\n"
    call, result = text_of(Flaw.INVENTED_RESULT).splitlines()
    assert call == last
    assert result not in {real_result for _, real_result in DONE}
    assert isinstance(json.parse(result), dict)
    assert text_of(Flaw.RECITED).count("```json\n") == len(DONE)
    mixed = text_of(Flaw.MIXED, (first, second))
    assert mixed.index(last) < mixed.index(call_text(first)) < mixed.index(call_text(second))
    tagged = text_of(Flaw.TAGGED, (first,))
    assert tagged == f"<tool_response>\n{call_text(first)}\n</tool_response>"


def test_a_fifth_of_the_invented_results_follow_a_new_call() -> None:
    new = call_text(CHAIN.calls[0])
    texts = [text_of(Flaw.INVENTED_RESULT, CHAIN.calls[:1], seed) for seed in range(500)]
    assert 50 < sum(text.startswith(new) for text in texts) < 150


@pytest.mark.parametrize("tool", FAMILIES["choose"](1).setting.tools, ids=tool_name)
def test_a_call_with_placeholders_matches_its_schema(tool: JsonObject) -> None:
    task = FAMILIES["choose"](1)
    schema = schema_of(task.setting.tools, tool_name(tool)) or {}
    arguments = invent_arguments(schema, random.Random(1))
    changed = small_models.with_placeholders(arguments, schema)
    assert objection(task.setting.tools, tool_name(tool), changed) is None


def test_placeholders_replace_only_strings_without_an_enum() -> None:
    kinds: JsonObject = {
        "to": {"type": "string"},
        "body": {"type": "string"},
        "priority": {"type": "string", "enum": ["low"]},
        "count": {"type": "integer"},
    }
    given: JsonObject = {"to": "a", "body": "b", "priority": "low", "count": 3}
    assert small_models.with_placeholders(given, {"properties": kinds}) == {
        "to": "user@example.com",
        "body": "your_body",
        "priority": "low",
        "count": 3,
    }
