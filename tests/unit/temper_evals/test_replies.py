import pytest

from proxy.conversation.json import JsonObject
from temper_evals.replies import ReadMessage, ReplyFailed, events_in, has_content, problem_of

WHOLE: JsonObject = {
    "role": "assistant",
    "content": "Well.",
    "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"x":1}'}}
    ],
}
STREAM = [
    'data: {"choices":[{"delta":{"role":"assistant","content":"We"}}]}',
    ": a comment",
    "",
    'data: {"choices":[{"delta":{"content":"ll."}}]}',
    'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a",'
    '"function":{"name":"look"}}]}}]}',
    'data: {"choices":[{"delta":{"tool_calls":[{"index":0,'
    '"function":{"arguments":"{\\"x\\":1}"}}]}}]}',
    'data: {"choices":[{"delta":{},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3}}',
    "data: [DONE]",
]


def test_a_streamed_reply_is_read_to_the_same_message_as_an_unstreamed_reply() -> None:
    streamed, whole = ReadMessage(), ReadMessage()
    for event in events_in(STREAM):
        streamed.take(event)
    whole.take({"choices": [{"message": WHOLE, "finish_reason": "tool_calls"}]})
    assert streamed.message() == whole.message() == WHOLE
    assert streamed.reason == whole.reason == "tool_calls"
    assert streamed.usage == {"prompt_tokens": 3}
    assert streamed.has_text


def test_a_call_without_an_index_and_an_id_gets_an_id() -> None:
    reply = ReadMessage()
    reply.take({"choices": [{"delta": {"tool_calls": [{"function": {"name": "x"}}]}}]})
    calls = reply.message()["tool_calls"]
    assert isinstance(calls, list)
    assert isinstance(calls[0], dict)
    assert calls[0]["id"] == "call_0"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({"error": {"code": 400, "message": "too long"}}, "400: too long"),
        ({"error": {"type": "x", "message": "y"}}, "x: y"),
        ({"error": "gone"}, "gone"),
    ],
)
def test_an_error_in_the_response_raises_reply_failed(body: JsonObject, problem: str) -> None:
    assert problem_of(body) == problem
    with pytest.raises(ReplyFailed, match=problem):
        ReadMessage().take(body)


def test_an_event_that_is_not_json_raises_reply_failed() -> None:
    with pytest.raises(ReplyFailed, match="not JSON"):
        [*events_in(["data: {"])]
    assert [*events_in(["data: 3"])] == []


@pytest.mark.parametrize(
    ("delta", "is_content"),
    [
        ({"role": "assistant", "content": None}, False),
        ({"content": ""}, False),
        ({"content": "Hi"}, True),
        ({"reasoning_content": "Hm"}, True),
        ({"tool_calls": [{"index": 0}]}, True),
    ],
)
def test_has_content_is_true_for_events_with_text_or_reasoning_or_calls(
    delta: JsonObject, is_content: bool
) -> None:
    assert has_content({"choices": [{"delta": delta}]}) is is_content
    assert not has_content({"choices": []})
