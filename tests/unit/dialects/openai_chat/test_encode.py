from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import user_message
from proxy.conversation.replies import (
    PromptProgress,
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    ReplyUnreadable,
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
    CompletionBuilder,
    Identity,
    delta_of,
    encode_question,
)
from proxy.dialects.openai_chat.replies import ChunkDecoder, ReplyPart
from proxy.dialects.sse import EventDecoder
from tests.examples import examples

A_BRACE: JsonObject = {"arguments": "{"}

IDENTITY = Identity("c1", 1700000000, "m", "fp")
STARTED = ReplyStarted("c1", 1700000000, "m", "fp")
USAGE: JsonObject = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
NO_USAGE: JsonObject = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
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


def asked(**members: JsonValue) -> Request:
    return decode_request(json.dump({"messages": [{"role": "user", "content": "x"}], **members}))


def sent(request: Request, **extra: JsonValue) -> dict[str, bytes]:
    return json.split_object(encode_question(upstream_request(request), extra))


BODY = (
    b'{"temperature":1.50,"messages":[ {"role":"user","content":"\\u00fc"} ],"n":1,'
    b'"tools":[ %b ],"stream":false,"x":{"b":1,  "a":2},"temper":{}}' % TOOL
)


class TestAQuestion:
    def test_is_what_the_client_wrote_but_streamed(self) -> None:
        assert encode_question(upstream_request(decode_request(BODY)), {}) == (
            b'{"temperature":1.50,"messages":[ {"role":"user","content":"\\u00fc"} ],"n":1,'
            b'"tools":[ %b ],"stream":true,"x":{"b":1,  "a":2},'
            b'"stream_options":{"include_usage":true}}' % TOOL
        )

    def test_keeps_the_bytes_of_every_message_that_came_before_a_new_one(self) -> None:
        request = decode_request(BODY)
        more = (*request.messages, user_message("Again"))
        body = json.split_object(encode_question(upstream_request(request, messages=more), {}))

        assert body["messages"] == (
            b'[{"role":"user","content":"\\u00fc"},{"role":"user","content":"Again"}]'
        )
        assert list(body)[:3] == ["temperature", "messages", "n"]

    def test_keeps_the_bytes_of_every_tool_beside_a_new_one(self) -> None:
        request = decode_request(BODY)
        more = (*request.tools, Tool("g", {}, b'{"g":1}'))
        body = json.split_object(encode_question(upstream_request(request, tools=more), {}))

        assert body["tools"] == b'[%b,{"g":1}]' % TOOL

    def test_writes_what_the_request_no_longer_has_in_the_clients_own_bytes(self) -> None:
        request = decode_request(BODY)
        later = request.append_messages((user_message("Again"),))
        later = later.offering((Tool("g", {}, b'{"g":1}'),))
        body = json.split_object(encode_question(upstream_request(later), {}))

        assert body["messages"] == (
            b'[{"role":"user","content":"\\u00fc"},{"role":"user","content":"Again"}]'
        )
        assert body["tools"] == b'[%b,{"g":1}]' % TOOL

    def test_asks_for_no_usage_of_an_engine_that_refuses_to_be_asked(self) -> None:
        refused = replace(upstream_request(asked()), omits=frozenset(["stream_options"]))
        assert "stream_options" not in json.split_object(encode_question(refused, {}))

    def test_leaves_out_what_it_omits(self) -> None:
        whole = upstream_request(decode_request(BODY))
        body = json.split_object(encode_question(replace(whole, omits=frozenset(["n", "y"])), {}))

        assert list(body) == [
            "temperature", "messages", "tools", "stream", "x", "stream_options"
        ]  # fmt: skip

    def test_offers_tools_where_the_client_offered_none(self) -> None:
        tools = (Tool("g", {}, b'{"g":1}'),)
        body = json.split_object(encode_question(upstream_request(asked(), tools=tools), {}))

        assert body["tools"] == b'[{"g":1}]'

    @pytest.mark.parametrize("tools", [None, []])
    def test_without_tools_leaves_the_member_as_it_was(self, tools: JsonValue) -> None:
        assert "tools" not in sent(asked())
        assert sent(asked(tools=tools))["tools"] == json.dump(tools)

    @pytest.mark.parametrize(
        ("options", "merged"),
        [
            (None, b'{"include_usage":true}'),
            ({}, b'{"include_usage":true}'),
            ({"include_usage": False, "x": [1]}, b'{"include_usage":true,"x":[1]}'),
        ],
    )
    def test_always_asks_for_usage(self, options: JsonValue, merged: bytes) -> None:
        assert sent(asked(stream_options=options))["stream_options"] == merged

    def test_has_the_members_that_the_backend_needs_besides(self) -> None:
        body = sent(asked(tool_choice="auto", seed=1), tool_choice="none", return_progress=True)

        assert list(body) == [
            "messages",
            "tool_choice",
            "seed",
            "stream",
            "stream_options",
            "return_progress",
        ]
        assert (body["tool_choice"], body["return_progress"]) == (b'"none"', b"true")


def chunks(stream: bytes) -> list[JsonObject]:
    decoder = EventDecoder()
    values = [json.parse(event.data) for event in decoder.feed(stream) if event.data != "[DONE]"]
    assert decoder.finish() == []
    for value in values:
        ChatCompletionChunk.model_validate(value)
    return [value for value in values if isinstance(value, dict)]


def encoded(*events: ReplyEvent, include_usage: bool = False) -> list[JsonObject]:
    encoder, another = ChunkEncoder(IDENTITY, include_usage), ChunkEncoder(IDENTITY, include_usage)
    alone = b"".join(encoder.encode(event) for event in events)
    assert another.encode_all(events) == alone
    return chunks(alone)


def choice(
    delta: JsonObject, reason: str | None = None, **members: JsonValue
) -> dict[str, JsonValue]:
    return {"index": 0, "delta": delta, **members, "finish_reason": reason}


ROLE = choice({"role": "assistant", "content": ""})
FINISH = ReplyFinished("stop")


class TestChunks:
    @pytest.mark.parametrize("last", [[], [TextDelta("a", {"content": []}), TextDelta("b")]])
    def test_say_the_same_of_many_texts_as_of_each(self, last: list[ReplyEvent]) -> None:
        texts = [TextDelta(text) for text in ("", ",", '","', "\n", "Grüße", "", *"xyz")]
        assert len(encoded(STARTED, *texts, *last)) == 8 + len(last)
        assert encoded(TextDelta(""), TextDelta("")) == []

    def test_all_say_whose_they_are(self) -> None:
        for chunk in encoded(STARTED, TextDelta("x"), FINISH, include_usage=True):
            assert list(chunk.items())[:5] == [
                ("id", "c1"),
                ("object", "chat.completion.chunk"),
                ("created", 1700000000),
                ("model", "m"),
                ("system_fingerprint", "fp"),
            ]

    def test_do_not_mention_a_fingerprint_that_is_unknown(self) -> None:
        stream = ChunkEncoder(Identity("c", 1, "m"), include_usage=False).encode(STARTED)

        assert stream == (
            b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",'
            b'"choices":[{"index":0,"delta":{"role":"assistant","content":""},'
            b'"finish_reason":null}]}\n\n'
        )

    @pytest.mark.parametrize(
        ("event", "expected"),
        [
            (TextDelta("x"), choice({"content": "x"})),
            (TextDelta("x", LOGPROBS), choice({"content": "x"}, logprobs=LOGPROBS)),
            (ReasoningDelta("x"), choice({"reasoning_content": "x"})),
            (
                ToolCalled(1, ToolCall("k", "f", "{}")),
                choice(
                    {
                        "tool_calls": [
                            {
                                "index": 1,
                                "id": "k",
                                "type": "function",
                                "function": {"name": "f", "arguments": "{}"},
                            }
                        ]
                    }
                ),
            ),
            (
                ToolCallStarted(0, None, "f"),
                choice(
                    {
                        "tool_calls": [
                            {
                                "index": 0,
                                "type": "function",
                                "function": {"name": "f", "arguments": ""},
                            }
                        ]
                    }
                ),
            ),
            (
                ToolCallArgumentsDelta(0, "{}"),
                choice({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}),
            ),
            (ReplyFinished("length"), choice({}, "length")),
        ],
    )
    def test_carry_one_event_each_behind_the_role(
        self, event: ReplyEvent, expected: JsonObject
    ) -> None:
        assert [chunk["choices"] for chunk in encoded(event)] == [[ROLE], [expected]]
        assert [chunk["choices"] for chunk in encoded(STARTED, STARTED, event)] == [
            [ROLE],
            [expected],
        ]

    @pytest.mark.parametrize(
        "event", [TextDelta(""), PromptProgress(3, 1, 2), ReplyUnreadable("?"), UsageReported({})]
    )
    def test_are_not_made_of_what_a_client_does_not_need(self, event: ReplyEvent) -> None:
        assert encoded(event) == []

    def test_report_usage_last_and_without_choices(self) -> None:
        *_, finish, last = encoded(STARTED, UsageReported(USAGE), FINISH, include_usage=True)

        assert finish["choices"] == [choice({}, "stop")]
        assert "usage" not in finish
        assert (last["choices"], last["usage"]) == ([], USAGE)
        assert "timings" not in last

    def test_report_zeros_where_usage_is_asked_for_and_unknown(self) -> None:
        assert encoded(FINISH, include_usage=True)[-1]["usage"] == NO_USAGE

    def test_report_no_usage_unasked(self) -> None:
        assert all("usage" not in chunk for chunk in encoded(UsageReported(USAGE), FINISH))

    @pytest.mark.parametrize("include_usage", [True, False])
    def test_carry_timings_on_the_last(self, include_usage: bool) -> None:
        reported = UsageReported(USAGE, {"cache_n": 1})
        *others, last = encoded(STARTED, reported, FINISH, include_usage=include_usage)

        assert last["timings"] == {"cache_n": 1}
        assert all("timings" not in chunk for chunk in others)

    @pytest.mark.parametrize("include_usage", [True, False])
    def test_carry_a_fingerprint_on_the_last_that_came_late(self, include_usage: bool) -> None:
        reported = UsageReported(USAGE, system_fingerprint="vllm-0.32.0")
        identity = Identity("c1", 1, "m")
        encoder = ChunkEncoder(identity, include_usage=include_usage)
        written = encoder.encode_all([STARTED, TextDelta("", LOGPROBS), reported, FINISH])
        *_, beside, last = written.split(b"\n\n")[:-1]
        assert b'"system_fingerprint":"vllm-0.32.0"' in last
        assert b'"delta":{},"logprobs":{"content"' in written
        assert b"system_fingerprint" not in beside
        builder = CompletionBuilder(identity)
        for event in (STARTED, reported, FINISH):
            builder.add(event)
        assert builder.completion()["system_fingerprint"] == "vllm-0.32.0"

    def test_keep_a_client_alive(self) -> None:
        encoder = ChunkEncoder(IDENTITY, include_usage=False)
        stream = encoder.keep_alive() + encoder.keep_alive() + encoder.encode(TextDelta("x"))

        assert [chunk["choices"] for chunk in chunks(stream)] == [
            [ROLE],
            [choice({})],
            [choice({"content": "x"})],
        ]

    def test_are_followed_by_a_comment_and_the_end_mark_or_by_an_error(self) -> None:
        encoder = ChunkEncoder(IDENTITY, include_usage=False)

        assert encoder.comment("a\nb") == b": a\n: b\n\n"
        assert encoder.end() == b"data: [DONE]\n\n"
        assert encoder.fail(Problem(500, "server_error", "no", details={"more": 1})) == (
            b'data: {"error":{"message":"no","type":"server_error","param":null,"code":null,'
            b'"more":1}}\n\n'
        )

    def test_end_with_the_finish_reason_however_long_the_silence_behind_it(self) -> None:
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


def as_heard(event: ReplyEvent) -> Sequence[ReplyEvent]:
    if not isinstance(event, ToolCalled):
        return [event]
    call = event.call
    return [
        ToolCallStarted(event.index, call.id, call.name),
        ToolCallArgumentsDelta(event.index, call.arguments),
    ]


@settings(max_examples=examples(40))
@given(deltas, calls, endings, st.lists(st.integers(0, 3000), max_size=8))
def test_what_is_encoded_is_decoded_again_at_every_chunking(
    said: list[ReplyEvent],
    made: list[ToolCall],
    ending: tuple[UsageReported, ReplyFinished],
    cuts: list[int],
) -> None:
    called = [
        ToolCalled(index, ToolCall(f"k{index}", call.name, call.arguments))
        for index, call in enumerate(made)
    ]
    events: list[ReplyEvent] = [STARTED, *said, *called, *ending]
    encoder = ChunkEncoder(IDENTITY, include_usage=True)
    stream = b"".join([encoder.encode(event) for event in events]) + encoder.end()
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]

    heard = [event for said_one in events for event in as_heard(said_one)]
    assert decoded([stream[start:end] for start, end in pairwise(edges)]) == heard
    assert decoded([stream[at : at + 1] for at in range(len(stream))]) == heard


def decoded(pieces: list[bytes]) -> list[ReplyPart]:
    events, decoder = EventDecoder(), ChunkDecoder()
    found = [event for piece in pieces for event in events.feed(piece)] + events.finish()
    return [part for event in found for part in decoder.feed(event.data)] + decoder.finish()


def completed(*events: ReplyEvent) -> JsonObject:
    builder = CompletionBuilder(IDENTITY)
    for event in events:
        builder.add(event)
    completion = builder.completion()
    assert json.parse(builder.build()) == completion
    ChatCompletion.model_validate(completion)
    return completion


def completed_choice(*events: ReplyEvent) -> JsonValue:
    choices = completed(*events)["choices"]
    assert isinstance(choices, list)
    return choices[0]


class TestACompletion:
    def test_is_the_whole_answer(self) -> None:
        events: list[ReplyEvent] = [
            STARTED,
            TextDelta("He"),
            PromptProgress(1, 0, 1),
            TextDelta("llo"),
        ]

        assert completed(*events, UsageReported(USAGE), FINISH) == {
            "id": "c1",
            "object": "chat.completion",
            "created": 1700000000,
            "model": "m",
            "system_fingerprint": "fp",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "Hello"},
                    "finish_reason": "stop",
                }
            ],
            "usage": USAGE,
        }

    def test_of_nothing_is_an_empty_text(self) -> None:
        assert completed(ReplyFinished("length"))["usage"] == NO_USAGE
        assert completed_choice(ReplyFinished("length")) == {
            "index": 0,
            "message": {"role": "assistant", "content": ""},
            "finish_reason": "length",
        }

    @pytest.mark.parametrize(("text", "content"), [("", None), ("Wait.", "Wait.")])
    def test_has_calls_beside_text_and_reasoning(self, text: str, content: str | None) -> None:
        call = ToolCalled(0, ToolCall("k", "f", "{}"))
        events: list[ReplyEvent] = [ReasoningDelta("Hm"), TextDelta(text), call]

        assert completed_choice(*events, ReplyFinished("tool_calls")) == {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": content,
                "reasoning_content": "Hm",
                "tool_calls": [
                    {"id": "k", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                ],
            },
            "finish_reason": "tool_calls",
        }

    @pytest.mark.parametrize(("call_id", "written"), [("k", "k"), (None, "")])
    def test_may_be_made_of_calls_in_fragments(self, call_id: str | None, written: str) -> None:
        built = completed_choice(
            ToolCallStarted(0, call_id, "f"),
            ToolCallArgumentsDelta(0, "{"),
            ToolCallArgumentsDelta(0, "}"),
        )
        called = completed_choice(ToolCalled(0, ToolCall(written, "f", "{}")))

        assert built == called

    def test_has_timings_if_there_are_any(self) -> None:
        completion = completed(UsageReported(USAGE, {"cache_n": 1}), FINISH)

        assert (completion["usage"], completion["timings"]) == (USAGE, {"cache_n": 1})

    def test_joins_logprobs(self) -> None:
        built = completed_choice(TextDelta("x", LOGPROBS), TextDelta("x", LOGPROBS), FINISH)
        content = LOGPROBS["content"]

        assert isinstance(built, dict)
        assert isinstance(content, list)
        assert built["logprobs"] == {"content": content * 2, "refusal": None}
        assert len(content) == 1


def test_stops_of_our_own_join_those_of_the_client() -> None:
    request = decode_request(b'{"messages":[{"role":"user","content":"Hi"}],"stop":"a"}')
    body = json.parse(encode_question(replace(upstream_request(request), stops=("x",)), {}))
    assert isinstance(body, dict)
    assert body["stop"] == ["a", "x"]


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
def test_an_event_alone_is_a_delta_if_it_says_anything(
    event: ReplyEvent, delta: JsonObject
) -> None:
    assert delta_of(event) == delta
