import pytest

from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.tools import ToolCall
from proxy.guardrails.transcript import CompletedCall, completed_calls, object_of, rounds_since_user


def called(call_id: str, name: str = "look", arguments: str = "{}") -> Message:
    return assistant_message("", (ToolCall(call_id, name, arguments),))


def test_a_call_is_completed_by_its_result() -> None:
    messages = [
        user_message("Hi"),
        assistant_message("", (ToolCall("a", "look", '{"x": 1}'), ToolCall("b", "go", ""))),
        tool_result("b", "gone"),
        tool_result("a", "seen"),
        called("c"),
    ]
    assert completed_calls(messages) == (
        CompletedCall("go", {}, "gone", has_failed=False),
        CompletedCall("look", {"x": 1}, "seen", has_failed=False),
    )


def test_a_result_that_nobody_asked_for_completes_nothing() -> None:
    assert completed_calls([tool_result("x", "seen"), Message("tool", "seen", b"{}")]) == ()


@pytest.mark.parametrize(
    ("result", "has_failed"),
    [
        ("seen", False),
        ("  Error: no such file", True),
        ("Traceback (most recent call last)", True),
        ("no error at all", False),
        ('{"error": "no such file"}', True),
        ('{"error": null, "data": 1}', False),
        ('{"isError": true}', True),
        ('{"is_error": false}', False),
        ('{"status": "error"}', True),
        ('{"status": "ok"}', False),
        ("{not json", False),
    ],
)
def test_a_failure_is_told_by_the_result(result: str, has_failed: bool) -> None:
    (call,) = completed_calls([called("a"), tool_result("a", result)])
    assert call.has_failed is has_failed


@pytest.mark.parametrize(
    ("written", "read"), [("", {}), (" ", {}), ('{"a": 1}', {"a": 1}), ("[1]", None), ("{", None)]
)
def test_arguments_are_an_object_or_unreadable(written: str, read: dict[str, int] | None) -> None:
    assert object_of(written) == read


def test_rounds_are_counted_since_the_user_spoke() -> None:
    messages = [user_message("a"), called("1"), tool_result("1", "x")]
    assert rounds_since_user(messages) == 1
    assert rounds_since_user([*messages, user_message("b")]) == 0
    assert rounds_since_user([*messages, called("2"), called("3")]) == 3
