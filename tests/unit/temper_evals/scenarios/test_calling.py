from temper_evals.scenarios import calling
from temper_evals.scenarios.worlds import tool_name


def test_many_tools_contain_near_synonyms() -> None:
    names = {tool_name(tool) for tool in calling.choose(3).setting.tools}
    assert {"send_message", "send_email", "send_sms"} <= names


def test_parallel_calls_are_due_together() -> None:
    for index in range(20):
        (step,) = calling.parallel(index).steps
        assert 2 <= len(step.calls) <= 4


def test_some_arguments_are_null_and_some_texts_need_escaping() -> None:
    limits = {calling.schema(index).calls[0].arguments["memory_limit"] for index in range(20)}
    assert None in limits
    texts = "".join(str(calling.verbatim(n).calls[0].arguments["content"]) for n in range(40))
    assert all(mark in texts for mark in ('"', "'", "\\", "\n", "\t", "```", "日本語", "„"))


def test_a_task_with_a_single_call_offers_three_tools() -> None:
    assert len(calling.single(1).setting.tools) == 3
