import pytest

from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.tools import ToolCall
from proxy.guardrails.transcript import (
    CompletedCall,
    Rounds,
    completed_calls,
    failed_rounds,
    is_pending,
    object_of,
    rounds_since_user,
)


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
        CompletedCall("go", {}, "gone", has_failed=False, turn=1),
        CompletedCall("look", {"x": 1}, "seen", has_failed=False, turn=1),
    )


def test_a_result_that_nobody_asked_for_completes_nothing() -> None:
    assert completed_calls([tool_result("x", "seen"), Message("tool", "seen", b"{}")]) == ()


def test_a_reminder_behind_a_result_is_no_part_of_it() -> None:
    def reminded(left: int) -> list[Message]:
        reminder = f"<system-reminder>\n{left} tokens left\n</system-reminder>"
        return [called("a"), tool_result("a", f'{{"error": "gone"}}\n{reminder}')]

    (call,) = completed_calls(reminded(9))
    assert call == CompletedCall("look", {}, '{"error": "gone"}', has_failed=True)
    assert rounds_since_user([*reminded(9), *reminded(8)]) == Rounds(2, 1)


@pytest.mark.parametrize(
    ("written", "read"), [("", {}), (" ", {}), ('{"a": 1}', {"a": 1}), ("[1]", None), ("{", None)]
)
def test_arguments_are_an_object_or_unreadable(written: str, read: dict[str, int] | None) -> None:
    assert object_of(written) == read


def round_of(result: str, arguments: str = "{}") -> list[Message]:
    return [called("1", arguments=arguments), tool_result("1", result)]


def test_rounds_are_counted_since_the_user_spoke() -> None:
    messages = [user_message("a"), *round_of("x")]
    assert rounds_since_user(messages) == Rounds(1)
    assert rounds_since_user([*messages, user_message("b")]) == Rounds()
    assert rounds_since_user([*messages, *round_of("y"), *round_of("z")]) == Rounds(3)


def test_rounds_that_failed_are_counted_from_the_end() -> None:
    bad, good = round_of("Error: gone"), round_of("fine")
    both = [called("1"), tool_result("1", "fine"), tool_result("2", "Error: gone")]
    assert failed_rounds([*good, *bad, *bad]) == 2
    assert failed_rounds([*bad, *good]) == 0
    assert failed_rounds([*bad, *both]) == 0
    assert failed_rounds([*bad, *both[:1], *bad]) == 1
    assert failed_rounds([*bad, user_message("Go on"), *bad]) == 1
    assert failed_rounds([*bad, assistant_message("Hm.")]) == 0
    assert failed_rounds([]) == 0


def test_a_round_is_idle_if_all_of_it_was_seen_before() -> None:
    seen = [*round_of("x"), *round_of("y", '{"a": 1}')]
    assert rounds_since_user([*seen, *seen]) == Rounds(4, 2)
    assert rounds_since_user([*seen, *seen, *round_of("new")]) == Rounds(5)
    assert rounds_since_user([*seen, user_message("again"), *seen]) == Rounds(2)
    assert rounds_since_user([*seen, tool_result("nobody", "asked")]) == Rounds(2)


@pytest.mark.parametrize(
    "status",
    ["running", '{"status": "in_progress"}', "Build 40% done", "not ready, try again", "queued"],
)
def test_a_job_that_is_going_on_is_no_idle_round(status: str) -> None:
    assert is_pending(status)
    assert rounds_since_user(round_of(status) * 9) == Rounds(9)


@pytest.mark.parametrize("result", ["sunny, 20 degrees", "done", "still " + "x" * 600, "100"])
def test_a_result_is_not_pending(result: str) -> None:
    assert not is_pending(result)


@pytest.mark.parametrize(
    ("text", "known", "failed"),
    [("Error: no", None, True), ("Error: no", False, False), ("gone", True, True)],
)
def test_what_is_known_of_a_failure_counts_more_than_words(
    text: str, known: bool | None, failed: bool
) -> None:
    said = assistant_message("", (ToolCall("c", "f", "{}"),))
    (call,) = completed_calls([said, tool_result("c", text, failed=known)])
    assert call.has_failed is failed
