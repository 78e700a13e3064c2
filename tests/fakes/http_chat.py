"""Temper over HTTP in front of a scripted server: one way to ask, whether streaming or not."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx

from proxy.api.app import Serving, create_app
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import Connection, Timeouts
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.questions import chunk, stream
from tests.fakes.scripted_server import CHAT, Played, ScriptedServer
from tests.fakes.serving import running

WEATHER: JsonObject = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
USAGE: JsonObject = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}


@dataclass
class Answer:
    """What a client got; `events` are the chunks of a stream, `comments` its comments."""

    status: int
    headers: httpx.Headers
    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, JsonValue]] = field(default_factory=list)
    reason: JsonValue = None
    error: JsonObject = field(default_factory=dict)
    events: list[JsonObject] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    is_done: bool = False


def request(prompt: str = "Weather?", **more: JsonValue) -> JsonObject:
    """Make a request with one tool."""
    return {
        "model": "m",
        "messages": [{"role": "user", "content": prompt}],
        "tools": [WEATHER],
        **more,
    }


def says(*texts: str, reason: str = "stop") -> Played:
    """Let the model write text."""
    deltas = [chunk({"content": text}) for text in texts]
    return whole(*deltas, chunk({}, reason))


def calls(arguments: str, name: str = "get_weather", reason: str = "tool_calls") -> Played:
    """Let the backend deliver a structured call, its arguments in two pieces."""
    half = len(arguments) // 2
    function: JsonObject = {"name": name, "arguments": arguments[:half]}
    first: JsonObject = {"index": 0, "id": "call_1", "type": "function", "function": function}
    rest: JsonObject = {"index": 0, "function": {"arguments": arguments[half:]}}
    return whole(chunk({"tool_calls": [first]}), chunk({"tool_calls": [rest]}), chunk({}, reason))


def whole(*chunks: JsonObject) -> Played:
    """Prepare a complete stream with usage, a chunk in each piece."""
    last: JsonObject = {**chunk({}), "choices": [], "usage": USAGE}
    head = chunk({"role": "assistant", "content": None})
    pieces = [stream(one, done=False) for one in (head, *chunks)]
    return Played([*pieces, stream(last)], headers={"content-type": "text/event-stream"})


@asynccontextmanager
async def temper(
    upstream: ScriptedServer,
    serving: Serving | None = None,
    *,
    api_key: str = "",
    timeouts: Timeouts | None = None,
) -> AsyncGenerator[httpx.AsyncClient, None]:
    """Run Temper in front of a scripted server; yields a client of Temper."""
    async with running(upstream) as url:
        backend = LlamaServer(Connection(url, api_key, timeouts=timeouts))
        async with running(create_app(backend, serving or Serving())) as own:
            try:
                async with httpx.AsyncClient(base_url=own, timeout=20) as client:
                    yield client
            finally:
                await backend.close()


async def ask(
    client: httpx.AsyncClient,
    body: JsonObject | bytes,
    *,
    is_stream: bool = False,
    headers: dict[str, str] | None = None,
) -> Answer:
    """Ask Temper and read the answer, whatever its form."""
    content = body if isinstance(body, bytes) else json.dump({**body, "stream": is_stream})
    response = await client.post(
        CHAT, content=content, headers={"content-type": "application/json", **(headers or {})}
    )
    answer = Answer(response.status_code, response.headers)
    if "event-stream" in response.headers.get("content-type", ""):
        read_stream(response.text, answer)
    else:
        read_document(response.content, answer)
    return answer


def read_document(body: bytes, answer: Answer) -> None:
    document = json.parse(body)
    assert isinstance(document, dict)
    if isinstance(error := document.get("error"), dict):
        answer.error = error
        return
    answer.events.append(document)
    choices = document["choices"]
    assert isinstance(choices, list)
    assert isinstance(choices[0], dict)
    read_choice(choices[0], "message", answer)


def read_stream(text: str, answer: Answer) -> None:
    for line in text.split("\n\n"):
        if line.startswith(":"):
            answer.comments.append(line[1:].strip())
        elif line == "data: [DONE]":
            answer.is_done = True
        elif line:
            event = json.parse(line.removeprefix("data: "))
            assert isinstance(event, dict)
            read_event(event, answer)


def read_event(event: JsonObject, answer: Answer) -> None:
    if isinstance(error := event.get("error"), dict):
        answer.error = error
        return
    answer.events.append(event)
    choices = event["choices"]
    assert isinstance(choices, list)
    for choice in choices:
        assert isinstance(choice, dict)
        read_choice(choice, "delta", answer)


def read_choice(choice: JsonObject, member: str, answer: Answer) -> None:
    said = choice[member]
    assert isinstance(said, dict)
    answer.text += str(said.get("content") or "")
    answer.reasoning += str(said.get("reasoning_content") or "")
    made = said.get("tool_calls")
    for call in made if isinstance(made, list) else []:
        assert isinstance(call, dict)
        function = call["function"]
        assert isinstance(function, dict)
        answer.calls.append((str(function["name"]), json.parse(str(function["arguments"]))))
    answer.reason = choice.get("finish_reason") or answer.reason
