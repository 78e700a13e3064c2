"""A required call of a real model is valid, even if it would be invalid without the constraint."""

from typing import cast

import jsonschema
import pytest

from proxy.conversation.json import JsonObject, JsonValue
from tests.real.conftest import LiveTemper
from tests.real.conversations import tool

TEXT: JsonObject = {"type": "string"}
WEATHER = tool("get_weather", "Get the current weather of a city.", city=TEXT)
TIME = tool("get_time", "Get the current time in a city.", city=TEXT)
LEVEL: JsonObject = {"type": "string", "enum": ["P1", "P2", "P3"]}
TICKET = tool("open_ticket", "Open a ticket.", title=TEXT, priority=LEVEL)
STARS: JsonObject = {"type": "integer", "minimum": 1, "maximum": 5}
RATING = tool("rate", "Rate a film.", film=TEXT, stars=STARS)
NUMBER: JsonObject = {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{4}$"}
CANCEL = tool("cancel_order", "Cancel an order by its number.", number=NUMBER)

REQUIRED: JsonValue = "required"
NAMED: JsonValue = {"type": "function", "function": {"name": "get_time"}}


@pytest.mark.parametrize(
    ("user", "tools", "choice", "allowed"),
    [
        pytest.param(
            "Good morning!", [WEATHER, TIME], REQUIRED, {"get_weather", "get_time"}, id="required"
        ),
        pytest.param("Is it raining in Oslo?", [WEATHER, TIME], NAMED, {"get_time"}, id="named"),
        pytest.param(
            "Open a ticket: the lamp is broken. It is very urgent!",
            [TICKET],
            REQUIRED,
            {"open_ticket"},
            id="enum",
        ),
        pytest.param(
            "I give the film Metropolis 9 of 10 stars.", [RATING], REQUIRED, {"rate"}, id="range"
        ),
        pytest.param(
            "Please cancel my order number 77.", [CANCEL], REQUIRED, {"cancel_order"}, id="pattern"
        ),
    ],
)
def test_a_required_call_satisfies_its_schema(
    temper: LiveTemper,
    user: str,
    tools: list[JsonValue],
    choice: JsonValue,
    allowed: set[str],
    stream: bool,
) -> None:
    messages: list[JsonValue] = [{"role": "user", "content": user}]
    answer = temper.ask(messages, tools=tools, tool_choice=choice, stream=stream)
    assert answer.calls, answer.written
    assert answer.answer.reason == "tool_calls"
    schemas = {str(function["name"]): function["parameters"] for function in map(_function, tools)}
    for name, arguments in answer.calls:
        assert name in allowed, answer.written
        jsonschema.validate(arguments, cast("JsonObject", schemas[name]))


def _function(described: JsonValue) -> JsonObject:
    return cast("JsonObject", cast("JsonObject", described)["function"])
