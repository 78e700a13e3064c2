import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.mistral import Mistral
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason
from tests.fakes.arrivals import read_syntax

SEND = '{"name": "send", "arguments": {"text": "]["}}'
CALL = WrittenCall("send", {"text": "]["})


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"[TOOL_CALLS][{SEND}]", 1),
        (f"[TOOL_CALLS] [{SEND}, {SEND}]", 2),
        (f"[TOOL_CALLS]{SEND}", 1),
        (f"[TOOL_CALLS] [TOOL_CALLS]\n{SEND}", 1),
        ('[TOOL_CALLS]send[ARGS]{"text": "]["}', 1),
        ('[TOOL_CALLS]send{"text": "]["}', 1),
        ('[TOOL_CALLS] send [ARGS] {"text": "]["}', 1),
        ('[TOOL_CALLS]send[CALL_ID]a1B2[ARGS]{"text": "]["}', 1),
    ],
)
def test_both_forms_are_read_up_to_the_last_bracket(text: str, count: int) -> None:
    assert read_syntax(Mistral(), f"{text}\nrest") == (Calls((CALL,) * count), "\nrest")


def test_another_mark_is_left_for_the_next_reading() -> None:
    text = '[TOOL_CALLS]now{}[TOOL_CALLS]send{"text": "x"}'
    result = read_syntax(Mistral(), text)
    assert result == (Calls((WrittenCall("now", {}),)), '[TOOL_CALLS]send{"text": "x"}')


def test_brackets_missing_at_the_end_leave_the_call_open() -> None:
    result, _ = read_syntax(Mistral(), '[TOOL_CALLS]send[ARGS]{"text": "]["')
    assert result == Calls((CALL,), closed=False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[TOOL_CALLS]", Reason.NOT_A_CALL),
        ("[TOOL_CALLS] is a mark", Reason.NOT_A_CALL),
        ("[TOOL_CALLS]send", Reason.NOT_A_CALL),
        ("[TOOL_CALLS]send[ARGS]", Reason.NOT_A_CALL),
        ("[TOOL_CALLS][ARGS]{}", Reason.NOT_A_CALL),
        ("[TOOL_CALLS]send[ARGS][1]", Reason.NOT_A_CALL),
        ("[TOOL_CALLS]send[ARGS]{oh no}", Reason.BROKEN),
        ('[TOOL_CALLS][{"name": "send", "arguments": {"text": "cut', Reason.BROKEN),
    ],
)
def test_anything_else_is_no_call(text: str, reason: Reason) -> None:
    assert read_syntax(Mistral(), text)[0] == NotACall(reason)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"[TOOL_CALLS]{SEND}, {SEND}", 2),
        ('[TOOL_CALLS][send(text="][")]', 1),
        ('[TOOL_CALLS]send(text="][")', 1),
        (f"[TOOL_CALLS] calls [{SEND}]", 1),
    ],
)
def test_other_forms_stand_behind_the_mark_too(text: str, count: int) -> None:
    assert read_syntax(Mistral(), text) == (Calls((CALL,) * count), "")


@pytest.mark.parametrize("text", ["[TOOL_CALLS]send(text)", f"[TOOL_CALLS]{SEND}, {{oh}}"])
def test_a_broken_other_form_is_no_call(text: str) -> None:
    assert read_syntax(Mistral(), text)[0] == NotACall(Reason.BROKEN)
