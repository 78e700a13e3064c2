"""The parts of a request, drawn from the seed of the run and the request's number.

The backend reads the number in the prompt, so client and backend draw the same values without
exchanging them.
"""

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias

from benchmarks.faults.demands import Call, Demand
from benchmarks.faults.toxics import Toxic
from benchmarks.load.workloads import describe_tool
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

CHAT = "/v1/chat/completions"
# clients choose any of these names; all of them mean the same model
NAMES = ("steady", "gpt-4o", "qwen3:8b")
GONE = "gone"  # a model whose server is down
_CLIENTS = 5
_STREAMED = 0.6  # the probability that a request is streamed
_MARK = re.compile(rb"\[\[request (\d+)\]\]")

# with multi-byte characters, because some faults cut a stream inside a character
_WORDS = (
    *("harbour", "lantern", "quiet", "meadow", "seven", "rivers", "früh", "雪", "copper"),
    *("window", "morning", "paper", "bridge", "thunder", "apple", "naïve", "slate", "🙂"),
)
_CITIES = ("Oslo", "Paris", "São Paulo", "Köln", "東京", "New York")

TOOLS: tuple[JsonObject, ...] = (
    describe_tool(
        "get_weather",
        {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
        required=("city", "days"),
    ),
    describe_tool(
        "write_note",
        {
            "title": {"type": "string"},
            "lines": {"type": "array", "items": {"type": "string"}},
            "pinned": {"type": "boolean"},
        },
        required=("title", "lines"),
    ),
)


NOTHING = Demand()


class Manner(Enum):
    """The behavior of a client."""

    STAYS = "stays"
    SENDS_TWICE = "sends twice at once, with one key"
    DISCONNECTS_EARLY = "leaves before the first token"
    DISCONNECTS_WITHIN_RESPONSE = "leaves in the middle"
    DISCONNECTS_WHILE_SENDING = "leaves before its request is whole"
    READS_SLOWLY = "reads slowly"
    STOPS_READING = "stops reading"
    STOPS_SENDING = "never sends the rest"


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """An HTTP request to Temper."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    path: str = CHAT
    method: str = "POST"

    def with_header(self, name: str, value: str) -> "ChatRequest":
        """Return the same request with a further header."""
        return replace(self, headers={**self.headers, name: value})

    @property
    def is_chat(self) -> bool:
        """True for a request that Temper's metrics count as a chat request."""
        return (self.method, self.path) == ("POST", CHAT)


@dataclass(frozen=True, slots=True)
class Plan:
    """The request, the client's behavior, the backend's replies, and the permitted outcomes.

    The n-th of `plays` is the backend's n-th reply to the request; the last one repeats.
    """

    request: ChatRequest
    plays: tuple[Toxic, ...] = ()
    demand: Demand = NOTHING
    manner: Manner = Manner.STAYS


def number_in(request: bytes) -> int | None:
    """Return the number in an upstream request's prompt: the number of the client's request."""
    match = _MARK.search(request)
    return None if match is None else int(match[1])


class Material:
    """Draws the parts of a request.

    If `stream` is None, it also draws whether the request is streamed.
    """

    def __init__(self, seed: int, number: int, *, stream: bool | None = None) -> None:
        # a seeded generator, because client and backend must draw the same values
        self.chance = random.Random(f"{seed}/{number}")  # noqa: S311
        self.number = number
        self._stream = stream

    def text(self, most: int = 40) -> str:
        """Draw a text of several words."""
        return " ".join(self.chance.choices(_WORDS, k=self.chance.randint(3, most)))

    def call(self) -> Call:
        if self.chance.random() < 0.5:
            return self.forecast()
        lines: list[JsonValue] = [self.text(8) for _ in range(self.chance.randint(0, 5))]
        arguments: JsonObject = {"title": self.text(5), "lines": lines}
        if self.chance.random() < 0.5:
            arguments["pinned"] = self.chance.random() < 0.5
        return Call("write_note", arguments)

    def forecast(self) -> Call:
        """Draw a valid call of the first tool."""
        city, days = self.chance.choice(_CITIES), self.chance.randint(1, 14)
        return Call("get_weather", {"city": city, "days": days})

    def request(self, *, tools: bool, stream: bool | None = None, **more: JsonValue) -> ChatRequest:
        drawn = self.chance.random() < _STREAMED if self._stream is None else self._stream
        stream = drawn if stream is None else stream
        body: JsonObject = {
            "model": self.chance.choice(NAMES),
            "messages": [*self._history(), self.user_message()],
            "stream": stream,
            "temperature": 0.2,
        }
        if stream and self.chance.random() < 0.5:
            body["stream_options"] = {"include_usage": True}
        if tools:
            body["tools"] = [*TOOLS]
        return ChatRequest(json.dump({**body, **more}), self.headers())

    def user_message(self) -> JsonObject:
        """Return the last user message, which contains the number of the request."""
        return {"role": "user", "content": f"{self.text(20)} [[request {self.number}]]"}

    def headers(self, **others: str) -> dict[str, str]:
        """Draw the headers with the client's key."""
        key = f"Bearer client-{self.chance.randrange(_CLIENTS)}"
        return {"content-type": "application/json", "authorization": key, **others}

    def _history(self) -> list[JsonValue]:
        """Draw the earlier messages of the conversation."""
        messages: list[JsonValue] = [{"role": "system", "content": self.text(30)}]
        for turn in range(self.chance.choice((0, 0, 1, 4))):
            call = self.forecast()
            function = {"name": call.name, "arguments": json.dump_text(call.arguments)}
            made: JsonValue = {"id": f"call_{turn}", "type": "function", "function": {**function}}
            messages += [
                {"role": "user", "content": self.text()},
                {"role": "assistant", "content": None, "tool_calls": [made]},
                {"role": "tool", "tool_call_id": f"call_{turn}", "content": self.text()},
                {"role": "assistant", "content": self.text()},
            ]
        return messages


Make: TypeAlias = Callable[[Material], Plan]


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of request, and its `share`: the approximate number in a thousand requests."""

    name: str
    share: float
    make: Make
