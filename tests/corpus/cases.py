"""Cases of the corpus, and the response of the whole app to a case."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ToolCalled,
)
from proxy.conversation.requests import Request
from proxy.conversation.tools import ToolCall
from proxy.dialects.openai_chat.decode import decode_request
from proxy.facts import Fact
from proxy.guardrails.offer import TextPolicy
from proxy.guardrails.reasoning import EnoughReadError
from proxy.inference.plan import Policy
from tests.corpus.spellings import Call
from tests.fakes.histories import make_tool
from tests.fakes.playbook import Playbook

STRING: JsonObject = {"type": "string"}
TOOLS: list[JsonValue] = [
    make_tool("get_weather", "city", city=STRING, days={"type": "integer"}),
    make_tool("get_time"),
    make_tool(
        "write_note",
        "text",
        text=STRING,
        tags={"type": "array", "items": STRING},
        is_pinned={"type": "boolean"},
        place={"type": "object", "properties": {"city": STRING}},
    ),
]
QUESTION: JsonObject = {"role": "user", "content": "How is the weather?"}
PARIS: Call = ("get_weather", {"city": "Paris"})
OSLO: Call = ("get_weather", {"city": "Oslo", "days": 3})
NOW: Call = ("get_time", {})


@dataclass(frozen=True)
class Case:
    """A reply to a request; `calls` are the calls that the model intends, in order.

    `reason` is the finish reason, and `reasoning` was separated from the reply by the backend.
    `text` is the expected text of the response; None if any text is right.
    """

    title: str
    reply: str
    request: Request
    calls: tuple[Call, ...] = ()
    policy: TextPolicy = TextPolicy.ACCEPT
    reason: str = "stop"
    reasoning: str = ""
    text: str | None = None


@dataclass(frozen=True)
class Outcome:
    """The calls and the text that the client receives if Temper sends no retry."""

    calls: tuple[Call, ...]
    text: str
    facts: tuple[Fact, ...] = field(compare=False)


def ask(**others: JsonValue) -> Request:
    """Return a request with the tools of the corpus; arguments add or replace members."""
    plain: JsonObject = {"model": "m", "messages": [QUESTION], "tools": TOOLS}
    return decode_request(json.dump({**plain, **others}))


def after_user(text: str) -> Request:
    """Return a request that ends with a user message."""
    return ask(messages=[{"role": "user", "content": text}])


def after_result(text: str) -> Request:
    """Return a request that ends with a tool result."""
    function: JsonObject = {"name": "get_time", "arguments": "{}"}
    call: JsonObject = {"id": "call_1", "type": "function", "function": function}
    assistant: JsonObject = {"role": "assistant", "content": "", "tool_calls": [call]}
    result: JsonObject = {"role": "tool", "tool_call_id": "call_1", "content": text}
    return ask(messages=[QUESTION, assistant, result])


def outcome(case: Case, pieces: Iterable[str]) -> Outcome:
    """Return the outcome of a case whose reply arrives in `pieces`."""
    policy = Policy(attempts=1, text_policy=case.policy)
    turn = Playbook.of(case.request, policy).ask().turn
    events: list[ReplyEvent] = [ReasoningDelta(case.reasoning)] if case.reasoning else []
    events += [*map(TextDelta, pieces), ReplyFinished(case.reason)]
    shown: list[ReplyEvent] = []
    try:
        for event in events:
            shown += turn.receive(event)
    except EnoughReadError:
        shown += turn.receive(ReplyFinished("stop"))
    calls = [event.call for event in shown if isinstance(event, ToolCalled)]
    text = "".join(event.text for event in shown if isinstance(event, TextDelta))
    return Outcome(tuple(map(_read, calls)), text, turn.facts)


def _read(call: ToolCall) -> Call:
    arguments = json.parse(call.arguments)
    assert isinstance(arguments, dict)
    return call.name, arguments


def outcomes(case: Case) -> Iterator[Outcome]:
    """Return the outcomes of a reply that arrives whole, and in pieces of 1 and of 7 characters."""
    yield outcome(case, [case.reply])
    for size in (1, 7):
        yield outcome(case, cut(case.reply, size))


def cut(text: str, size: int) -> Sequence[str]:
    """Divide a text into pieces of `size` characters."""
    return [text[start : start + size] for start in range(0, len(text), size)]
