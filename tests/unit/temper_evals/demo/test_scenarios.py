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
LATER = [trigger for trigger in SCRIPTS if trigger not in PROMPTS and trigger != "default"]


def asked(prompt: str = "Hello", *, stream: bool = False) -> Request:
    return decode_request(dump(request_for(prompt, stream=stream)))


def everything_said() -> str:
    """Return every nudge that the scenarios can provoke, and what stands before a tool's result."""
    respond = Tool("respond", True, b"{}")
    offer = OfferedTools(asked().tools, TextPolicy.RESPOND, (), respond=respond)
    wrong = nudges.describe_invalid_arguments([Violation("/unit", "is not allowed")], offer)
    problems = (nudges.describe_unknown_tool("weather_forecast", offer), wrong)
    answers = [(ToolCall("1", "get_weather", "{}"), problem) for problem in problems]
    messages = (
        *nudges.correct_announcement("I will check.", offer),
        *nudges.correct_calls("", answers),
    )
    return "\n".join(message.text for message in messages) + chat_template()


def test_there_are_six_scenarios_and_no_two_alike() -> None:
    assert len(SCENARIOS) == len(set(PROMPTS)) == 6
    assert len({scenario.title for scenario in SCENARIOS}) == 6


def test_the_model_writes_what_the_table_says_it_writes() -> None:
    for scenario in SCENARIOS:
        assert SCRIPTS[scenario.prompt] == scenario.reply


@pytest.mark.parametrize("trigger", LATER)
def test_every_later_answer_is_prompted_by_something_that_is_said_to_the_model(
    trigger: str,
) -> None:
    assert trigger in everything_said()


def test_no_trigger_is_part_of_another_or_of_the_tools() -> None:
    triggers = [*PROMPTS, *LATER]
    assert not [(one, other) for one, other in itertools.permutations(triggers, 2) if one in other]
    offered = dump(request_for("")).decode()
    assert not [trigger for trigger in triggers if trigger in offered]


def test_a_request_is_one_that_temper_understands(stream: bool) -> None:
    request = asked("Hello", stream=stream)
    assert request.stream is stream
    assert [message.text for message in request.messages] == ["Hello"]
    (tool,) = request.tools
    schema = compile_schema(tool.parameters)
    assert schema.is_valid({"city": "Rome", "days": 2, "unit": "celsius"})
    assert not schema.is_valid({"city": "Rome", "unit": "kelvin"})
    assert not schema.is_valid({"city": "Rome", "days": "2"})
    assert not schema.is_valid({})


def test_the_model_answers_in_plain_words_and_calls_nothing_that_is_not_offered() -> None:
    assert "<tool_call>" not in SCRIPTS["default"]
    assert "<tool_response>" in chat_template()
    assert "<tool_call>" not in SCRIPTS["<tool_response>"]
    assert not any("respond" in written for written in SCRIPTS.values())
