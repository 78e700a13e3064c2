import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    ReasoningDelta,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
    UsageReported,
)
from proxy.dialects.anthropic_messages.upstream.decode import EventReader, decode_error
from proxy.dialects.openai_chat.replies import ReplyPart, StreamedError
from proxy.dialects.sse import Event
from tests.unit.dialects.anthropic_messages.names import EVENTS, STOP_REASONS

STARTED = ReplyStarted("msg_1", model="claude")
START: JsonObject = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "model": "claude",
        "usage": {
            "input_tokens": 3,
            "cache_creation_input_tokens": 20,
            "cache_read_input_tokens": 100,
            "output_tokens": 1,
        },
    },
}
STOP: JsonObject = {"type": "message_stop"}
USAGE: JsonObject = {
    "prompt_tokens": 123,
    "completion_tokens": 7,
    "total_tokens": 130,
    "prompt_tokens_details": {"cached_tokens": 100},
}


def opened(block: JsonValue, index: JsonValue = 0) -> JsonObject:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(piece: JsonValue, index: JsonValue = 0) -> JsonObject:
    return {"type": "content_block_delta", "index": index, "delta": piece}


def arguments(text: str, index: int = 0) -> JsonObject:
    return delta({"type": "input_json_delta", "partial_json": text}, index)


def closed(index: int = 0) -> JsonObject:
    return {"type": "content_block_stop", "index": index}


def ended(reason: str | None, **usage: JsonValue) -> JsonObject:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {**usage}}


def used(name: str, call_id: str | None = "toolu_1", **more: JsonValue) -> JsonObject:
    return {"type": "tool_use", "id": call_id, "name": name, **more}


def read(*events: JsonValue) -> list[ReplyPart]:
    reader = EventReader()
    return [part for event in events for part in reader.feed(Event(json.dump_text(event)))]


def finished(*events: JsonValue, reason: str = "end_turn") -> list[ReplyPart]:
    first, *parts, usage, last = read(START, *events, ended(reason, output_tokens=7), STOP)
    assert (first, usage) == (STARTED, UsageReported(USAGE))
    return [*parts, last]


def test_a_text_comes_as_it_is_written() -> None:
    assert finished(
        opened({"type": "text", "text": ""}),
        delta({"type": "text_delta", "text": "Hel"}),
        {"type": "ping"},
        delta({"type": "text_delta", "text": ""}),
        delta({"type": "text_delta", "text": "lo"}),
        closed(),
    ) == [TextDelta("Hel"), TextDelta("lo"), ReplyFinished("stop")]


def test_what_a_block_holds_from_its_start_is_not_lost() -> None:
    assert finished(
        opened({"type": "thinking", "thinking": "Hm."}), opened({"type": "text", "text": "Hi"}, 1)
    ) == [ReasoningDelta("Hm."), TextDelta("Hi"), ReplyFinished("stop")]


def test_thoughts_come_without_their_signature() -> None:
    assert finished(
        opened({"type": "thinking", "thinking": "", "signature": ""}),
        delta({"type": "thinking_delta", "thinking": "Hm."}),
        delta({"type": "signature_delta", "signature": "EqQB"}),
        closed(),
    ) == [ReasoningDelta("Hm."), ReplyFinished("stop")]


def test_calls_are_counted_by_themselves() -> None:
    assert finished(
        opened({"type": "text", "text": ""}),
        opened(used("look"), 1),
        arguments("", 1),
        arguments('{"a":', 1),
        opened(used("go", "toolu_2"), 2),
        arguments(" 1}", 1),
        arguments("{}", 2),
        closed(0),
        closed(1),
        closed(2),
        reason="tool_use",
    ) == [
        ToolCallStarted(0, "toolu_1", "look"),
        ToolCallArgumentsDelta(0, '{"a":'),
        ToolCallStarted(1, "toolu_2", "go"),
        ToolCallArgumentsDelta(0, " 1}"),
        ToolCallArgumentsDelta(1, "{}"),
        ReplyFinished("tool_calls"),
    ]


@pytest.mark.parametrize(
    ("given", "text"), [({}, "{}"), ({"input": {"a": 1}}, '{"a":1}'), ({"input": None}, "{}")]
)
def test_a_call_without_further_arguments_has_those_that_it_began_with(
    given: JsonObject, text: str
) -> None:
    assert finished(opened(used("look", None, **given)), closed()) == [
        ToolCallStarted(0, None, "look"),
        ToolCallArgumentsDelta(0, text),
        ReplyFinished("tool_calls"),
    ]


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
        ("something_new", "length"),
    ],
)
def test_reasons_have_other_words(said: str, meant: str) -> None:
    assert finished(reason=said) == [ReplyFinished(meant)]


def test_every_reason_and_every_event_of_the_table_is_read() -> None:
    assert {reason for reason in STOP_REASONS if finished(reason=reason)} == set(STOP_REASONS)
    for name in EVENTS:
        if name.endswith("_delta") and name != "message_delta":
            read(START, opened(used("look")), delta({"type": name}))


def test_a_call_that_was_cut_off_is_no_finished_call() -> None:
    cut = finished(opened(used("look")), arguments('{"a'), reason="max_tokens")
    assert cut[-1] == ReplyFinished("length")


def test_costs_are_totals_and_thoughts_are_a_part_of_them() -> None:
    costs: JsonObject = {
        "input_tokens": 5,
        "output_tokens": 9,
        "cache_read_input_tokens": None,
        "output_tokens_details": {"thinking_tokens": 4},
    }
    *_, usage, _ = read(START, {**ended(None), "usage": costs}, ended("end_turn"), STOP)
    assert usage == UsageReported(
        {
            "prompt_tokens": 125,
            "completion_tokens": 9,
            "total_tokens": 134,
            "prompt_tokens_details": {"cached_tokens": 100},
            "completion_tokens_details": {"reasoning_tokens": 4},
        }
    )


def test_a_reply_may_keep_silent_about_its_costs() -> None:
    bare: JsonObject = {"type": "message_start", "message": {}}
    untold: JsonObject = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    assert read(bare, bare, untold, STOP) == [ReplyStarted(), ReplyFinished("stop")]
    boolean = ended("end_turn", output_tokens=True, output_tokens_details={})
    usage = {**USAGE, "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    usage["prompt_tokens_details"] = {"cached_tokens": 0}
    assert read(bare, boolean, STOP)[1] == UsageReported(usage)


def test_what_nobody_knows_is_passed_over() -> None:
    assert finished(
        {"type": "something_new"},
        {"no": "type"},
        opened({"type": "something_new", "text": "x"}),
        delta({"type": "something_new", "text": "x"}),
        closed(),
    ) == [ReplyFinished("stop")]
    assert EventReader().feed(Event("")) == []
    assert EventReader().feed(Event(" \n")) == []


def test_nothing_is_read_behind_the_end() -> None:
    assert finished()[-1:] == read(START, ended("end_turn"), STOP, START, {"type": "error"})[-1:]


@pytest.mark.parametrize(
    "events",
    [
        [[]],
        ["text"],
        [{"type": "message_start"}],
        [opened(None)],
        [opened(used("look"), None)],
        [opened(used("look"), True)],
        [arguments("{}")],
        [opened({"type": "text"}), arguments("{}")],
        [opened(used("look")), closed(), arguments("{}")],
        [delta("text")],
        [{"type": "message_delta"}],
        [START, STOP],
    ],
)
def test_what_is_no_reply_is_an_error(events: list[JsonValue]) -> None:
    with pytest.raises(ValueError, match=r"is |began|reason"):
        read(*events)


def test_what_is_no_json_is_an_error() -> None:
    with pytest.raises(ValueError, match="line 1"):
        EventReader().feed(Event("{"))


def test_only_its_own_end_ends_a_reply() -> None:
    reader = EventReader()
    with pytest.raises(ValueError, match="ended before finishing"):
        reader.finish()
    for event in (START, ended("end_turn")):
        reader.feed(Event(json.dump_text(event)))
    with pytest.raises(ValueError, match="ended before finishing"):
        reader.finish()
    reader.feed(Event(json.dump_text(STOP)))
    assert reader.finish() == []


@pytest.mark.parametrize(
    ("event", "error"),
    [
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            {"code": 529, "type": "overloaded_error", "message": "Overloaded"},
        ),
        (
            {"error": {"code": 500, "type": "server_error", "message": "no"}},
            {"code": 500, "type": "server_error", "message": "no"},
        ),
        ({"type": "error", "message": "no"}, {"type": "error", "message": "no"}),
    ],
)
def test_an_error_ends_a_reply(event: JsonObject, error: JsonObject) -> None:
    assert read(START, event, STOP) == [STARTED, StreamedError(error)]
    reader = EventReader()
    reader.feed(Event(json.dump_text(event)))
    assert reader.finish() == []


def test_an_error_has_the_status_of_its_type_unless_it_brings_one() -> None:
    body = b'{"type":"error","error":{"type":"%b","message":"x"},"request_id":"r"}'
    assert decode_error(body % b"rate_limit_error")["code"] == 429
    assert "code" not in decode_error(body % b"new_error")
    assert decode_error(b"<html>") == {"message": "<html>"}
    own = b'{"error":{"code":418,"type":"api_error","message":"x"}}'
    assert decode_error(own)["code"] == 418
