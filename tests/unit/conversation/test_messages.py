from proxy.conversation import json
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.tools import ToolCall


def test_a_user_message_says_the_same_to_us_and_to_the_backend() -> None:
    assert user_message("Hi") == Message("user", "Hi", b'{"role":"user","content":"Hi"}')


def test_a_tool_result_names_the_call_it_belongs_to() -> None:
    assert tool_result("c", "5") == Message(
        "tool", "5", b'{"role":"tool","tool_call_id":"c","content":"5"}', tool_call_id="c"
    )


def test_an_assistant_message_has_text_alone_if_there_were_no_calls() -> None:
    assert assistant_message("Hi") == Message(
        "assistant", "Hi", b'{"role":"assistant","content":"Hi"}'
    )


def test_an_assistant_message_has_its_calls_as_they_were_written() -> None:
    call = ToolCall("c", "f", '{"a": ')
    message = assistant_message("", (call,))

    assert message.calls == (call,)
    assert json.parse(message.source) == {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": '}}
        ],
    }


def test_a_tool_result_may_know_whether_the_tool_failed_and_the_backend_is_not_told() -> None:
    assert tool_result("c", "5").failed is None
    assert tool_result("c", "5", failed=True).failed is True
    assert tool_result("c", "5", failed=True).source == tool_result("c", "5").source


def test_an_assistant_message_keeps_what_was_thought() -> None:
    assert assistant_message("Hi", reasoning="Hm.").source == (
        b'{"role":"assistant","content":"Hi","reasoning_content":"Hm."}'
    )
