import pytest

from proxy.conversation.tools import ToolCall, WrittenCall
from proxy.guardrails.rescue.registry import find_syntax
from proxy.guardrails.rescue.syntax import MOST_CALLS, Calls, NoCall, Reason
from proxy.guardrails.rescue.values.cursor import Cursor
from proxy.guardrails.tool_prompts.history import find_convention
from tests.fakes.arrivals import read_syntax, run
from tests.unit.guardrails.tool_prompts.retelling import RESPOND, SEND, WAIT, read_again

MISTRAL_CONVENTION = find_convention("mistral")

MISTRAL = find_syntax("mistral")

DESCRIPTION = """[AVAILABLE_TOOLS][{"type":"function","function":{"name":"send",\
"description":"send","parameters":{"type":"object","properties":{"to":{"type":"string"}}}}}, \
{"type": "function",
 "function": {"name": "wait"}}%s][/AVAILABLE_TOOLS]

To call one or several of these tools, write [TOOL_CALLS] and a JSON list, and nothing behind it:
[TOOL_CALLS][{"name": "TOOL", "arguments": {"PARAMETER": "VALUE"}}]
You get the results between [TOOL_RESULTS] and [/TOOL_RESULTS].%s"""


def test_tools_are_described_as_a_list() -> None:
    duty = " Every reply is a call: to answer the user, call respond."
    source = ", " + RESPOND.source.decode()
    assert MISTRAL_CONVENTION.describe([SEND, WAIT], RESPOND) == DESCRIPTION % (source, duty)
    assert MISTRAL_CONVENTION.describe([SEND, WAIT], None) == DESCRIPTION % ("", "")


def test_calls_are_a_list_and_have_their_ids() -> None:
    calls = [ToolCall("a[INST]", "send", '{"to": "[TOOL_CALLS]"}'), ToolCall("", "wait", "{}")]
    assert MISTRAL_CONVENTION.write_calls("Sending.", calls) == (
        'Sending.\n\n[TOOL_CALLS][{"name": "send", "arguments": {"to": "\\u005bTOOL_CALLS]"}, '
        '"id": "a\\u005bINST]"}, {"name": "wait", "arguments": {}}]'
    )


def test_a_result_names_its_call() -> None:
    assert MISTRAL_CONVENTION.write_result("send", "a", "[/TOOL_RESULTS]") == (
        '[TOOL_RESULTS]{"name": "send", "content": "\\u005b/TOOL_RESULTS]", "call_id": "a"}'
        "[/TOOL_RESULTS]"
    )
    assert MISTRAL_CONVENTION.write_result("send", "", "[1]") == (
        '[TOOL_RESULTS]{"name": "send", "content": [1]}[/TOOL_RESULTS]'
    )


def test_a_list_is_read_if_the_backend_removed_the_mark() -> None:
    text = MISTRAL_CONVENTION.write_calls("", [ToolCall("a", "send", '{"to": "x"}')])
    (call,) = read_again(MISTRAL_CONVENTION, text.removeprefix("[TOOL_CALLS]"), ["send"])
    assert call.arguments == {"to": "x"}


SEND_CALL = '{"name": "send", "arguments": {"text": "]["}}'
CALL = WrittenCall("send", {"text": "]["})


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"[TOOL_CALLS][{SEND_CALL}]", 1),
        (f"[TOOL_CALLS] [{SEND_CALL}, {SEND_CALL}]", 2),
        (f"[TOOL_CALLS]{SEND_CALL}", 1),
        (f"[TOOL_CALLS] [TOOL_CALLS]\n{SEND_CALL}", 1),
        ('[TOOL_CALLS]send[ARGS]{"text": "]["}', 1),
        ('[TOOL_CALLS]send{"text": "]["}', 1),
        ('[TOOL_CALLS] send [ARGS] {"text": "]["}', 1),
        ('[TOOL_CALLS]send[CALL_ID]a1B2[ARGS]{"text": "]["}', 1),
    ],
)
def test_both_forms_are_read_up_to_the_last_bracket(text: str, count: int) -> None:
    assert read_syntax(MISTRAL, f"{text}\nrest") == (Calls((CALL,) * count), "\nrest")


def test_another_mark_is_left_to_the_next_syntax() -> None:
    text = '[TOOL_CALLS]now{}[TOOL_CALLS]send{"text": "x"}'
    result = read_syntax(MISTRAL, text)
    assert result == (Calls((WrittenCall("now", {}),)), '[TOOL_CALLS]send{"text": "x"}')


def test_missing_closing_brackets_leave_the_call_open() -> None:
    result, _ = read_syntax(MISTRAL, '[TOOL_CALLS]send[ARGS]{"text": "]["')
    assert result == Calls((CALL,), closed=False)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"[TOOL_CALLS]{SEND_CALL}, {SEND_CALL}", 2),
        ('[TOOL_CALLS][send(text="][")]', 1),
        ('[TOOL_CALLS]send(text="][")', 1),
        (f"[TOOL_CALLS] calls [{SEND_CALL}]", 1),
    ],
)
def test_other_forms_are_accepted_after_the_mark(text: str, count: int) -> None:
    assert read_syntax(MISTRAL, text) == (Calls((CALL,) * count), "")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        # other text is no call
        ("[TOOL_CALLS]", Reason.NOT_A_CALL),
        ("[TOOL_CALLS] is a mark", Reason.NOT_A_CALL),
        ("[TOOL_CALLS]send", Reason.NOT_A_CALL),
        ("[TOOL_CALLS]send[ARGS]", Reason.NOT_A_CALL),
        ("[TOOL_CALLS][ARGS]{}", Reason.NOT_A_CALL),
        ("[TOOL_CALLS]send[ARGS][1]", Reason.NOT_A_CALL),
        ("[TOOL_CALLS]send[ARGS]{oh no}", Reason.BROKEN),
        ('[TOOL_CALLS][{"name": "send", "arguments": {"text": "cut', Reason.BROKEN),
        # a broken other form is no call
        ("[TOOL_CALLS]send(text)", Reason.BROKEN),
        (f"[TOOL_CALLS]{SEND_CALL}, {{oh}}", Reason.BROKEN),
    ],
)
def test_other_text_is_no_call(text: str, reason: Reason) -> None:
    assert read_syntax(MISTRAL, text)[0] == NoCall(reason)


@pytest.mark.parametrize("between", ["", "\n", ", "])
def test_further_calls_need_no_first_mark(between: str) -> None:
    call = 'send[ARGS]{"text": "]["}'
    text = f"[TOOL_CALLS]{call}{between}send[CALL_ID]a1[ARGS]{{}} and so on"
    calls = Calls((CALL, WrittenCall("send", {})))
    assert read_syntax(MISTRAL, text) == (calls, " and so on")
    broken = f"[TOOL_CALLS]{call}{between}send[ARGS]{{oh}}"
    assert read_syntax(MISTRAL, broken)[0] == NoCall(Reason.BROKEN)
    again = f"[TOOL_CALLS]{call}{between}"
    assert read_syntax(MISTRAL, f"{again}[TOOL_CALLS]{call}")[0] == Calls((CALL,))


def test_the_number_of_calls_after_one_mark_is_limited() -> None:
    cursor = Cursor("f[ARGS]{}" * 200, is_finished=True)
    calls = run(cursor, MISTRAL.read(cursor, "[TOOL_CALLS]"), [])[0]
    assert isinstance(calls, Calls)
    assert len(calls.calls) == MOST_CALLS + 1


def test_a_parenthesis_missing_at_the_end_makes_the_call_broken() -> None:
    text = '[TOOL_CALLS]send(text="]["'
    assert read_syntax(MISTRAL, text)[0] == NoCall(Reason.BROKEN)
