import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reason
from proxy.guardrails.rescue.syntaxes.pythonic import MARKED_PYTHON, PYTHON_LIST, PYTHON_REPLY
from tests.fakes.arrivals import read_syntax

ROLL = WrittenCall("roll", {"dice": 2})
NOW = WrittenCall("now", {})


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("<|tool_call_start|>[roll(dice=2)]<|tool_call_end|>", (ROLL,)),
        ("<|python_start|> [ now(), roll(dice=2) ] <|python_end|>", (NOW, ROLL)),
        ("<function_calls>roll(dice=2)\nnow()</function_calls>", (ROLL, NOW)),
        ("<|python_tag|>roll.call(dice=2); now()", (ROLL, NOW)),
        ('[Calling tool: roll({"dice": 2})]', (ROLL,)),
        ("<|python_tag|>print(roll(dice=2))", (ROLL,)),
    ],
)
def test_calls_stand_behind_a_mark(text: str, calls: tuple[WrittenCall, ...]) -> None:
    assert read_syntax(MARKED_PYTHON, text) == (Calls(calls), "")


def test_closing_marks_may_be_missing() -> None:
    opened = Calls((ROLL,), closed=False)
    assert read_syntax(MARKED_PYTHON, "<|tool_call_start|>[roll(dice=2)]")[0] == opened
    assert read_syntax(MARKED_PYTHON, "<function_calls>roll(dice=2)")[0] == opened
    assert read_syntax(PYTHON_REPLY, "[roll(dice=2)")[0] == opened


def test_a_list_is_read_from_its_bracket() -> None:
    assert read_syntax(PYTHON_REPLY, "[roll(dice=2)]\n x") == (Calls((ROLL,)), "x")
    assert read_syntax(PYTHON_LIST, "\n[roll(dice=2)]") == (Calls((ROLL,)), "")


@pytest.mark.parametrize("text", ["[link](x)", "[1, 2]", "[", "[]", "[a b(c=1)]"])
def test_other_lists_are_left_at_their_bracket(text: str) -> None:
    assert read_syntax(PYTHON_REPLY, text) == (NoCall(Reason.NOT_A_CALL), text)
    assert read_syntax(PYTHON_LIST, f"\n{text}") == (NoCall(Reason.NOT_A_CALL), text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<|python_tag|>", Reason.NOT_A_CALL),
        ("<|python_tag|>roll", Reason.NOT_A_CALL),
        ("<|python_tag|>2(a=1)", Reason.NOT_A_CALL),
        ("<|python_tag|>roll(2)", Reason.BROKEN),
        ("<|python_tag|>roll(dice=2", Reason.BROKEN),
        ('<|python_tag|>roll({"dice": 2}', Reason.BROKEN),
        ("<|python_tag|>roll({'a', 'b'})", Reason.BROKEN),
        ("<|python_tag|>print(roll(dice=2)", Reason.BROKEN),
        ("<|python_tag|>print(2)", Reason.NOT_A_CALL),
    ],
)
def test_anything_else_is_no_call(text: str, reason: Reason) -> None:
    assert read_syntax(MARKED_PYTHON, text)[0] == NoCall(reason)


def test_a_fence_may_stand_around_marked_calls() -> None:
    text = "<|tool_call_start|>\n```python\nnow()\n```\n<|tool_call_end|>"
    assert read_syntax(MARKED_PYTHON, text) == (Calls((WrittenCall("now", {}),)), "")
    unclosed = text.replace("\n```\n", "\n")
    assert read_syntax(MARKED_PYTHON, unclosed)[0] == Calls((WrittenCall("now", {}),))


def test_prose_behind_calls_is_left_alone() -> None:
    text = "<|python_tag|>now()\nThat is it."
    assert read_syntax(MARKED_PYTHON, text) == (
        Calls((WrittenCall("now", {}),)),
        "That is it.",
    )


def test_another_bracket_is_left_for_the_next_reading() -> None:
    text = "<tool_call>\n[TOOL_CALLS][]"
    outcome, rest = read_syntax(MARKED_PYTHON, text)
    assert outcome == NoCall(Reason.NOT_A_CALL)
    assert rest == "[TOOL_CALLS][]"


@pytest.mark.parametrize("text", ["[f(a='x'", "f(a='x'", "[g(), f(a='x'"])
def test_the_last_parenthesis_may_be_missing_behind_a_mark(text: str) -> None:
    marked = f"<|tool_call_start|>{text}"
    found = read_syntax(MARKED_PYTHON, marked)[0]
    assert isinstance(found, Calls)
    assert (found.calls[-1], found.closed) == (WrittenCall("f", {"a": "x"}), False)
    ended = read_syntax(MARKED_PYTHON, f"{marked}<|tool_call_end|>")[0]
    assert ended == Calls(found.calls)
    cut = read_syntax(MARKED_PYTHON, marked.removesuffix("'"))[0]
    assert cut == NoCall(Reason.BROKEN)
    fenced = f"<|tool_call_start|>```python\n{text}"
    assert read_syntax(MARKED_PYTHON, fenced)[0] == NoCall(Reason.BROKEN)


def test_without_a_mark_the_last_parenthesis_is_needed() -> None:
    assert read_syntax(PYTHON_REPLY, "[f(a='x'")[0] == NoCall(Reason.BROKEN)
