"""The replies of the hand-written model of the acceptance tests, and the tools they call.

The last trigger in the prompt selects the reply. Triggers such as `[[call]]` are in the user
message of a test. Other triggers are sentences of Temper's nudges, so that a reply depends on the
attempt. llama-server does not parse a call whose tag lacks the newline of the chat template, so
Temper has to read such a call in the text.
"""

from collections.abc import Sequence

from proxy.conversation.json import JsonObject

SENTENCES = (
    "It will be sunny in Paris today, ",
    "with a light wind from the west ",
    "and twenty-one degrees in the afternoon.",
)
LONG_CITY = "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch"
THOUGHTS = "The user wants a number. Two and two make four."

WEATHER_TOOL: JsonObject = {
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
            "additionalProperties": False,
        },
    },
}
TIME_TOOL: JsonObject = {
    "type": "function",
    "function": {
        "name": "get_time",
        "description": "Tell the time.",
        "parameters": {"type": "object", "properties": {}},
    },
}
TOOLS = (WEATHER_TOOL, TIME_TOOL)


def call(arguments: str, name: str = "get_weather") -> str:
    """Return a call in the exact format of the template."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def run_on_call(arguments: str, name: str = "get_weather") -> str:
    """Return a call without the newlines; llama-server does not recognize it."""
    return f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'


RESPOND = (
    '<tool_call>\n{"name": "respond", "arguments": {"message": "',
    *SENTENCES,
    '"}}\n</tool_call>',
)

SCRIPTS: dict[str, str | Sequence[str]] = {
    "default": "I am a scripted model and have nothing to say about that.",
    # valid calls in the format of the template
    "[[call]]": call('{"city": "Paris", "unit": "celsius"}'),
    "[[two calls]]": call("{}", "get_time") + "\n" + call('{"city": "Oslo"}'),
    "Call the tool `report`": call('{"feeling": "fine"}', "report"),
    "[[preamble]]": "Let me look that up for you.\n" + call('{"city": "Rome"}'),
    "[[respond]]": RESPOND,
    # calls of tools that Temper executes
    "[[our time]]": call('{"timezone": "UTC"}', "get_current_time"),
    "[[our hang]]": call('{"text": "x"}', "f_hang"),
    "[[mixed]]": call('{"text": "ours"}', "f_echo") + "\n" + call('{"city": "Oslo"}'),
    # text replies
    "[[prose]]": "The weather is fine, and no tool was asked about it.",
    "[[four]]": "The answer is four.",
    "[[empty]]": "",
    "[[thinking]]": f"<think>\n{THOUGHTS}\n</think>\n\nThe answer is 4.",
    "[[thinking call]]": "<think>\nA tool will know.\n</think>\n\n" + call('{"city": "Bern"}'),
    "[[forever]]": ("and so on", " and on\0"),
    # calls in a format that llama-server does not parse
    "[[no newline]]": run_on_call('{"city": "Lyon"}'),
    "[[bare]]": '{"name": "get_weather", "arguments": {"city": "Graz"}}',
    "[[fenced]]": '```json\n{"name": "get_weather", "arguments": {"city": "Cork"}}\n```',
    "[[coder]]": "<function=get_weather>\n<parameter=city>\nTurin\n</parameter>\n</function>",
    # calls with a defect
    "[[bad json]]": run_on_call('{"city": "Nice", "days": }'),
    "[[unknown tool]]": run_on_call('{"to": "the moon"}', "launch_rocket"),
    "[[wrong type]]": run_on_call('{"city": "Nice", "days": "3"}'),
    "[[violation]]": run_on_call('{"city": "Nice", "unit": "kelvin"}'),
    "[[long call]]": run_on_call(f'{{"city": "{LONG_CITY}, {LONG_CITY} and {LONG_CITY}"}}'),
    "[[long exact call]]": call(f'{{"city": "near {LONG_CITY}, near {LONG_CITY}"}}'),
    # answers after a tool result
    "<tool_response>": "Thank you: it is sunny there.",
    # later attempts, each answering a nudge
    "You answered in plain text.": "I insist that no tool is needed for this.",
    "could not be read": run_on_call('{"city": "Nice", "days": 2}'),
    "Invalid arguments:": run_on_call('{"city": "Nice", "unit": "celsius"}'),
    "is not a tool.": run_on_call('{"to": "mars"}', "launch_another_rocket"),
    "Reply with one JSON object only": '{"name": "get_weather", "arguments": {"city": "Paris"}}',
}


def reply_to(trigger: str) -> str:
    """Return the whole reply that a trigger selects."""
    return "".join(SCRIPTS[trigger]).rstrip("\0")
