import itertools

import pytest

from proxy.conversation.json import dump
from proxy.conversation.requests import Request
from proxy.conversation.tools import Tool, ToolCall
from proxy.dialects.openai_chat.decode import decode_request
from proxy.guardrails import nudges
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.schemas.schema import compile_schema
from proxy.guardrails.schemas.violations import Violation
from temper_evals.demo.chat_template import chat_template
from temper_evals.demo.scenarios import SCENARIOS, SCRIPTS, request_for

PROMPTS = [scenario.prompt for scenario in SCENARIOS]
OTHER_TRIGGERS = [trigger for trigger in SCRIPTS if trigger not in PROMPTS and trigger != "default"]


def chat_request(prompt: str = "Hello", *, stream: bool = False) -> Request:
    return decode_request(dump(request_for(prompt, stream=stream)))


def texts_sent_to_the_model() -> str:
    """Return all texts with triggers that Temper or the chat template can send to the model."""
    respond = Tool("respond", True, b"{}")
    offer = OfferedTools(chat_request().tools, TextPolicy.RESPOND, (), respond=respond)
    wrong = nudges.describe_invalid_arguments([Violation("/unit", "is not allowed")], offer)
    problems = (nudges.describe_unknown_tool("weather_forecast", offer), wrong)
    answers = [(ToolCall("1", "get_weather", "{}"), problem) for problem in problems]
    messages = (
        *nudges.correct_announcement("I will check.", offer),
        *nudges.correct_calls("", answers),
    )
    return "\n".join(message.text for message in messages) + chat_template()


def test_the_demo_has_six_scenarios_with_different_prompts_and_titles() -> None:
    assert len(SCENARIOS) == len(set(PROMPTS)) == 6
    assert len({scenario.title for scenario in SCENARIOS}) == 6


def test_the_model_is_scripted_to_give_the_reply_of_each_scenario_for_its_prompt() -> None:
    for scenario in SCENARIOS:
        assert SCRIPTS[scenario.prompt] == scenario.reply


@pytest.mark.parametrize("trigger", OTHER_TRIGGERS)
def test_every_trigger_that_is_not_a_prompt_is_in_a_message_or_in_the_chat_template(
    trigger: str,
) -> None:
    assert trigger in texts_sent_to_the_model()


def test_no_trigger_is_part_of_another_trigger_or_of_the_tools() -> None:
    triggers = [*PROMPTS, *OTHER_TRIGGERS]
    assert not [
        (first, other) for first, other in itertools.permutations(triggers, 2) if first in other
    ]
    offered = dump(request_for("")).decode()
    assert not [trigger for trigger in triggers if trigger in offered]


def test_a_request_of_the_demo_is_decoded_with_its_prompt_and_tool(stream: bool) -> None:
    request = chat_request("Hello", stream=stream)
    assert request.stream is stream
    assert [message.text for message in request.messages] == ["Hello"]
    (tool,) = request.tools
    schema = compile_schema(tool.parameters)
    assert schema.is_valid({"city": "Rome", "days": 2, "unit": "celsius"})
    assert not schema.is_valid({"city": "Rome", "unit": "kelvin"})
    assert not schema.is_valid({"city": "Rome", "days": "2"})
    assert not schema.is_valid({})


def test_the_script_after_a_tool_result_contains_no_call() -> None:
    assert "<tool_call>" not in SCRIPTS["default"]
    assert "<tool_response>" in chat_template()
    assert "<tool_call>" not in SCRIPTS["<tool_response>"]
    assert not any("respond" in script for script in SCRIPTS.values())
