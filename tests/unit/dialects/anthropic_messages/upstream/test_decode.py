from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import (
    ReplyStarted,
    UsageReported,
)
from proxy.dialects.anthropic_messages.upstream.decode import EventReader
from proxy.dialects.openai_chat.replies import ReplyPart
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


def block_start(block: JsonValue, index: JsonValue = 0) -> JsonObject:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(piece: JsonValue, index: JsonValue = 0) -> JsonObject:
    return {"type": "content_block_delta", "index": index, "delta": piece}


def message_delta(reason: str | None, **usage: JsonValue) -> JsonObject:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {**usage}}


def tool_use(name: str, call_id: str | None = "toolu_1", **more: JsonValue) -> JsonObject:
    return {"type": "tool_use", "id": call_id, "name": name, **more}


def read(*events: JsonValue) -> list[ReplyPart]:
    reader = EventReader()
    return [part for event in events for part in reader.feed(Event(json.dump_text(event)))]


def parts_of_reply(*events: JsonValue, reason: str = "end_turn") -> list[ReplyPart]:
    first, *parts, usage, last = read(START, *events, message_delta(reason, output_tokens=7), STOP)
    assert (first, usage) == (STARTED, UsageReported(USAGE))
    return [*parts, last]


def test_every_stop_reason_and_every_delta_type_of_the_table_is_decoded() -> None:
    assert {reason for reason in STOP_REASONS if parts_of_reply(reason=reason)} == set(STOP_REASONS)
    for name in EVENTS:
        if name.endswith("_delta") and name != "message_delta":
            read(START, block_start(tool_use("look")), delta({"type": name}))
