from proxy.context.digest import HEAD, LINE, digest
from proxy.context.pieces import count_pieces
from proxy.context.units import Unit, units_of
from proxy.conversation.messages import (
    Message,
    assistant_message,
    tool_result,
    user_message,
)
from proxy.conversation.tools import ToolCall
from tests.unit.context.conversations import has_failed, step, words

QUESTION = user_message("Find it.")


def units(*messages: Message) -> list[Unit]:
    return list(units_of((QUESTION, *messages)))


def test_a_digest_has_a_line_for_each_call_and_message() -> None:
    calls = (ToolCall("a", "look", '{"path": "a.py"}'), ToolCall("b", "run", "{}"))
    messages = [
        assistant_message("Let me see", calls),
        tool_result("a", "one\nid: 7\ntwo"),
        tool_result("b", "Error: no such thing"),
        user_message("And\nthen?"),
        assistant_message("Done."),
    ]
    told = digest(units(*messages), 500, has_failed)
    assert told.role == "user"
    assert told.text.splitlines() == [
        "[Note: earlier steps of this conversation, shortened. They are done.]",
        "- look path: a.py -> id: 7",
        "- run -> failed: Error: no such thing",
        "- user: And then?",
        "- assistant: Done.",
    ]


def test_the_latest_steps_are_told_in_the_order_of_the_history() -> None:
    some = units(*(message for number in range(50) for message in step(number, 30)))
    told = digest(list(reversed(some)), HEAD + 5 * LINE, has_failed)
    assert count_pieces(told.text) <= HEAD + 5 * LINE
    lines = told.text.splitlines()
    missing = 50 - len(lines[2:])
    assert lines[1] == f"- ({missing} steps before these are left out)"
    assert [f"part_{number}" in line for number, line in enumerate(lines[2:], missing)]
    assert "part_49" in lines[-1]
    assert len(lines) > 5


def test_the_first_lines_fit_into_their_room() -> None:
    told = digest(units(*step(0, 30)) * 9_999, HEAD, has_failed)
    assert len(told.text.splitlines()) == 2
    assert count_pieces(told.text) <= HEAD


def test_no_line_is_too_long() -> None:
    call = ToolCall("a", "a_long_name_of_a_tool" * 3, '{"path": "' + "a/" * 90 + '"}')
    some = units(assistant_message("", (call,)), tool_result("a", words(90)))
    some += units(user_message(words(900)))
    lines = digest(some, 500, has_failed).text.splitlines()
    assert all(count_pieces(line) <= LINE for line in lines[1:])
