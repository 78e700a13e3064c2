"""The demonstration with the user's model: six prompts, the tools, and the right calls."""

from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.demo.scenarios import Demonstration, DemoScenario, Example
from temper_evals.scenarios.catalogue import describe_tool

_MOST_TOKENS = 1024  # a model that never stops would otherwise fill its window

_TEXT: JsonObject = {"type": "string"}
_WHOLE: JsonObject = {"type": "integer"}
_TEXTS: JsonObject = {"type": "array", "items": {"type": "string"}}
_STATES: JsonObject = {"type": "string", "enum": ["on", "off"]}
_ROOMS: JsonObject = {"type": "string", "enum": ["kitchen", "bedroom", "hall"]}
_CLOCK: JsonObject = {"type": "string", "description": "24 hours, such as 08:30."}
_MOMENT: JsonObject = {
    "type": "object",
    "properties": {"hour": _WHOLE, "minute": _WHOLE},
    "required": ["hour", "minute"],
    "additionalProperties": False,
}

TOOLS: tuple[JsonObject, ...] = (
    describe_tool("get_weather", "Get the current weather in a city.", city=_TEXT),
    describe_tool("set_timer", "Start a timer.", minutes=_WHOLE),
    describe_tool(
        "switch_light", "Turn the light of a room on or off.", room=_ROOMS, state=_STATES
    ),
    describe_tool("add_to_shopping_list", "Add items to the shopping list.", items=_TEXTS),
    describe_tool("book_table", "Book a table in a restaurant.", people=_WHOLE, time=_CLOCK),
    describe_tool("set_alarm", "Set an alarm.", time=_MOMENT),
)


def _scenario(title: str, prompt: str, tool: str, /, **arguments: JsonValue) -> DemoScenario:
    return DemoScenario(title, prompt, right=(tool, arguments))


SCENARIOS = (
    _scenario("a string", "What is the weather in Lyon?", "get_weather", city="Lyon"),
    _scenario("a number", "Set a timer for 25 minutes.", "set_timer", minutes=25),
    _scenario(
        "two choices from lists",
        "Turn the light in the kitchen off.",
        "switch_light",
        room="kitchen",
        state="off",
    ),
    _scenario(
        "a list",
        "Add milk, bread and eggs to the shopping list.",
        "add_to_shopping_list",
        items=["milk", "bread", "eggs"],
    ),
    _scenario(
        "a number and a time",
        "Book a table for four people at 19:30.",
        "book_table",
        people=4,
        time="19:30",
    ),
    _scenario("an object", "Set an alarm for 7:15.", "set_alarm", time={"hour": 7, "minute": 15}),
)


INTRODUCTION = """\
Your model gets six prompts at temperature 0, each directly and through Temper.
This shows what Temper does; 'temper eval' measures whether it helps.
"""


def demonstration_of(model: str) -> Demonstration:
    """Return the demonstration with a model; `model` is its name in requests."""
    return Demonstration(
        model,
        "what the call needs",
        SCENARIOS,
        TOOLS,
        (
            Example("A call", "What is the weather in Oslo?"),
            Example("The same, streamed", "What is the weather in Oslo?", streams=True),
        ),
        name=model,
        most_tokens=_MOST_TOKENS,
    )
