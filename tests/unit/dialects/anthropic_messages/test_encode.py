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
    reasons,
    terms,
    told,
    written,
)

EVENTS: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)
FAILURE = Problem(502, "server_error", "The backend is gone.", "backend_unavailable")


def accumulated(payload: bytes) -> dict[str, object]:
    snapshot, buffers = None, dict[int, bytes]()
    for event in told(payload):
        read = EVENTS.validate_python(event)
        snapshot = accumulate_event(event=read, current_snapshot=snapshot, json_bufs=buffers)
    assert snapshot is not None
    return Message.model_validate(snapshot.to_dict()).to_dict(exclude_none=True)


class TestAStream:
    @given(answers(), st.data())
    def test_is_valid_at_every_chunking_of_its_events(
        self, events: list[ReplyEvent], data: st.DataObject
    ) -> None:
        stream = MessageStream(terms())
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
    def test_is_valid_for_any_backend_output(self, events: list[ReplyEvent], reason: str) -> None:
        check(written([*events, ReplyFinished(reason)], terms()))

    @given(answers(), st.data())
    def test_that_breaks_ends_with_an_error(
        self, events: list[ReplyEvent], data: st.DataObject
    ) -> None:
        stream = MessageStream(terms())
        before = events[: data.draw(st.integers(0, len(events) - 1))]
        payload = stream.encode_all(before) + stream.fail(FAILURE)
        check(payload, is_broken=True)
        assert told(payload)[-1] == {
            "type": "error",
            "error": {"type": "api_error", "message": "The backend is gone."},
            "request_id": "req_1",
        }


class TestAWholeMessage:
    @given(answers())
    def test_equals_the_message_accumulated_by_the_sdk(self, events: list[ReplyEvent]) -> None:
        whole = Message.model_validate(built(events, terms())).to_dict(exclude_none=True)
        assert accumulated(written(events, terms())) == whole


@given(answers())
def test_an_answer_with_hidden_reasoning_shows_none(events: list[ReplyEvent]) -> None:
    whole = built(events, terms(shows_nothing=True))
    assert (whole["content"], whole["stop_reason"]) == ([], "max_tokens")
    payload = written(events, terms(shows_nothing=True))
    kinds = [event["type"] for event in told(payload)]
    assert kinds == ["message_start", "message_delta", "message_stop"]
    assert json.dump(member(told(payload)[1]["delta"], "stop_reason")) == b'"max_tokens"'
