"""Requests of the engine tests, through Temper and directly, and parsers of responses."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import httpx
import jsonschema

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.answers import Answer, read_answer

CHAT = "/v1/chat/completions"
LONGEST = 80  # tokens of an answer; the answers of this model are shorter
MARKUP = ("<tool_call>", "</tool_call>", "<|im_", '"arguments"', "[TOOL_CALLS]", "<function=")
SMALL_TALK = ("Hello!", "Good morning!", "Thank you.", "Thanks a lot!")


def tool(name: str, text: str, /, **properties: JsonValue) -> JsonObject:
    """Return a tool with only required parameters."""
    parameters: JsonObject = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    described: JsonObject = {"name": name, "description": text, "parameters": parameters}
    return {"type": "function", "function": described}


_TEXT: JsonObject = {"type": "string"}
WEATHER = tool("get_weather", "The weather in a city.", city=_TEXT)
TIME = tool("get_time", "The time in a city.", city=_TEXT)
PHONE = tool("find_phone", "The phone of a person.", name=_TEXT)
TOOLS = (WEATHER, TIME, PHONE)
# unconstrained, the model writes "low", "normal" or "high"
LEVELS: JsonObject = {"type": "string", "enum": ["P1", "P2", "P3"]}
TICKET = tool("open_ticket", "Opens a ticket.", title=_TEXT, priority=LEVELS)

USER_MESSAGES = (
    ("What is the weather in Paris?", "get_weather"),
    ("Will it rain in Oslo?", "get_weather"),
    ("Weather in Rome, please.", "get_weather"),
    ("What is the weather in Tokyo?", "get_weather"),
    ("What time is it in Berlin?", "get_time"),
    ("Tell me the time in Lima.", "get_time"),
    ("What time is it in Vienna?", "get_time"),
    ("Tell me the time in Cairo.", "get_time"),
    ("What is the phone of Anna?", "find_phone"),
    ("Find the phone of Otto.", "find_phone"),
    ("What is the phone of Clara?", "find_phone"),
    ("Find the phone of Max.", "find_phone"),
)
TICKETS = (
    "Report lamp with high priority.",
    "Open a ticket badge with low priority.",
    "Report cable with normal priority.",
    "Open a ticket desk with high priority.",
)


@dataclass(frozen=True)
class Server:
    """A server with the chat completions API, and its model."""

    client: httpx.Client
    model: str

    def ask(
        self,
        text: str,
        tools: Sequence[JsonObject] = (),
        /,
        *,
        stream: bool = False,
        **more: JsonValue,
    ) -> Answer:
        """Send a user message, and return the parsed response."""
        return read_answer(self.post([message("user", text)], tools, stream=stream, **more))

    def post(
        self, messages: Sequence[JsonObject], tools: Sequence[JsonObject] = (), /, **more: JsonValue
    ) -> httpx.Response:
        """Send a conversation."""
        offered: JsonObject = {"tools": list(tools)} if tools else {}
        plain: JsonObject = {"model": self.model, "messages": list(messages), "temperature": 0}
        body: JsonObject = {**plain, "max_tokens": LONGEST, **offered, **more}
        return self.client.post(CHAT, json=body)

    def calls(self, text: str, tools: Sequence[JsonObject], **more: JsonValue) -> "ParsedReply":
        """Send a message to the engine directly, and return the raw calls of its response."""
        return called(document_of(self.post([message("user", text)], tools, **more)))


def message(role: str, text: str) -> JsonObject:
    return {"role": role, "content": text}


def document_of(response: httpx.Response) -> JsonObject:
    """Return a JSON body, or {} if it is not an object."""
    try:
        document = json.parse(response.content)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


@dataclass(frozen=True)
class ParsedReply:
    """The text and the calls of a response."""

    text: str = ""
    calls: Sequence[tuple[str, str]] = field(default=())

    @property
    def leaks(self) -> bool:
        """Return whether the text contains the markup of a call."""
        return any(mark in self.text for mark in MARKUP)

    def is_one_of(self, tools: Sequence[JsonObject], name: str = "") -> bool:
        """Return whether all calls are valid for these tools, and the first has this name."""
        if not self.calls or not all(_is_valid(call, tools) for call in self.calls):
            return False
        return name in {"", self.calls[0][0]}


def called(document: JsonObject) -> ParsedReply:
    """Parse the response of an engine; an empty reply if it is not a completion."""
    choices = document.get("choices")
    if not isinstance(choices, list) or not choices:
        return ParsedReply()
    message = cast("JsonObject", cast("JsonObject", choices[0])["message"])
    calls = cast("list[JsonObject]", message.get("tool_calls") or [])
    functions = [cast("JsonObject", call["function"]) for call in calls]
    return ParsedReply(
        str(message.get("content") or ""),
        [(str(function["name"]), str(function["arguments"])) for function in functions],
    )


def through_temper(answer: Answer) -> ParsedReply:
    """Convert an answer of Temper to a parsed reply."""
    functions = [cast("JsonObject", call["function"]) for call in answer.calls]
    calls = [(str(function["name"]), str(function["arguments"])) for function in functions]
    return ParsedReply(answer.text or "", calls)


def _is_valid(call: tuple[str, str], tools: Sequence[JsonObject]) -> bool:
    name, arguments = call
    for tool in tools:
        function = cast("JsonObject", tool["function"])
        if function["name"] == name:
            try:
                jsonschema.validate(
                    json.parse(arguments), cast("JsonObject", function["parameters"])
                )
            except (ValueError, jsonschema.ValidationError):
                return False
            return True
    return False
