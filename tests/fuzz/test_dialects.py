"""Arbitrary requests and backend replies are read, or rejected with the expected exception."""

from collections.abc import Callable
from itertools import pairwise
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import ReplyStarted
from proxy.conversation.requests import Request, UpstreamRequest
from proxy.dialects.anthropic_messages.upstream.decode import EventReader
from proxy.dialects.anthropic_messages.upstream.encode import (
    encode_request as encode_for_anthropic,
)
from proxy.dialects.anthropic_messages.upstream.fields import ModelLimits
from proxy.dialects.lines import LineDecoder
from proxy.dialects.ollama_chat.decode import LineReader
from proxy.dialects.ollama_chat.encode import encode_request as encode_for_ollama
from proxy.dialects.ollama_chat.fields import ModelSettings
from proxy.dialects.openai_chat.decode import decode_request
from proxy.dialects.openai_chat.encode import encode_request
from proxy.dialects.openai_chat.replies import ChunkDecoder, ReplyPart
from proxy.dialects.sse import Event
from proxy.errors import InvalidRequest
from tests.fakes.histories import call, called, result, said
from tests.fuzz.documents import VALUES, nearly

T = TypeVar("T")
PICTURE: JsonObject = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
FUNCTION: JsonObject = {"name": "look", "description": "Look.", "parameters": {"type": "object"}}
REQUEST: JsonObject = {
    "model": "m",
    "messages": [
        said("system", "Be brief."),
        said("user", [{"type": "text", "text": "Hi"}, PICTURE], name="Ann"),
        called(call("a", arguments='{"a": 1}'), call("b", arguments={"b": [2]}), content=None),
        result("a"),
        result("b", name="look"),
        said("assistant", "So", reasoning_content="Hm."),
    ],
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": {"type": "function", "function": {"name": "look"}},
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_tokens": 9,
    "temperature": 0.5,
    "stop": ["x"],
    "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "object"}}},
    "reasoning_effort": "low",
    "options": {"top_k": 5},
    "keep_alive": "5m",
    "logit_bias": {"1": 2},
    "temper": {"workflow": {"required_steps": ["look"], "prerequisites": []}},
}
BODIES = nearly(REQUEST).map(json.dump)
NOT_ANTHROPICS = {"options", "keep_alive", "logit_bias"}
FOR_ANTHROPIC = nearly(
    {name: value for name, value in REQUEST.items() if name not in NOT_ANTHROPICS}
).map(json.dump)


def refusal_or(read: Callable[[], T]) -> T | InvalidRequest:
    try:
        return read()
    except InvalidRequest as refusal:
        return refusal


def read(body: bytes) -> Request | None:
    request = refusal_or(lambda: decode_request(body))
    if isinstance(request, Request):
        return request
    assert request.param
    assert request.problem
    return None


def question_of(request: Request) -> UpstreamRequest:
    return UpstreamRequest(request, request.messages, request.tools, request.tool_choice)


@settings(deadline=None)
@given(BODIES)
def test_a_random_request_is_rejected_or_forwarded_with_unchanged_members(body: bytes) -> None:
    request = read(body)
    if request is None:
        return
    members = json.split_object(body)
    sent = json.split_object(encode_request(question_of(request), {}))
    ours = {"stream", "stream_options", "temper"}
    assert {name: raw for name, raw in sent.items() if name not in ours} == {
        name: raw for name, raw in members.items() if name not in ours
    }
    assert [message.source for message in request.messages] == json.split_array(members["messages"])


@settings(deadline=None)
@given(st.binary(max_size=60) | VALUES.map(json.dump) | st.text(max_size=60).map(str.encode))
def test_random_bytes_are_never_read_as_a_request_without_messages(body: bytes) -> None:
    assert read(body) is None or b'"messages"' in body


@settings(deadline=None)
@given(BODIES)
def test_a_random_request_is_encoded_for_ollama_or_rejected_with_its_field(body: bytes) -> None:
    request = read(body)
    if request is None:
        return
    upstream_request = question_of(request)
    body_sent = refusal_or(lambda: encode_for_ollama(upstream_request, ModelSettings("m", 512)))
    if isinstance(body_sent, InvalidRequest):
        assert f"{body_sent.param}".partition(".")[0] in request.fields
        return
    sent = json.parse(body_sent)
    assert isinstance(sent, dict)
    assert sent["stream"] is True
    assert sent["truncate"] is False
    messages = sent["messages"]
    assert isinstance(messages, list)
    assert len(messages) == len(request.messages)


@settings(deadline=None)
@given(FOR_ANTHROPIC)
def test_a_random_request_is_encoded_for_anthropic_or_rejected_with_its_field(body: bytes) -> None:
    request = read(body)
    if request is None:
        return
    upstream_request = question_of(request)
    body_sent = refusal_or(lambda: encode_for_anthropic(upstream_request, ModelLimits("m")))
    if isinstance(body_sent, InvalidRequest):
        assert f"{body_sent.param}".partition(".")[0] in request.fields
        return
    sent = json.parse(body_sent)
    assert isinstance(sent, dict)
    assert sent["stream"] is True
    assert sent["messages"]
    assert len(json.split_array(json.dump(sent.get("tools", [])))) == len(request.tools)


CHUNK: JsonObject = {
    "id": "c",
    "created": 1,
    "model": "m",
    "object": "chat.completion.chunk",
    "choices": [
        {
            "index": 0,
            "delta": {
                "role": "assistant",
                "content": "Hi",
                "reasoning_content": "Hm",
                "tool_calls": [
                    {"index": 0, "id": "a", "function": {"name": "look", "arguments": "{}"}}
                ],
            },
            "finish_reason": "stop",
            "logprobs": None,
        }
    ],
    "usage": {"prompt_tokens": 1},
    "timings": {},
    "prompt_progress": {"total": 1, "cache": 0, "processed": 1},
}
TEXT: JsonObject = {"id": "c", "choices": [{"index": 0, "delta": {"content": "Hi"}}]}
LINE: JsonObject = {
    "model": "m",
    "message": {
        "role": "assistant",
        "content": "Hi",
        "thinking": "Hm",
        "tool_calls": [{"id": "a", "function": {"name": "look", "arguments": {"a": 1}}}],
    },
    "done": True,
    "done_reason": "stop",
    "eval_count": 1,
    "logprobs": [{"token": "Hi", "logprob": -1, "top_logprobs": []}],
}


def parts_of(feed: Callable[[str], list[ReplyPart]], documents: list[JsonObject]) -> object:
    """Read documents until one is invalid; it must raise ValueError and no other exception."""
    parts: list[ReplyPart] = []
    try:
        for document in documents:
            parts += feed(json.dump_text(document))
    except ValueError:
        return parts, "no reply"
    return parts


@settings(deadline=None)
@given(st.lists(nearly(CHUNK) | nearly(TEXT), max_size=3))
def test_random_openai_chunks_are_read_as_a_reply_or_an_error(chunks: list[JsonObject]) -> None:
    first = ChunkDecoder()
    assert parts_of(first.feed, chunks) == parts_of(ChunkDecoder().feed, chunks)
    parts_of(lambda _: first.finish(), chunks[:1])


@settings(deadline=None)
@given(nearly(TEXT))
def test_the_fast_chunk_parser_reads_the_same_events_as_the_slow_parser(chunk: JsonObject) -> None:
    """The fast parser is used only after a reply has begun."""
    begun = ChunkDecoder()
    begun.feed('{"id":"c","choices":[]}')
    slow = parts_of(ChunkDecoder().feed, [{"id": "c", **chunk}])
    if isinstance(slow, list):
        assert parts_of(begun.feed, [chunk]) == [
            event for event in slow if not isinstance(event, ReplyStarted)
        ]


@settings(deadline=None)
@given(st.lists(nearly(LINE), max_size=3))
def test_random_ollama_lines_are_read_as_a_reply_or_an_error(lines: list[JsonObject]) -> None:
    reader = LineReader()
    parts_of(lambda line: reader.feed(line.encode()), lines)


BLOCK: JsonObject = {"type": "tool_use", "id": "a", "name": "look", "input": {"a": 1}}
START: JsonObject = {"id": "m", "model": "m", "usage": {"input_tokens": 1}}
EVENTS: tuple[JsonObject, ...] = (
    {"type": "message_start", "message": START},
    {"type": "content_block_start", "index": 0, "content_block": BLOCK},
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "input_json_delta", "partial_json": "{}"},
    },
    {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "Hi"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    {"type": "error", "error": {"type": "api_error", "message": "no"}},
    {"type": "message_stop"},
)


@settings(deadline=None)
@given(st.lists(st.sampled_from(EVENTS).flatmap(nearly), max_size=8))
def test_random_anthropic_events_are_read_as_a_reply_or_an_error(events: list[JsonObject]) -> None:
    reader = EventReader()
    parts_of(lambda event: reader.feed(Event(event)), events)


@given(st.lists(st.sampled_from([b"\n", b"\r\n", b" ", b"{}", b"\xc3\xa9", b"\xff"])), st.data())
def test_random_bytes_are_split_into_the_same_lines_in_any_chunking(
    pieces: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(pieces)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=5))
    decoder = LineDecoder()
    lines = [
        line
        for start, end in pairwise([0, *sorted(cuts), len(stream)])
        for line in decoder.feed(stream[start:end])
    ]
    assert [*lines, *decoder.finish()] == [
        line.strip() for line in stream.split(b"\n") if line.strip()
    ]


@pytest.mark.parametrize("value", [REQUEST, CHUNK, LINE])
def test_the_unchanged_documents_of_the_fuzzer_are_valid(value: JsonValue) -> None:
    document = json.dump(value)
    if value is REQUEST:
        assert read(document)
    elif value is CHUNK:
        assert len(ChunkDecoder().feed(document.decode())) > 4
    else:
        assert len(LineReader().feed(document)) > 4
