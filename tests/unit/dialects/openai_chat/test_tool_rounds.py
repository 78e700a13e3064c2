import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import assistant_message, tool_result
from proxy.conversation.requests import RoundReports
from proxy.conversation.tools import ToolCall
from proxy.dialects.openai_chat.decode import decode_request, has_rounds
from proxy.dialects.openai_chat.encode import ChunkEncoder, CompletionBuilder, Identity
from proxy.dialects.openai_chat.tool_rounds import Expanded, describe_rounds, expand
from proxy.errors import InvalidRequest

CALL = ToolCall("1", "find", '{"q": "x"}')
ROUND = (assistant_message("Let me see.", (CALL,)), tool_result("1", "Error: no", failed=True))
USER: JsonObject = {"role": "user", "content": "Hi"}
ANSWER: JsonObject = {"role": "assistant", "content": "Nothing."}


def request(*messages: JsonValue) -> bytes:
    return json.dump({"model": "m", "messages": [*messages]})


def test_tool_rounds_in_a_history_are_expanded_to_the_original_messages() -> None:
    answered: JsonObject = {**ANSWER, "tool_rounds": [*describe_rounds(ROUND).messages]}
    read = decode_request(request(USER, answered, USER))
    assert [message.source for message in read.messages[1:3]] == [
        message.source for message in ROUND
    ]
    assert [message.failed for message in read.messages] == [None, None, True, None, None]
    assert read.messages[1].calls == (CALL,)
    assert read.messages[3].source == json.dump(ANSWER)
    assert json.split_array(read.fields["messages"]) == [
        message.source for message in read.messages
    ]


def test_the_member_failed_is_read_only_from_tool_results_and_only_if_it_is_a_boolean() -> None:
    rounds: list[JsonValue] = [
        {"role": "tool", "tool_call_id": "1", "content": "x", "failed": False},
        {"role": "assistant", "content": "x", "failed": True},
        {"role": "tool", "tool_call_id": "1", "content": "x", "failed": 3},
    ]
    message = expand(request({**ANSWER, "tool_rounds": rounds}))
    assert message.failed == {0: False}
    assert message.body.count(b'"failed"') == 1


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "hi"}],
        [{"role": "user", "content": "tool_rounds"}],
        ["tool_rounds"],
        "tool_rounds",
        {"tool_rounds": 1},
        None,
    ],
)
def test_messages_without_tool_rounds_are_not_expanded(messages: JsonValue) -> None:
    assert not has_rounds(messages)


def test_a_body_with_an_invalid_message_is_not_expanded() -> None:
    body = b'{"messages":["tool_rounds",{"role":"user","content":"tool_rounds"}]}'
    assert expand(body) == Expanded(body, {})


@pytest.mark.parametrize("rounds", [1, "x", [1], None])
def test_tool_rounds_with_invalid_messages_are_refused(rounds: JsonValue) -> None:
    with pytest.raises(InvalidRequest) as caught:
        expand(request(USER, {**ANSWER, "tool_rounds": rounds}))
    assert caught.value.param == "messages.1.tool_rounds"


def test_the_option_tool_rounds_requests_the_rounds_at_the_end_of_the_answer() -> None:
    body: JsonObject = {"model": "m", "messages": [USER], "temper": {"tool_rounds": True}}
    assert decode_request(json.dump(body)).round_reports is RoundReports.AT_END
    assert decode_request(request(USER)).round_reports is RoundReports.NONE


def test_tool_rounds_are_sent_in_a_delta_and_in_a_complete_message() -> None:
    identity = Identity("id", 1, "m")
    event = describe_rounds(ROUND)
    chunk = ChunkEncoder(identity, False).encode(event)
    assert b'"delta":{"tool_rounds":[{"role":"assistant"' in chunk
    builder = CompletionBuilder(identity)
    builder.add(event)
    completion = json.parse(builder.build())
    assert isinstance(completion, dict)
    assert f"{completion['choices']}".count("tool_rounds") == 1
    assert f"{completion['choices']}".count("'failed': True") == 1
