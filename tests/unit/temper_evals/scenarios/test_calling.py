from temper_evals.scenarios import calling
from temper_evals.scenarios.worlds import tool_name


def test_the_tools_of_a_choose_task_include_send_message_send_email_and_send_sms() -> None:
    names = {tool_name(tool) for tool in calling.choose(3).setting.tools}
    assert {"send_message", "send_email", "send_sms"} <= names


def test_a_parallel_task_has_one_step_of_two_to_four_calls() -> None:
    for index in range(20):
        (step,) = calling.parallel(index).steps
        assert 2 <= len(step.calls) <= 4


def test_arguments_include_null_and_texts_that_have_to_be_escaped_in_json() -> None:
    limits = {calling.schema(index).calls[0].arguments["memory_limit"] for index in range(20)}
    assert None in limits
    texts = "".join(str(calling.verbatim(n).calls[0].arguments["content"]) for n in range(40))
    assert all(mark in texts for mark in ('"', "'", "\\", "\n", "\t", "```", "日本語", "„"))


def test_a_task_with_a_single_call_offers_three_tools() -> None:
    assert len(calling.single(1).setting.tools) == 3
