"""The usual demonstration: six prompts, the hand-written model's answers, the tools on offer.

The model answers each prompt as models of 4 to 30 billion parameters often do; asked again by
Temper, it does better. Nothing here is taken from a real model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proxy.conversation.json import JsonObject


@dataclass(frozen=True, slots=True)
class DemoScenario:
    """One request: what usually goes wrong, the user's words, and what the model writes.

    What a language model writes is not known beforehand, only which call would be `right`.
    """

    title: str
    prompt: str
    written: str = ""
    right: str = ""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """What is shown: a model, what it is in words, what it is asked, and the tools on offer.

    Without a `model_file` the model is built from the scripts. `flags` are llama-server's.
    """

    introduction: str
    model: str
    heading: str
    scenarios: tuple[DemoScenario, ...]
    tools: Sequence[JsonObject]
    model_file: Path | None = None
    window: int = 4096
    flags: tuple[str, ...] = ()

    def request_for(self, prompt: str, *, stream: bool = False) -> JsonObject:
        """Return the body of a chat request; the likeliest words, so that it can be repeated."""
        return {
            "model": "demo",
            "stream": stream,
            "temperature": 0,
            "messages": [{"role": "user", "content": prompt}],
            "tools": [*self.tools],
        }


SCENARIOS = (
    DemoScenario(
        "a call that leaks as text",
        "What is the weather in Lyon?",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Lyon"}}</tool_call>',
    ),
    DemoScenario(
        "a call in a code fence",
        "What is the weather in Graz?",
        '```json\n{"name": "get_weather", "arguments": {"city": "Graz"}}\n```',
    ),
    DemoScenario(
        "a value of the wrong type",
        "Forecast for Cork, three days.",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Cork", "days": "3"}}'
        "</tool_call>",
    ),
    DemoScenario(
        "a tool that does not exist",
        "Forecast for Oslo, please.",
        '<tool_call>{"name": "weather_forecast", "arguments": {"place": "Oslo"}}</tool_call>',
    ),
    DemoScenario(
        "a value that is not allowed",
        "Weather in Bern, in kelvin.",
        '<tool_call>{"name": "get_weather", "arguments": {"city": "Bern", "unit": "kelvin"}}'
        "</tool_call>",
    ),
    DemoScenario(
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
    "<tool_response>": "The tool has answered, and so do I.",
}

_WHO = (
    "I am a handful of hand-written sentences, not a language model. "
    "Try one of the prompts of the table."
)

SCRIPTS: dict[str, str] = {
    "default": _WHO,
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


SCRIPTED = Demonstration(
    "A real llama-server runs a hand-written model, which is not a language model:\n"
    "this shows what Temper does with such answers, not how often a real model gives\n"
    "them.\n",
    "hand-written, not a language model",
    "what goes wrong",
    SCENARIOS,
    TOOLS,
)


def request_for(prompt: str, *, stream: bool = False) -> JsonObject:
    """Return the body of a chat request to the hand-written model."""
    return SCRIPTED.request_for(prompt, stream=stream)
