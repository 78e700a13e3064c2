"""Drives a turn by hand: feed it backend events, and check the events for the client."""

from dataclasses import dataclass, field

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonSchema
from proxy.conversation.messages import Message, user_message
from proxy.conversation.replies import (
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
)
from proxy.conversation.requests import Request, UpstreamRequest
from proxy.conversation.tools import Tool, ToolChoice, ToolUse
from proxy.guardrails.review import NewId
from proxy.inference.plan import Policy
from proxy.inference.preparation import begin, plan_request
from proxy.inference.turn import MayRetry, Turn

WEATHER_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "unit": {"enum": ["c", "f"]},
    },
    "required": ["city"],
}


def make_tool(name: str, parameters: JsonObject) -> Tool:
    function: JsonObject = {"name": name, "description": name, "parameters": parameters}
    return Tool(name, parameters, json.dump({"type": "function", "function": function}))


WEATHER = make_tool("get_weather", WEATHER_SCHEMA)
CLOCK = make_tool("get_time", {"type": "object", "properties": {}})


def make_request(
    *messages: Message,
    tools: tuple[Tool, ...] = (WEATHER, CLOCK),
    choice: ToolChoice = ToolUse.AUTO,
    parallel: bool = True,
    answer_schema: JsonSchema | None = None,
    stop_strings: bool = False,
    stream: bool = False,
) -> Request:
    return Request(
        "test",
        messages or (user_message("How is the weather?"),),
        {"model": b'"test"'},
        tools,
        choice,
        parallel_tool_calls=parallel,
        answer_schema=answer_schema,
        stop_strings=stop_strings,
        stream=stream,
    )


def prepare(
    request: Request, policy: Policy, new_id: NewId, may_retry: MayRetry = lambda: True
) -> Turn:
    """Prepare the turn for a request that fits the window."""
    return begin(plan_request(request, policy), new_id, may_retry)


@dataclass
class CountedIds:
    """Ids that are the same in every run."""

    count: int = 0

    def __call__(self) -> str:
        self.count += 1
        return f"made_{self.count}"


@dataclass
class Playbook:
    """One turn, driven by hand."""

    turn: Turn
    upstream_request: UpstreamRequest | None = None
    shown: list[ReplyEvent] = field(default_factory=list)

    @classmethod
    def of(cls, request: Request, policy: Policy | None = None) -> "Playbook":
        return cls(prepare(request, policy or Policy(), CountedIds()))

    def ask(self) -> "Playbook":
        """Require an upstream request and return it; all events for the client must be consumed."""
        assert self.shown == []
        self.upstream_request = self.turn.next_request()
        assert self.upstream_request is not None
        return self

    def receive(self, *events: ReplyEvent) -> "Playbook":
        """Feed backend events to the turn."""
        for event in events:
            self.shown += self.turn.receive(event)
        return self

    def expect(self, *events: ReplyEvent) -> "Playbook":
        """Require exactly these events for the client next."""
        count = len(events)
        assert self.shown[:count] == list(events)
        del self.shown[:count]
        return self

    def end(self) -> None:
        """Require that all events are consumed and that the model is not prompted again."""
        assert self.shown == []
        assert self.turn.next_request() is None

    def schema(self) -> JsonObject | None:
        assert self.upstream_request is not None
        return self.upstream_request.schema

    @property
    def last_message(self) -> JsonObject:
        assert self.upstream_request is not None
        source = json.parse(self.upstream_request.messages[-1].source)
        assert isinstance(source, dict)
        return source


def write(book: Playbook, text: str, reason: str = "stop") -> Playbook:
    """Feed a text reply, a few characters at a time."""
    for start in range(0, len(text), 7):
        book.receive(TextDelta(text[start : start + 7]))
    return book.receive(ReplyFinished(reason))


def shown_text(book: Playbook) -> str:
    """Return all unconsumed text for the client."""
    return "".join(event.text for event in book.shown if isinstance(event, TextDelta))


def call(book: Playbook, name: str, arguments: str, reason: str = "tool_calls") -> Playbook:
    """Feed a structured call, a few characters at a time."""
    book.receive(ToolCallStarted(0, "backend_id", name))
    for start in range(0, len(arguments), 5):
        book.receive(ToolCallArgumentsDelta(0, arguments[start : start + 5]))
    return book.receive(ReplyFinished(reason))
