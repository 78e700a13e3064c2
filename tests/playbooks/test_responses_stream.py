"""Responses API streams of random turns, with up to three attempts, are valid."""

from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation.json import JsonValue
from proxy.conversation.replies import ReplyEvent
from proxy.inference.plan import Policy
from tests.fakes.playbook import CountedIds, make_request, prepare
from tests.fakes.responses import StreamJudge, decode, member, objects, read_stream, whole
from tests.playbooks.test_messages_stream import replies_with_reasoning, show
from tests.playbooks.test_streaming_properties import POLICIES, TOOLS, Client


def texts(output: JsonValue, kind: str) -> str:
    items = [item for item in objects(output) if item["type"] == kind]
    return "".join(f"{part['text']}" for item in items for part in objects(item["content"]))


@given(st.lists(replies_with_reasoning(), min_size=3, max_size=3), POLICIES)
def test_a_random_turn_is_encoded_as_a_valid_responses_stream(
    answers: list[list[ReplyEvent]], policy: Policy
) -> None:
    turn = prepare(make_request(tools=TOOLS, stream=True), policy, CountedIds())
    events, payload, is_broken = show(decode().answering.begin(None), turn, answers)
    read = read_stream(payload)
    StreamJudge().judge(read)
    client = Client()
    client.see(events)
    if is_broken:
        assert read[-1]["type"] == "response.failed"
        return
    message = client.whole.finish(client.reason or "")
    answer = whole(decode(), events)
    assert member(read[-1]["response"], "output") == answer["output"]
    assert texts(answer["output"], "message") == message.text
    if answer["status"] != "completed":
        return
    assert texts(answer["output"], "reasoning") == message.reasoning
    calls = [item for item in objects(answer["output"]) if item["type"] == "function_call"]
    sent_calls = [(call["name"], call["arguments"], call["call_id"]) for call in calls]
    assert sent_calls == [(call.name, call.arguments, call.id) for call in message.calls]
