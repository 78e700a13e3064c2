from proxy.context.digest import Digest
from proxy.context.rough_tokens import count_rough_tokens
from proxy.context.shortening import TextCache
from proxy.context.units import Unit, units_of
from proxy.conversation.messages import Message, assistant_message, tool_result, user_message
from proxy.conversation.tools import ToolCall
from tests.unit.context.conversations import Pieces, has_failed, step, words

QUESTION = user_message("Find it.")
COUNTS = Pieces()


def digest(room: int, *messages: Message) -> Digest:
    summary = Digest(COUNTS, TextCache(), has_failed, room)
    for unit in units(*messages):
        summary.add(unit)
    return summary


def units(*messages: Message) -> list[Unit]:
    return list(units_of((QUESTION, *messages)))


def many(count: int) -> tuple[Message, ...]:
    return tuple(message for number in range(count) for message in step(number, 30))


def test_a_digest_has_a_line_for_each_call_and_message() -> None:
    calls = (ToolCall("a", "look", '{"path": "a.py"}'), ToolCall("b", "run", "{}"))
    messages = [
        assistant_message("Let me see", calls),
        tool_result("a", "one\nid: 7\ntwo"),
        tool_result("b", "Error: no such thing"),
        user_message("And\nthen?"),
        assistant_message("Done."),
    ]
    summary = digest(500, *messages).message()
    assert summary.role == "user"
    assert summary.text.splitlines() == [
        "[Note: earlier steps of this conversation, shortened. They are done.]",
        "- look path: a.py -> one | id: 7 | two",
        "- run -> failed: Error: no such thing",
        "- user: And then?",
        "- assistant: Done.",
    ]


def test_a_digest_lists_the_latest_steps_in_the_order_of_the_history() -> None:
    some = units(*many(50))
    summary = Digest(COUNTS, TextCache(), has_failed, 400)
    for unit in (*some[:40], *reversed(some[40:])):
        summary.add(unit)
    lines = summary.message().text.splitlines()
    missing = 50 - len(lines[2:])
    assert lines[1] == f"- ({missing} steps before these are left out)"
    assert missing == summary.left_out > 10
    assert all(f"part_{number}" in line for number, line in enumerate(lines[2:], missing))
    assert len(lines) > 5


def step_with_values(number: int) -> tuple[Message, ...]:
    """Return a step whose result has two values and an ordinary word."""
    call = ToolCall(f"call_{number}", "look", "{}")
    text = f"src/part_{number}.py: found\n(PAY-{number:05}), 1234567"
    return assistant_message("", (call,)), tool_result(call.id, text)


def test_a_digest_keeps_the_ids_and_paths_and_codes_of_omitted_steps() -> None:
    summary = digest(
        400, *(message for number in range(14) for message in step_with_values(number))
    )
    lines = summary.message().text.splitlines()
    value_lines = [line for line in lines if line.startswith("- src")]
    assert summary.left_out == 0
    assert value_lines == [
        f"- src/part_{number}.py PAY-{number:05}" for number in range(len(value_lines))
    ]
    assert len(lines) == 1 + 14 > 1 + len(value_lines) > 3
    assert COUNTS.of(summary.message()) <= summary.size <= 400


def test_a_digest_has_only_values_of_older_steps_but_full_lines_of_later_steps() -> None:
    summary = digest(
        400, *(message for number in range(90) for message in step_with_values(number))
    )
    lines = summary.message().text.splitlines()
    full_lines = [line for line in lines if line.startswith("- look")]
    value_lines = [line for line in lines if line.startswith("- src")]
    assert full_lines[-1].startswith("- look -> src/part_89.py: found")
    assert len(full_lines) > 3
    assert len(value_lines) > 3
    assert (
        lines[1] == f"- ({90 - len(full_lines) - len(value_lines)} steps before these are left out)"
    )
    assert COUNTS.of(summary.message()) <= summary.size <= 400


def test_a_digest_omits_a_value_that_would_be_truncated() -> None:
    call = ToolCall("a", "look", "{}")
    steps = (assistant_message("", (call,)), tool_result("a", f"gave up with PAY-{'7' * 60}"))
    summary = digest(110, *steps, *step_with_values(2), *step_with_values(3), *step_with_values(4))
    assert "PAY-777" not in summary.message().text
    assert summary.left_out == 1


def test_the_size_of_a_digest_is_at_least_its_token_count_and_at_most_its_room() -> None:
    for count in range(1, 50):
        summary = digest(400, *many(count))
        assert COUNTS.of(summary.message()) <= summary.size <= 400


def test_an_empty_digest_has_no_tokens() -> None:
    assert digest(400).size == 0


def test_if_a_digest_has_no_room_it_only_counts_the_omitted_steps() -> None:
    summary = digest(-5, *many(7))
    assert summary.message().text.splitlines()[1:] == ["- (7 steps before these are left out)"]
    assert COUNTS.of(summary.message()) <= summary.size


def test_adding_a_step_to_a_copy_does_not_change_the_digest() -> None:
    summary = digest(400, *many(3))
    before = summary.message()
    copied = summary.copy()
    copied.add(units(*step(9, 30))[0])
    assert summary.message() == before != copied.message()
    assert copied.size > summary.size
    few = digest(200, *(message for number in range(9) for message in step_with_values(number)))
    before = few.message()
    copied = few.copy()
    copied.add(units(*step_with_values(9))[0])
    assert few.message() == before != copied.message()


def test_each_line_of_a_digest_has_at_most_seventy_tokens() -> None:
    call = ToolCall("a", "a_long_name_of_a_tool" * 3, '{"path": "' + "a/" * 90 + '"}')
    steps = (assistant_message("", (call,)), tool_result("a", words(90)))
    lines = digest(500, *steps, user_message(words(900))).message().text.splitlines()
    assert [count_rough_tokens(line) <= 70 for line in lines[1:]] == [True, True]
