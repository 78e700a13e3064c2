"""The demonstration: six prompts, what the hand-written model answers, and the tools on offer.

The model answers each prompt as models of 4 to 30 billion parameters often do; asked again by
Temper, it does better. Nothing here is taken from a real model.
"""

from dataclasses import dataclass

from proxy.conversation.json import JsonObject


@dataclass(frozen=True, slots=True)
class Scenario:
    """One request: what usually goes wrong, the user's words, and what the model writes."""

    title: str
    prompt: str
    written: str


SCENARIOS = (
    Scenario(
        "a call that leaks as text",
        "What is the weather in Lyon?",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Lyon"}}</tool_call>',
    ),
    Scenario(
        "a call in a code fence",
        "What is the weather in Graz?",
        '```json\n{"name": "get_weather", "arguments": {"city": "Graz"}}\n```',
    ),
    Scenario(
        "a value of the wrong type",
        "Forecast for Cork, three days.",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Cork", "days": "3"}}'
        "</tool_call>",
    ),
    Scenario(
        "a tool that does not exist",
        "Forecast for Oslo, please.",
        '<tool_call>{"name": "weather_forecast", "arguments": {"place": "Oslo"}}</tool_call>',
    ),
    Scenario(
        "a value that is not allowed",
        "Weather in Bern, in kelvin.",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Bern", "unit": "kelvin"}}'
        "</tool_call>",
    ),
    Scenario(
        "narrating instead of calling",
        "Is it raining in Rome?",
        "I will check the weather in Rome for you right away.",
    ),
)

# what the model writes when Temper asks again; the triggers are sentences of the nudges
_LATER = {
    "is not a tool.": '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}'
    "</tool_call>",
    "Invalid arguments:": '<tool_call>\n{"name": "get_weather", "arguments": '
    '{"city": "Bern", "unit": "celsius"}}\n</tool_call>',
    "called no tool.": '<tool_call>\n{"name": "get_weather", "arguments": '
    '{"city": "Rome"}}\n</tool_call>',
    "<tool_response>": '<tool_call>\n{"name": "respond", "arguments": {"message": '
    '"The tool has answered, and so do I."}}\n</tool_call>',
}

SCRIPTS: dict[str, str] = {
    "default": '<tool_call>\n{"name": "respond", "arguments": {"message": '
    '"I am a handful of hand-written sentences, not a language model. '
    'Try one of the prompts of the table."}}\n</tool_call>',
    **{scenario.prompt: scenario.written for scenario in SCENARIOS},
    **_LATER,
}

TOOLS: list[JsonObject] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Tell the weather in a city.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "days": {"type": "integer"},
                    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                },
                "required": ["city"],
            },
        },
    }
]


def request_for(prompt: str, *, stream: bool = False) -> JsonObject:
    """Return the body of a chat request."""
    return {
        "model": "demo",
        "stream": stream,
        "messages": [{"role": "user", "content": prompt}],
        "tools": [*TOOLS],
    }
