import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason
from proxy.guardrails.rescue.syntaxes.hermes import Hermes
from tests.fakes.arrivals import read_syntax

SHIP = '{"name": "ship", "arguments": {"to": "</tool_call>"}}'
CALL = WrittenCall("ship", {"to": "</tool_call>"})


@pytest.mark.parametrize(
    ("inside", "count"),
    [
        (SHIP, 1),
        (f"\n{SHIP}\n", 1),
        (f"\n{SHIP}\n{SHIP}\n", 2),
        (f"[{SHIP}, {SHIP}]", 2),
        (f"\n```json\n{SHIP}\n```\n", 1),
        (f"```\n{SHIP}```", 1),
        (f"```\n{SHIP}", 1),
    ],
)
def test_calls_stand_between_tags(inside: str, count: int) -> None:
    result = read_syntax(Hermes(), f"<tool_call>{inside}</tool_call>\nrest")
    assert result == (Calls((CALL,) * count), "\nrest")


@pytest.mark.parametrize("end", ["", "\n", "<tool_call>", "<|im_end|>", "</tool"])
def test_the_closing_tag_may_be_missing(end: str) -> None:
    result = read_syntax(Hermes(), f"<tool_call>\n{SHIP}{end}")
    assert result == (Calls((CALL,), closed=False), end.strip())


def test_brackets_missing_before_the_end_of_the_text_leave_the_call_open() -> None:
    result, _ = read_syntax(Hermes(), f"<tool_call>{SHIP[:-1]}")
    assert result == Calls((CALL,), closed=False)


def test_a_name_alone_is_a_call_without_arguments() -> None:
    result, _ = read_syntax(Hermes(), '<tool_call>{"name": "now"}</tool_call>')
    assert result == Calls((WrittenCall("now", {}),))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<tool_call> marks a call", Reason.NOT_A_CALL),
        ("<tool_call>", Reason.NOT_A_CALL),
        ("<tool_call><function=f>", Reason.NOT_A_CALL),
        ('<tool_call>{"to": "x"}</tool_call>', Reason.NOT_A_CALL),
        ('<tool_call>{"name": "ship", "arguments": {bad json}}</tool_call>', Reason.BROKEN),
        ('<tool_call>{"name": "ship", "arguments": {"to": "Par', Reason.BROKEN),
    ],
)
def test_anything_else_is_no_call(text: str, reason: Reason) -> None:
    assert read_syntax(Hermes(), text)[0] == NotACall(reason)


@pytest.mark.parametrize("closer", ["</tool>", "</function>", "</minimax:tool_call>"])
def test_a_wrong_closing_tag_is_as_good_as_the_right_one(closer: str) -> None:
    result = read_syntax(Hermes(), '<tool_call>{"name": "f", "arguments": {}}' + closer)
    assert result == (Calls((WrittenCall("f", {}),)), "")


@pytest.mark.parametrize("closer", ["</", "</tool", "</ tool>", f"</{'a' * 50}>"])
def test_what_is_no_closing_tag_leaves_the_call_open(closer: str) -> None:
    result = read_syntax(Hermes(), '<tool_call>{"name": "f", "arguments": {}}' + closer)
    assert result == (Calls((WrittenCall("f", {}),), closed=False), closer)


def test_a_list_needs_no_closing_tag() -> None:
    result = read_syntax(Hermes(), '<tool_call>[{"name": "f", "arguments": {}}]\nSo.')[0]
    assert result == Calls((WrittenCall("f", {}),))


def test_the_name_may_be_the_only_key() -> None:
    result = read_syntax(Hermes(), '<tool_call>{"f": {"a": 1}}</tool_call>')[0]
    assert result == Calls((WrittenCall("f", {"a": 1}),))
