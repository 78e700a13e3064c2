from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionChunk

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import user_message
from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
    UsageReported,
)
from proxy.conversation.requests import Request, UpstreamRequest
from proxy.conversation.tools import Tool, ToolCall
from proxy.dialects.dialect import Problem
from proxy.dialects.openai_chat.decode import decode_request
from proxy.dialects.openai_chat.encode import (
    ChunkEncoder,
    Identity,
    delta_of,
    encode_request,
)
from proxy.dialects.openai_chat.replies import ChunkDecoder, ReplyPart
from proxy.dialects.sse import EventDecoder
from tests.examples import examples

A_BRACE: JsonObject = {"arguments": "{"}

IDENTITY = Identity("c1", 1700000000, "m", "fp")
STARTED = ReplyStarted("c1", 1700000000, "m", "fp")
LOGPROBS: JsonObject = {
    "content": [{"token": "x", "logprob": -0.5, "bytes": [120], "top_logprobs": []}],
    "refusal": None,
}
TOOL = b'{ "type":"function", "function":{"name":"f"} }'


def upstream_request(request: Request, **changed: object) -> UpstreamRequest:
    messages = changed.get("messages", request.messages)
    tools = changed.get("tools", request.tools)
    assert isinstance(messages, tuple)
    assert isinstance(tools, tuple)
    return UpstreamRequest(request, messages, tools, request.tool_choice)


BODY = (
    b'{"temperature":1.50,"messages":[ {"role":"user","content":"\\u00fc"} ],"n":1,'
    b'"tools":[ %b ],"stream":false,"x":{"b":1,  "a":2},"temper":{}}' % TOOL
)


def test_an_upstream_request_keeps_the_clients_bytes_of_messages_and_tools() -> None:
    request = decode_request(BODY)
    later = request.append_messages((user_message("Again"),))
    later = later.offering((Tool("g", {}, b'{"g":1}'),))
    body = json.split_object(encode_request(upstream_request(later), {}))

    assert body["messages"] == (
        b'[{"role":"user","content":"\\u00fc"},{"role":"user","content":"Again"}]'
    )
    assert body["tools"] == b'[%b,{"g":1}]' % TOOL


def chunks(stream: bytes) -> list[JsonObject]:
    decoder = EventDecoder()
    values = [json.parse(event.data) for event in decoder.feed(stream) if event.data != "[DONE]"]
    assert decoder.finish() == []
    for value in values:
        ChatCompletionChunk.model_validate(value)
    return [value for value in values if isinstance(value, dict)]


def encoded(*events: ReplyEvent, include_usage: bool = False) -> list[JsonObject]:
    encoder, batch_encoder = (
        ChunkEncoder(IDENTITY, include_usage),
        ChunkEncoder(IDENTITY, include_usage),
    )
    alone = b"".join(encoder.encode(event) for event in events)
    assert batch_encoder.encode_all(events) == alone
    return chunks(alone)


def choice(
    delta: JsonObject, reason: str | None = None, **members: JsonValue
) -> dict[str, JsonValue]:
    return {"index": 0, "delta": delta, **members, "finish_reason": reason}


ROLE = choice({"role": "assistant", "content": ""})


@pytest.mark.parametrize("last", [[], [TextDelta("a", {"content": []}), TextDelta("b")]])
def test_a_batch_of_texts_is_encoded_like_single_texts(last: list[ReplyEvent]) -> None:
    texts = [TextDelta(text) for text in ("", ",", '","', "\n", "Grüße", "", *"xyz")]
    assert len(encoded(STARTED, *texts, *last)) == 8 + len(last)
    assert encoded(TextDelta(""), TextDelta("")) == []


def test_a_keepalive_is_an_empty_chunk() -> None:
    encoder = ChunkEncoder(IDENTITY, include_usage=False)
    stream = encoder.keep_alive() + encoder.keep_alive() + encoder.encode(TextDelta("x"))

    assert [chunk["choices"] for chunk in chunks(stream)] == [
        [ROLE],
        [choice({})],
        [choice({"content": "x"})],
    ]


def test_comments_and_done_and_errors_are_encoded_as_server_sent_events() -> None:
    encoder = ChunkEncoder(IDENTITY, include_usage=False)

    assert encoder.comment("a\nb") == b": a\n: b\n\n"
    assert encoder.end() == b"data: [DONE]\n\n"
    assert encoder.fail(Problem(500, "server_error", "no", details={"more": 1})) == (
        b'data: {"error":{"message":"no","type":"server_error","param":null,"code":null,'
        b'"more":1}}\n\n'
    )


def test_no_keepalive_follows_the_finish_reason() -> None:
    encoder = ChunkEncoder(IDENTITY, include_usage=False)
    encoder.encode_all([STARTED, ReplyFinished("stop")])

    assert encoder.keep_alive() == b""


texts = st.text(min_size=1, max_size=12)
objects = st.dictionaries(texts, st.integers(0, 9) | texts | st.none(), max_size=3)
deltas = st.lists(
    st.builds(TextDelta, texts, st.none() | st.just(LOGPROBS)) | st.builds(ReasoningDelta, texts),
    max_size=5,
)
calls = st.lists(st.builds(lambda name, text: ToolCall("", name, text), texts, texts), max_size=3)
endings = st.tuples(
    st.builds(UsageReported, objects, st.none() | objects.filter(bool)),
    st.builds(ReplyFinished, st.sampled_from(["stop", "length", "tool_calls"])),
)


def as_received(event: ReplyEvent) -> Sequence[ReplyEvent]:
    if not isinstance(event, ToolCalled):
        return [event]
    call = event.call
    return [
        ToolCallStarted(event.index, call.id, call.name),
        ToolCallArgumentsDelta(event.index, call.arguments),
    ]


@settings(max_examples=examples(40))
@given(deltas, calls, endings, st.lists(st.integers(0, 3000), max_size=8))
def test_encoded_events_are_decoded_to_the_same_events_at_every_chunking(
    events_: list[ReplyEvent],
    made: list[ToolCall],
    ending: tuple[UsageReported, ReplyFinished],
    cuts: list[int],
) -> None:
    called = [
        ToolCalled(index, ToolCall(f"k{index}", call.name, call.arguments))
        for index, call in enumerate(made)
    ]
    events: list[ReplyEvent] = [STARTED, *events_, *called, *ending]
    encoder = ChunkEncoder(IDENTITY, include_usage=True)
    stream = b"".join([encoder.encode(event) for event in events]) + encoder.end()
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]

    received = [event for event in events for event in as_received(event)]
    assert decoded([stream[start:end] for start, end in pairwise(edges)]) == received
    assert decoded([stream[at : at + 1] for at in range(len(stream))]) == received


def decoded(pieces: list[bytes]) -> list[ReplyPart]:
    events, decoder = EventDecoder(), ChunkDecoder()
    received = [event for piece in pieces for event in events.feed(piece)] + events.finish()
    return [part for event in received for part in decoder.feed(event.data)] + decoder.finish()


@pytest.mark.parametrize(
    ("event", "delta"),
    [
        (TextDelta("Hi"), {"content": "Hi"}),
        (TextDelta(""), {}),
        (ReasoningDelta("Hm"), {"reasoning_content": "Hm"}),
        (ToolCallArgumentsDelta(1, "{"), {"tool_calls": [{"index": 1, "function": A_BRACE}]}),
        (ReplyFinished("stop"), {}),
    ],
)
def test_the_delta_of_an_event_without_content_is_empty(
    event: ReplyEvent, delta: JsonObject
) -> None:
    assert delta_of(event) == delta
