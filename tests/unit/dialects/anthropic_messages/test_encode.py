from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import Message, RawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from proxy.conversation import json
from proxy.conversation.replies import (
    ReplyEvent,
    ReplyFinished,
)
from proxy.dialects.anthropic_messages.encode import (
    MESSAGE_STOP,
    PING,
    MessageStream,
)
from proxy.dialects.dialect import Problem
from tests.unit.dialects.anthropic_messages.streams import (
    answers,
    built,
    chaos,
    check,
    member,
    message_options,
    read_events,
    reasons,
    written,
)

EVENTS: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)
FAILURE = Problem(502, "server_error", "The backend is gone.", "backend_unavailable")


def accumulated(payload: bytes) -> dict[str, object]:
    snapshot, buffers = None, dict[int, bytes]()
    for event in read_events(payload):
        read = EVENTS.validate_python(event)
        snapshot = accumulate_event(event=read, current_snapshot=snapshot, json_bufs=buffers)
    assert snapshot is not None
    return Message.model_validate(snapshot.to_dict()).to_dict(exclude_none=True)


@given(answers(), st.data())
def test_a_stream_is_valid_at_every_chunking_of_its_events(
    events: list[ReplyEvent], data: st.DataObject
) -> None:
    stream = MessageStream(message_options())
    payload, left = stream.keep_alive(), events
    while left:
        count = data.draw(st.integers(1, len(left)))
        payload += stream.encode_all(left[:count]) + stream.keep_alive()
        left = left[count:]
    payload += stream.comment("x-temper outcome=clean") + stream.end()
    check(payload)
    assert payload.endswith(b": x-temper outcome=clean\n\n" + MESSAGE_STOP)
    assert payload.startswith(PING)


@given(chaos, reasons)
def test_a_stream_is_valid_for_any_backend_output(events: list[ReplyEvent], reason: str) -> None:
    check(written([*events, ReplyFinished(reason)], message_options()))


@given(answers(), st.data())
def test_a_failed_stream_ends_with_an_error(events: list[ReplyEvent], data: st.DataObject) -> None:
    stream = MessageStream(message_options())
    before = events[: data.draw(st.integers(0, len(events) - 1))]
    payload = stream.encode_all(before) + stream.fail(FAILURE)
    check(payload, is_broken=True)
    assert read_events(payload)[-1] == {
        "type": "error",
        "error": {"type": "api_error", "message": "The backend is gone."},
        "request_id": "req_1",
    }


@given(answers())
def test_a_complete_message_equals_the_message_that_the_sdk_accumulates_from_the_stream(
    events: list[ReplyEvent],
) -> None:
    whole = Message.model_validate(built(events, message_options())).to_dict(exclude_none=True)
    assert accumulated(written(events, message_options())) == whole


@given(answers())
def test_an_answer_with_max_tokens_zero_has_no_content(events: list[ReplyEvent]) -> None:
    whole = built(events, message_options(shows_nothing=True))
    assert (whole["content"], whole["stop_reason"]) == ([], "max_tokens")
    payload = written(events, message_options(shows_nothing=True))
    kinds = [event["type"] for event in read_events(payload)]
    assert kinds == ["message_start", "message_delta", "message_stop"]
    assert json.dump(member(read_events(payload)[1]["delta"], "stop_reason")) == b'"max_tokens"'
