"""Messages API streams of random turns, with up to three attempts, are valid."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.conversation.replies import ReasoningDelta, ReplyEvent, ReplyStarted
from proxy.dialects.anthropic_messages.encode import MessageStream
from proxy.dialects.dialect import Problem, StreamEncoder
from proxy.errors import CallBrokeOff
from proxy.inference.plan import Policy
from proxy.inference.turn import Turn
from tests.fakes.playbook import CountedIds, make_request, prepare
from tests.playbooks.test_streaming_properties import POLICIES, TOOLS, Client, Written, replies
from tests.unit.dialects.anthropic_messages.streams import (
    built,
    check,
    member,
    message_options,
    read_events,
)

BROKEN = Problem(502, "server_error", "It broke off.", "call_broke_off")


@st.composite
def replies_with_reasoning(draw: st.DrawFn) -> list[ReplyEvent]:
    """Draw a reply with reasoning at any position before its end."""
    reply: tuple[list[Written], list[ReplyEvent]] = draw(replies())
    events = [*reply[1]]
    for _ in range(draw(st.integers(0, 3))):
        events.insert(draw(st.integers(0, len(events) - 1)), ReasoningDelta("Hm. "))
    return [ReplyStarted("c1"), *events]


def show(
    stream: StreamEncoder, turn: Turn, answers: list[list[ReplyEvent]]
) -> tuple[list[ReplyEvent], bytes, bool]:
    """Return the events of a turn, the encoded stream, and whether it was cut off."""
    events: list[ReplyEvent] = []
    payload = stream.keep_alive()
    for answer in answers:
        if turn.next_request() is None:
            break
        for event in answer:
            try:
                batch = turn.receive(event)
            except CallBrokeOff:
                return events, payload + stream.fail(BROKEN), True
            events += batch
            payload += stream.encode_all(batch)
    return events, payload + stream.end(), False


def texts(content: list[JsonValue], kind: str) -> str:
    blocks = [member(block, kind) for block in content if member(block, "type") == kind]
    return "".join(f"{text}" for text in blocks)


@given(st.lists(replies_with_reasoning(), min_size=3, max_size=3), POLICIES)
def test_a_random_turn_is_encoded_as_a_valid_messages_stream(
    answers: list[list[ReplyEvent]], policy: Policy
) -> None:
    turn = prepare(make_request(tools=TOOLS, stream=True), policy, CountedIds())
    events, payload, is_broken = show(MessageStream(message_options()), turn, answers)
    check(payload, is_broken=is_broken)
    client = Client()
    client.see(events)
    if is_broken:
        return
    message_received = client.whole.finish(client.reason or "")
    message = built(events, message_options())
    content = message["content"]
    assert isinstance(content, list)
    assert texts(content, "text") == message_received.text
    assert texts(content, "thinking") == message_received.reasoning
    calls = [block for block in content if member(block, "type") == "tool_use"]
    assert [member(call, "name") for call in calls] == [
        call.name for call in message_received.calls
    ]
    assert _inputs(payload) == [call.arguments or "{}" for call in message_received.calls]
    if message["stop_reason"] == "tool_use":
        inputs: list[JsonValue] = [
            json.parse(f"{call.arguments}") for call in message_received.calls
        ]
        assert [member(call, "input") for call in calls] == inputs
    assert (client.reason == "tool_calls") <= (message["stop_reason"] == "tool_use")


def _inputs(payload: bytes) -> list[str]:
    """Return the arguments of each call, as they were streamed."""
    inputs: dict[int, str] = {}
    kind: JsonValue = None
    for event in read_events(payload):
        if event["type"] == "content_block_start":
            kind = member(event["content_block"], "type")
        elif event["type"] == "content_block_delta" and kind == "tool_use":
            index, text = event["index"], member(event["delta"], "partial_json")
            assert isinstance(index, int)
            inputs[index] = inputs.get(index, "") + f"{text}"
    return [*inputs.values()]
