import pytest
from msgspec.structs import replace

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.tools import ToolCall
from proxy.guardrails.transcript import (
    CompletedCall,
    Loop,
    Rounds,
    begins_turn,
    count_failed_rounds,
    find_loop,
    is_pending,
    is_stuck,
    list_completed_calls,
    parse_arguments,
    rounds_since_user,
)


def call_message(call_id: str, name: str = "look", arguments: str = "{}") -> Message:
    return assistant_message("", (ToolCall(call_id, name, arguments),))


def test_list_completed_calls_pairs_each_call_with_its_result() -> None:
    messages = [
        user_message("Hi"),
        assistant_message("", (ToolCall("a", "look", '{"x": 1}'), ToolCall("b", "go", ""))),
        tool_result("b", "gone"),
        tool_result("a", "seen"),
        call_message("c"),
    ]
    assert list_completed_calls(messages) == (
        CompletedCall("go", {}, "gone", has_failed=False, turn=1),
        CompletedCall("look", {"x": 1}, "seen", has_failed=False, turn=1),
    )


def test_an_orphaned_result_completes_no_call() -> None:
    assert list_completed_calls([tool_result("x", "seen"), Message("tool", "seen", b"{}")]) == ()


def test_a_system_reminder_after_a_result_is_not_part_of_the_result() -> None:
    def with_reminder(left: int) -> list[Message]:
        reminder = f"<system-reminder>\n{left} tokens left\n</system-reminder>"
        return [call_message("a"), tool_result("a", f'{{"error": "gone"}}\n{reminder}')]

    (call,) = list_completed_calls(with_reminder(9))
    assert call == CompletedCall("look", {}, '{"error": "gone"}', has_failed=True)
    assert rounds_since_user([*with_reminder(9), *with_reminder(8)]) == Rounds(2, 1)


@pytest.mark.parametrize(
    ("arguments", "read"), [("", {}), (" ", {}), ('{"a": 1}', {"a": 1}), ("[1]", None), ("{", None)]
)
def test_parse_arguments_returns_none_for_text_that_is_not_a_json_object(
    arguments: str, read: dict[str, int] | None
) -> None:
    assert parse_arguments(arguments) == read


def round_of(result: str, arguments: str = "{}") -> list[Message]:
    return [call_message("1", arguments=arguments), tool_result("1", result)]


def test_rounds_are_counted_since_the_last_user_message() -> None:
    messages = [user_message("a"), *round_of("x")]
    assert rounds_since_user(messages) == Rounds(1)
    assert rounds_since_user([*messages, user_message("b")]) == Rounds()
    assert rounds_since_user([*messages, *round_of("y"), *round_of("z")]) == Rounds(3)


def test_a_user_message_of_only_reminders_does_not_begin_a_turn() -> None:
    note = user_message("<system-reminder>\nBe brief.\n</system-reminder>")
    failed = round_of("Error: no such file")
    history = [user_message("a"), *failed, note, *failed, note]
    assert rounds_since_user(history) == Rounds(2, 1)
    assert count_failed_rounds(history) == 2
    assert [call.turn for call in list_completed_calls(history)] == [1, 1]


def test_a_user_message_with_a_reminder_and_an_image_begins_a_turn() -> None:
    reminder: JsonObject = {"type": "text", "text": "<system-reminder>a</system-reminder>"}
    picture: JsonObject = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aa=="}}
    for content, begins in ([reminder], False), ([reminder, picture], True), ([], False):
        text = "".join(str(part.get("text", "")) for part in content)
        message = Message("user", text, json.dump({"role": "user", "content": [*content]}))
        assert begins_turn(message) is begins


def test_count_failed_rounds_counts_the_failed_rounds_at_the_end_of_the_history() -> None:
    bad, good = round_of("Error: gone"), round_of("fine")
    both = [call_message("1"), tool_result("1", "fine"), tool_result("2", "Error: gone")]
    assert count_failed_rounds([*good, *bad, *bad]) == 2
    assert count_failed_rounds([*bad, *good]) == 0
    assert count_failed_rounds([*bad, *both]) == 0
    assert count_failed_rounds([*bad, *both[:1], *bad]) == 1
    assert count_failed_rounds([*bad, user_message("Go on"), *bad]) == 1
    assert count_failed_rounds([*bad, assistant_message("Hm.")]) == 0
    assert count_failed_rounds([]) == 0


def test_a_round_that_repeats_earlier_calls_and_results_counts_as_idle() -> None:
    seen = [*round_of("x"), *round_of("y", '{"a": 1}')]
    assert rounds_since_user([*seen, *seen]) == Rounds(4, 2)
    assert rounds_since_user([*seen, *seen, *round_of("new")]) == Rounds(5)
    assert rounds_since_user([*seen, user_message("again"), *seen]) == Rounds(2)
    assert rounds_since_user([*seen, tool_result("unknown", "x")]) == Rounds(2)


@pytest.mark.parametrize(
    "status",
    ["running", '{"status": "in_progress"}', "Build 40% done", "not ready, try again", "queued"],
)
def test_a_round_whose_result_reports_a_running_job_is_not_idle(status: str) -> None:
    assert is_pending(status)
    assert rounds_since_user(round_of(status) * 9) == Rounds(9)


@pytest.mark.parametrize("result", ["sunny, 20 degrees", "done", "still " + "x" * 600, "100"])
def test_a_result_is_not_pending_if_it_reports_no_running_job(result: str) -> None:
    assert not is_pending(result)


@pytest.mark.parametrize(
    ("text", "known", "failed"),
    [("Error: no", None, True), ("Error: no", False, False), ("gone", True, True)],
)
def test_the_failure_flag_of_a_result_takes_precedence_over_its_text(
    text: str, known: bool | None, failed: bool
) -> None:
    message = assistant_message("", (ToolCall("c", "f", "{}"),))
    (call,) = list_completed_calls([message, tool_result("c", text, failed=known)])
    assert call.has_failed is failed


LOOK = CompletedCall("look", {"x": 1}, "seen", has_failed=False)


def test_the_same_call_with_the_same_result_three_times_is_a_loop() -> None:
    assert find_loop([LOOK] * 3) == Loop("look", {"x": 1}, 3)
    assert find_loop([replace(LOOK, name="go"), *[LOOK] * 4]) == Loop("look", {"x": 1}, 4)
    assert find_loop([LOOK] * 2, limit=2) == Loop("look", {"x": 1}, 2)


def test_two_equal_calls_or_three_that_differ_are_not_a_loop() -> None:
    assert find_loop([]) is None
    assert find_loop([LOOK] * 2) is None
    assert find_loop([LOOK, replace(LOOK, result="other"), LOOK, LOOK]) is None
    assert find_loop([LOOK, LOOK, replace(LOOK, arguments={"x": 2})]) is None


def test_calls_with_unreadable_arguments_are_not_a_loop() -> None:
    assert find_loop([replace(LOOK, arguments=None)] * 3) is None


def test_repetitions_requested_by_the_user_are_not_a_loop() -> None:
    later = replace(LOOK, turn=1)
    assert find_loop([LOOK, LOOK, later, later]) is None
    assert find_loop([LOOK, later, later, later]) == Loop("look", {"x": 1}, 3)


def test_polling_a_job_is_not_a_loop() -> None:
    assert find_loop([replace(LOOK, result="status: running")] * 9) is None


def test_a_model_is_stuck_only_after_many_rounds_of_which_the_last_are_idle() -> None:
    assert not is_stuck(Rounds(400))
    assert not is_stuck(Rounds(50, 4))
    assert is_stuck(Rounds(50, 5))
    assert not is_stuck(Rounds(49, 49))
    assert is_stuck(Rounds(2, 1), most=2)
    assert not is_stuck(Rounds(2, 0), most=2)
