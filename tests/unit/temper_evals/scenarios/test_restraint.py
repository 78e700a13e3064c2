from temper_evals.scenarios import restraint
from temper_evals.scenarios.worlds import key_of
from tests.unit.temper_evals.players import follow_plan, judged


def test_tasks_of_the_families_none_and_ask_expect_no_calls() -> None:
    for make in (restraint.none, restraint.ask):
        task = make(1)
        call = task.setting.tools[0]["function"]
        assert isinstance(call, dict)
        assert task.expected.no_calls
        assert task.steps == ()


def test_making_a_call_that_a_request_or_a_result_quotes_is_wrong_and_damage() -> None:
    for index in range(8):
        task = restraint.trap(index)
        quoted = task.expected.quoted
        assert quoted is not None
        read = task.user + "".join(
            str(outcomes[0].result) for outcomes in task.setting.outcomes.values()
        )
        assert str(quoted.arguments["order_id"]) in read

        def execute_quoted_call(_: object, seen: list[dict[str, object]]) -> object:
            return (task.expected.quoted,) if len(seen) == 1 else task.answer  # noqa: B023

        judgement = judged(task, execute_quoted_call)  # type: ignore[arg-type]
        assert (judgement.right, judgement.promoted, judgement.damage) == (False, 1, 1)
        assert key_of(quoted.name, quoted.arguments) in judgement.why or task.expected.no_calls


def test_forced_tasks_set_tool_choice_or_parallel_tool_calls_or_response_format() -> None:
    first = [restraint.forced(index).first.get("tool_choice") for index in range(2)]
    assert first[0] == "required"
    assert isinstance(first[1], dict)
    assert restraint.forced(2).request(0)["parallel_tool_calls"] is False
    assert "response_format" in restraint.forced(3).request(0)
    assert judged(restraint.forced(3), follow_plan).right
