"""Conversations in which small models fail after a tool result, and the class of each failure.

The failures occurred with Qwen2.5-Coder-Instruct 0.5B and 1.5B (Q4_K_M, temperature 0, the embedded
llama-server of xllamacpp 2026.10). Each conversation ends where the model has to continue. Another
build or another model may fail differently, so tests require only what holds for every reply.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

SYSTEM = (
    "You are a helpful assistant with tools. Use a tool whenever one is needed; otherwise answer "
    "directly."
)
_TEXT: JsonObject = {"type": "string"}
_DAY: JsonObject = {
    "type": "string",
    "enum": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"],
}
_HOUR: JsonObject = {"type": "integer", "minimum": 0, "maximum": 23}


def tool(name: str, description: str, /, **parameters: JsonValue) -> JsonObject:
    """Describe a tool; all of its parameters are required."""
    schema: JsonObject = {
        "type": "object",
        "properties": parameters,
        "required": [*parameters],
    }
    function: JsonObject = {"name": name, "description": description, "parameters": schema}
    return {"type": "function", "function": function}


# the same tools in every conversation, so that the engine caches their part of the prompt
TOOLS: list[JsonValue] = [
    tool("get_weather", "Get the current weather of a city.", city=_TEXT),
    tool("add_event", "Add an event to the calendar.", title=_TEXT, day=_DAY, hour=_HOUR),
    tool("send_mail", "Send an e-mail.", to=_TEXT, subject=_TEXT, body=_TEXT),
    tool("list_files", "List the files in a folder.", folder=_TEXT),
    tool("move_file", "Move a file into a folder.", path=_TEXT, folder=_TEXT),
    tool("set_light", "Switch the lights of a room.", room=_TEXT, on={"type": "boolean"}),
]
TOOL_NAMES = ("get_weather", "add_event", "send_mail", "list_files", "move_file", "set_light")


@dataclass(frozen=True)
class Step:
    """A call that was made, and its result."""

    name: str
    arguments: JsonObject
    result: JsonValue


@dataclass(frozen=True)
class Conversation:
    """A user's request and the steps done for it.

    `seen` is the reply of the 0.5B model to this conversation.
    """

    id: str
    user: str
    steps: Sequence[Step]
    seen: str

    def messages(self) -> list[JsonValue]:
        messages: list[JsonValue] = [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": self.user},
        ]
        for number, step in enumerate(self.steps):
            messages += exchange(f"call_{number}", step)
        return messages


def exchange(call_id: str, step: Step) -> list[JsonValue]:
    """Return the messages of a call and its result."""
    function: JsonObject = {"name": step.name, "arguments": json.dump_text(step.arguments)}
    call: JsonObject = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": json.dump_text(step.result)},
    ]


def _weather(city: str, weather: str) -> Step:
    return Step("get_weather", {"city": city}, {"city": city, "weather": weather})


ECHO = "nothing but the result"
REPEATED = "the same call again"
RUNAWAY = "the same calls again, until max_tokens"
COPY = "the same call again, and its result"
_DONE: JsonObject = {"ok": True}
_INBOX = Step(
    "list_files", {"folder": "inbox"}, {"files": ["inbox/bill-may.pdf", "inbox/photo.jpg"]}
)
CONVERSATIONS = (
    Conversation(
        "mail sent",
        "Mail ann@example.com with the subject Report and the text 'The report is ready.'",
        [
            Step(
                "send_mail",
                {"to": "ann@example.com", "subject": "Report", "body": "The report is ready."},
                _DONE,
            )
        ],
        ECHO,
    ),
    Conversation(
        "light off",
        "Switch the kitchen lights off.",
        [Step("set_light", {"room": "kitchen", "on": False}, _DONE)],
        ECHO,
    ),
    Conversation(
        "two lights, one switched",
        "Switch on the lights in the hall and in the garage.",
        [Step("set_light", {"room": "hall", "on": True}, _DONE)],
        ECHO,
    ),
    Conversation(
        "weather known",
        "What is the weather in Paris right now?",
        [_weather("Paris", "rain, 12 degrees")],
        RUNAWAY,
    ),
    Conversation(
        "two cities, one known",
        "Tell me the weather in Rome and in Lima.",
        [_weather("Rome", "sun, 24 degrees")],
        REPEATED,
    ),
    Conversation(
        "two cities, both known",
        "Tell me the weather in Rome and in Lima.",
        [_weather("Rome", "sun, 24 degrees"), _weather("Lima", "fog, 17 degrees")],
        RUNAWAY,
    ),
    Conversation("folder listed", "Which files are in the folder inbox?", [_INBOX], REPEATED),
    Conversation(
        "folder listed, file to be moved",
        "Look into the folder inbox and move the bill that is there into the folder bills.",
        [_INBOX],
        "the new call, further invented calls, and their copies until max_tokens",
    ),
    Conversation(
        "file moved",
        "Move the file docs/plan.txt into the folder archive.",
        [Step("move_file", {"path": "docs/plan.txt", "folder": "archive"}, _DONE)],
        ECHO,
    ),
    Conversation(
        "file moved, mail to be sent",
        "Move inbox/photo.jpg into the folder pictures and tell eve@example.com about it by "
        "e-mail, subject Photo.",
        [Step("move_file", {"path": "inbox/photo.jpg", "folder": "pictures"}, _DONE)],
        ECHO,
    ),
    Conversation(
        "event added",
        "Put 'Dentist' into my calendar for Tuesday at 9.",
        [Step("add_event", {"title": "Dentist", "day": "tue", "hour": 9}, _DONE)],
        ECHO,
    ),
    Conversation(
        "weather known, mail to be sent",
        "Get the weather in Oslo, then mail it to carl@example.com with the subject Weather.",
        [_weather("Oslo", "snow, -3 degrees")],
        REPEATED,
    ),
    Conversation("thanks", "Thank you, that was all for today!", [], "words"),
    Conversation(
        "folder to be listed",
        "Look into the folder inbox and move the bill that is there into the folder bills.",
        [],
        "a new call",
    ),
    Conversation(
        "event added, with an id",
        "Put 'Dentist' into my calendar for Tuesday at 9.",
        [
            Step(
                "add_event",
                {"title": "Dentist", "day": "tue", "hour": 9},
                {"event_id": "e-7", "title": "Dentist"},
            )
        ],
        COPY,
    ),
    Conversation(
        "file unknown",
        "Move the bill from the folder inbox into the folder bills.",
        [
            Step(
                "move_file",
                {"path": "inbox/bill.pdf", "folder": "bills"},
                {"error": "Unknown file inbox/bill.pdf. Use list_files."},
            )
        ],
        "a new call and its invented result",
    ),
)
