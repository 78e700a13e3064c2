"""Generates answers, and checks the invariants of their streams."""

from collections.abc import Sequence

from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    PromptProgress,
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
from proxy.conversation.tools import ToolCall
from proxy.dialects.anthropic_messages.encode import MessageBuilder, MessageOptions, MessageStream
from proxy.dialects.sse import EventDecoder

USAGE: JsonObject = {
    "prompt_tokens": 12,
    "completion_tokens": 5,
    "total_tokens": 17,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 2},
}
DELTAS = {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}

_words = st.text(max_size=4)
_content: st.SearchStrategy[ReplyEvent] = _words.map(TextDelta) | _words.map(ReasoningDelta)
_values = st.none() | st.booleans() | st.integers(-9, 9) | _words
_arguments = st.dictionaries(_words, _values, max_size=2)
reasons = st.sampled_from(("stop", "tool_calls", "length", "content_filter"))


def message_options(*, shows_nothing: bool = False, reports_edits: bool = False) -> MessageOptions:
    count = iter(range(1_000))
    return MessageOptions(
        "msg_1",
        "m",
        "req_1",
        lambda: f"toolu_{next(count)}",
        shows_nothing=shows_nothing,
        reports_edits=reports_edits,
    )


@st.composite
def answers(draw: st.DrawFn) -> list[ReplyEvent]:
    """Generate the events of an answer; calls are not interleaved."""
    events: list[ReplyEvent] = [ReplyStarted("c1"), *draw(st.lists(_progress, max_size=1))]
    events += draw(st.lists(_content, max_size=4))
    for index in range(draw(st.integers(0, 3))):
        events += draw(_calls(index))
        events += draw(st.lists(_content, max_size=2))
    events += draw(st.lists(st.just(UsageReported(USAGE)), max_size=1))
    return [*events, ReplyFinished(draw(reasons))]


_progress = st.just(PromptProgress(12, 4, 6))


@st.composite
def _calls(draw: st.DrawFn, index: int) -> list[ReplyEvent]:
    arguments = json.dump_text({**draw(_arguments)})
    if draw(st.booleans()):
        return [ToolCalled(index, ToolCall(f"c{index}", "f", arguments))]
    cut = draw(st.integers(0, len(arguments)))
    between = draw(st.lists(_words.map(ReasoningDelta), max_size=2))
    return [
        ToolCallStarted(index, draw(st.sampled_from((None, f"c{index}"))), "f"),
        ToolCallArgumentsDelta(index, arguments[:cut]),
        *between,  # a retry may send reasoning while the block of the call is open
        ToolCallArgumentsDelta(index, arguments[cut:]),
    ]


_indexes = st.integers(0, 2)
_anything: st.SearchStrategy[ReplyEvent] = st.one_of(
    _content,
    st.just(ReplyStarted()),
    _progress,
    st.builds(ToolCallStarted, _indexes, st.none() | _words, _words),
    st.builds(ToolCallArgumentsDelta, _indexes, st.sampled_from(("", "{", "}", "{}"))),
    st.builds(lambda index: ToolCalled(index, ToolCall("c", "f", "{}")), _indexes),
)
chaos = st.lists(_anything, max_size=12)


def written(events: Sequence[ReplyEvent], limits: MessageOptions) -> bytes:
    stream = MessageStream(limits)
    return stream.encode_all(events) + stream.end()


def built(events: Sequence[ReplyEvent], limits: MessageOptions) -> JsonObject:
    builder = MessageBuilder(limits)
    for event in events:
        builder.add(event)
    whole = json.parse(builder.build())
    assert isinstance(whole, dict)
    return whole


def read_events(payload: bytes) -> list[JsonObject]:
    """Parse a stream; check that each event has the same type in its name and in its data."""
    read: list[JsonObject] = []
    for event in EventDecoder().feed(payload):
        data = json.parse(event.data)
        assert isinstance(data, dict)
        assert data["type"] == event.event
        read.append(data)
    return read


def member(value: JsonValue, name: str) -> JsonValue:
    assert isinstance(value, dict)
    return value[name]


def check(payload: bytes, *, is_broken: bool = False) -> None:
    """Check the order and the number of the events of a stream; clients rely on them."""
    events = [event for event in read_events(payload) if event["type"] != "ping"]
    if is_broken:
        assert events.pop()["type"] == "error"
    else:
        assert [event["type"] for event in events[-2:]] == ["message_delta", "message_stop"]
        assert events[0]["type"] == "message_start"
        assert isinstance(member(events[-2]["delta"], "stop_reason"), str)
    kinds = [event["type"] for event in events]
    for once in ("message_start", "message_delta", "message_stop"):
        assert kinds.count(once) <= 1
    blocks = [event for event in events if str(event["type"]).startswith("content_block")]
    assert kinds[1 : 1 + len(blocks)] == [event["type"] for event in blocks]
    _check_blocks(blocks, is_broken=is_broken)


def _check_blocks(events: list[JsonObject], *, is_broken: bool) -> None:
    count, kind, is_signed = 0, "", False
    for event in events:
        if event["type"] == "content_block_start":
            assert not kind, "the block before is still open"
            assert event["index"] == count
            kind, is_signed = str(member(event["content_block"], "type")), False
            continue
        assert kind, "no block is open"
        assert event["index"] == count
        if event["type"] == "content_block_stop":
            assert is_signed == (kind == "thinking")
            count, kind = count + 1, ""
        else:
            delta = member(event["delta"], "type")
            assert not is_signed, "nothing follows the signature"
            is_signed = delta == "signature_delta"
            assert delta == ("signature_delta" if is_signed else DELTAS[kind])
    assert is_broken or not kind
