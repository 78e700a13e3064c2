"""Replies of engines as bytes: right, broken or hostile, in all protocols.

The client must receive a complete response or one error, and only valid calls.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

from benchmarks.faults.toxics import chunked
from proxy.backends.anthropic import Anthropic
from proxy.backends.client import Backend
from proxy.backends.llama_server import LlamaServer
from proxy.backends.ollama import Ollama
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
)
from tests.fakes import sse
from tests.fakes.asgi import HandMadeClient
from tests.fuzz.documents import VALUES, nearly
from tests.fuzz.files import broken
from tests.fuzz.growing_replies import REPLIES
from tests.fuzz.requests import check
from tests.fuzz.structured_calls import PATHS, READERS, body_of
from tests.fuzz.targets import Target
from tests.fuzz.test_dialects import CHUNK, EVENTS, LINE, TEXT
from tests.fuzz.wire import NOT_FOUND, STREAM, ask, cut

ENGINES: Sequence[Callable[[BackendClient], Backend]] = (LlamaServer, Ollama, Anthropic)
TOOLS: Mapping[str, JsonObject] = {
    "get_weather": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
    "look": {"type": "object", "properties": {"a": {"type": "integer"}}},
}
JUDGES = {name: Draft202012Validator(schema) for name, schema in TOOLS.items()}
MOST_QUESTIONS = 12
ENDS_IN_CALLS = {
    "/v1/chat/completions": b'"finish_reason":"tool_calls"',
    "/v1/messages": b'"stop_reason":"tool_use"',
    "/v1/responses": b'"status":"completed","error":null',  # an item also has a status
}


class PlayedReply(NamedTuple):
    """An input: the first bytes select the way of sending, the others are the engine's reply."""

    engine: int
    path: str
    stream: bool
    pieces: Sequence[bytes]


def played(data: bytes) -> PlayedReply:
    engine, client, size, kind, *_ = data[:4].ljust(4, b"\0")
    body = data[4:]
    if kind % 4:  # otherwise, the bytes include the response head
        body = STREAM + body
    places = range(0, len(body), size) if size else ()
    path = PATHS[client // 2 % len(PATHS)]
    return PlayedReply(engine % len(ENGINES), path, bool(client % 2), cut(body, places))


def judge(data: bytes) -> None:
    """Send bytes from an engine; the client's request is fixed."""
    how = played(data)
    client = HandMadeClient(body_of(how.path, TOOLS, stream=how.stream), "POST", how.path)
    wire = ask(ENGINES[how.engine], client, how.pieces)
    check(client, most=599)
    assert client.status not in (500, 501), client.answer[:500]
    assert len(wire.upstream_requests) <= MOST_QUESTIONS
    if client.status == 200 and ENDS_IN_CALLS[how.path] in client.answer:
        for name, arguments in READERS[how.path, how.stream](client.answer):
            assert JUDGES[name].is_valid(json.parse(arguments)), (name, arguments)


# protocols of engines


def _written(event: ReplyEvent) -> bytes:
    match event:
        case TextDelta(text):
            return sse.text(text)
        case ReasoningDelta(text):
            return sse.delta({"reasoning_content": text})
        case ToolCallStarted(index, call_id, name):
            return sse.call_delta(name, index=index, call_id=call_id)
        case ToolCallArgumentsDelta(index, text):
            more: JsonObject = {"index": index, "function": {"arguments": text}}
            return sse.delta({"tool_calls": [more]})
        case _:
            return sse.end("tool_calls")


def _grown(name: str, count: int) -> bytes:
    return sse.START + b"".join(map(_written, REPLIES[name](count)))


def _event(document: JsonObject) -> bytes:
    return f"event: {document.get('type')}\ndata: ".encode() + json.dump(document) + b"\n\n"


_JUNK = st.sampled_from([b"", b"\n", b": ping\n\n", b"data:\n\n", b"data: [DONE]\n\n", b"\xff\n\n"])
_JUNK |= st.sampled_from([b"retry: 1\n\n", b"event: error\ndata: {}\n\n", b"data: {\n\n", b"{}\n"])
_GOOD = st.sampled_from(
    [
        sse.says("It is ", "sunny."),
        sse.calls("get_weather", '{"city": ', '"Paris"}'),
        sse.says('<tool_call>{"name": "look", "arguments": {"a": 1}}</tool_call>'),
    ]
)
_CHATS = st.one_of(
    st.lists((nearly(CHUNK) | nearly(TEXT)).map(sse.event) | _JUNK, max_size=6).map(b"".join),
    broken(_GOOD),
    st.builds(_grown, st.sampled_from([*REPLIES]), st.integers(0, 300)),
    nearly(
        {
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "Hi", "tool_calls": []},
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": 1},
        }
    ).map(json.dump),
    VALUES.map(json.dump),
)
_LINES = st.lists(nearly(LINE).map(lambda line: json.dump(line) + b"\n") | _JUNK, max_size=5).map(
    b"".join
)
_MESSAGES = st.lists(st.sampled_from(EVENTS).flatmap(nearly).map(_event) | _JUNK, max_size=9).map(
    b"".join
)
_BODIES = (_CHATS, _LINES, _MESSAGES)


def _inputs(*kinds: int) -> st.SearchStrategy[bytes]:
    head = st.tuples(
        st.integers(0, len(_BODIES) - 1),
        st.integers(0, 2 * len(PATHS) - 1),
        st.sampled_from([0, 1, 7, 64]),
        st.sampled_from(kinds),
    )
    return head.flatmap(
        lambda how: (_BODIES[how[0]] if how[3] else _ANSWERS).map(lambda body: bytes(how) + body)
    )


# whole answers, heads included

_HEADS = [
    b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 2\r\n\r\n{}",
    b'HTTP/1.1 400 Bad Request\r\ncontent-length: 26\r\n\r\n{"error":{"message":"no"}}\n',
    b"HTTP/1.1 429 Too Many\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
    b"HTTP/1.0 302 Found\r\nlocation: http://127.0.0.1:9/\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n\x1f\x8b",
    NOT_FOUND,
    b"<html>",
]
_ANSWERS = broken(st.sampled_from(_HEADS) | _GOOD.map(chunked))

TARGETS = (
    Target("replies of engines", _inputs(1), judge),
    Target("answers over http", _inputs(0), judge),
)
