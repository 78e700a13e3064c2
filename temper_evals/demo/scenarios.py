"""The types of a demonstration, and the default demonstration with a handwritten model.

The first reply to each prompt has an error that models of 4 to 30 billion parameters often make.
The reply to a retry is correct. No reply is taken from a real model.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from proxy.conversation.json import JsonObject, JsonValue

# The name of a tool and its arguments; a string if they are not JSON.
Call: TypeAlias = tuple[str, JsonValue]


@dataclass(frozen=True, slots=True)
class DemoScenario:
    """A prompt and its title in the table.

    `reply` is the reply of the handwritten model; for a language model, only the `right` call is
    known in advance.
    """

    title: str
    prompt: str
    reply: str = ""
    right: Call | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """A request that the user can send: a title, the prompt, and options of curl."""

    title: str
    prompt: str
    streams: bool = False
    options: str = ""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """A demonstration: the model, the title of the first column, the prompts and the tools.

    `name` is the model in requests, and `most_tokens` limits each reply.
    """

    model: str
    heading: str
    scenarios: tuple[DemoScenario, ...]
    tools: Sequence[JsonObject]
    examples: tuple[Example, ...] = ()
    name: str = "demo"
    most_tokens: int | None = None

    def request_for(self, prompt: str, *, stream: bool = False) -> JsonObject:
        """Return the body of a chat request, at temperature 0 for repeatable replies."""
        limit: JsonObject = {} if self.most_tokens is None else {"max_tokens": self.most_tokens}
        return {
            "model": self.name,
            "stream": stream,
            "temperature": 0,
            **limit,
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

# Replies to later prompts. Each key is a text that only such a prompt contains: a part of a nudge,
# or the markup of a tool result.
_AFTER_NUDGES = {
    "is not a tool.": '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}'
    "</tool_call>",
    "Invalid arguments:": '<tool_call>\n{"name": "get_weather", "arguments": '
    '{"city": "Bern", "unit": "celsius"}}\n</tool_call>',
    "called no tool.": '<tool_call>\n{"name": "get_weather", "arguments": '
    '{"city": "Rome"}}\n</tool_call>',
    "<tool_response>": "The tool has answered, and so do I.",
}

_SELF_DESCRIPTION = (
    "I am a set of handwritten sentences, not a language model. "
    "Try one of the prompts of the table."
)

SCRIPTS: dict[str, str] = {
    "default": _SELF_DESCRIPTION,
    **{scenario.prompt: scenario.reply for scenario in SCENARIOS},
    **_AFTER_NUDGES,
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


INTRODUCTION = """\
A real llama-server runs a handwritten model, which is not a language model.
This shows the effect of Temper on such replies, not how often real models
give them.
"""

SCRIPTED = Demonstration(
    "handwritten, not a language model",
    "what goes wrong",
    SCENARIOS,
    TOOLS,
    (
        Example("A call that the model wrote as text", "What is the weather in Lyon?"),
        Example(
            "A tool that does not exist, retried and streamed",
            "Forecast for Oslo, please.",
            streams=True,
        ),
        Example(
            "Text instead of a call, accepted as an answer",
            "Is it raining in Rome?",
            options="-H 'x-temper-text-policy: accept' ",
        ),
    ),
)


def request_for(prompt: str, *, stream: bool = False) -> JsonObject:
    return SCRIPTED.request_for(prompt, stream=stream)
