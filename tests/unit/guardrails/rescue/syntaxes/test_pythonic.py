import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.registry import find_syntax
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reason, Syntax
from tests.fakes.arrivals import read_syntax

LINE_BLOCKS = find_syntax("line_blocks")
MARKED_PYTHON = find_syntax("marked_python")
PYTHON_LIST = find_syntax("python_list")
PYTHON_REPLY = find_syntax("python_reply")

ROLL = WrittenCall("roll", {"dice": 2})
NOW = WrittenCall("now", {})


def test_closing_marks_may_be_missing() -> None:
    opened = Calls((ROLL,), closed=False)
    assert read_syntax(MARKED_PYTHON, "<|tool_call_start|>[roll(dice=2)]")[0] == opened
    assert read_syntax(MARKED_PYTHON, "<function_calls>roll(dice=2)")[0] == opened
    assert read_syntax(PYTHON_REPLY, "[roll(dice=2)")[0] == opened


def test_a_list_is_read_from_its_bracket() -> None:
    assert read_syntax(PYTHON_REPLY, "[roll(dice=2)]\n x") == (Calls((ROLL,)), "x")
    assert read_syntax(PYTHON_LIST, "\n[roll(dice=2)]") == (Calls((ROLL,)), "")


@pytest.mark.parametrize("text", ["[link](x)", "[1, 2]", "[", "[]", "[a b(c=1)]"])
def test_other_lists_are_abandoned_at_their_bracket(text: str) -> None:
    assert read_syntax(PYTHON_REPLY, text) == (NoCall(Reason.NOT_A_CALL), text)
    assert read_syntax(PYTHON_LIST, f"\n{text}") == (NoCall(Reason.NOT_A_CALL), text)


def test_a_fence_may_enclose_marked_calls() -> None:
    text = "<|tool_call_start|>\n```python\nnow()\n```\n<|tool_call_end|>"
    assert read_syntax(MARKED_PYTHON, text) == (Calls((WrittenCall("now", {}),)), "")
    unclosed = text.replace("\n```\n", "\n")
    assert read_syntax(MARKED_PYTHON, unclosed)[0] == Calls((WrittenCall("now", {}),))


def test_prose_after_calls_is_kept() -> None:
    text = "<|python_tag|>now()\nThat is it."
    assert read_syntax(MARKED_PYTHON, text) == (Calls((WrittenCall("now", {}),)), "That is it.")


def test_another_bracket_is_left_to_the_next_syntax() -> None:
    text = "<tool_call>\n[TOOL_CALLS][]"
    outcome, rest = read_syntax(MARKED_PYTHON, text)
    assert outcome == NoCall(Reason.NOT_A_CALL)
    assert rest == "[TOOL_CALLS][]"


@pytest.mark.parametrize("text", ["[f(a='x'", "f(a='x'", "[g(), f(a='x'"])
def test_the_last_parenthesis_may_be_missing_after_a_mark(text: str) -> None:
    marked = f"<|tool_call_start|>{text}"
    calls = read_syntax(MARKED_PYTHON, marked)[0]
    assert isinstance(calls, Calls)
    assert (calls.calls[-1], calls.closed) == (WrittenCall("f", {"a": "x"}), False)
    ended = read_syntax(MARKED_PYTHON, f"{marked}<|tool_call_end|>")[0]
    assert ended == Calls(calls.calls)
    cut = read_syntax(MARKED_PYTHON, marked.removesuffix("'"))[0]
    assert cut == NoCall(Reason.BROKEN)
    fenced = f"<|tool_call_start|>```python\n{text}"
    assert read_syntax(MARKED_PYTHON, fenced)[0] == NoCall(Reason.BROKEN)


def test_without_a_mark_the_last_parenthesis_is_required() -> None:
    assert read_syntax(PYTHON_REPLY, "[f(a='x'")[0] == NoCall(Reason.BROKEN)


BLOCKS = "TOOL_NAME: edit\nBEGIN_ARG: path\na.py\nEND_ARG\nBEGIN_ARG: text\nx\n\n  y\nEND_ARG\n"
EDIT = WrittenCall("edit", {"path": "a.py", "text": "x\n\n  y"})


@pytest.mark.parametrize(
    ("syntax", "text", "calls"),
    [
        # calls follow a mark
        (MARKED_PYTHON, "<|tool_call_start|>[roll(dice=2)]<|tool_call_end|>", (ROLL,)),
        (MARKED_PYTHON, "<|python_start|> [ now(), roll(dice=2) ] <|python_end|>", (NOW, ROLL)),
        (MARKED_PYTHON, "<function_calls>roll(dice=2)\nnow()</function_calls>", (ROLL, NOW)),
        (MARKED_PYTHON, "<|python_tag|>roll.call(dice=2); now()", (ROLL, NOW)),
        (MARKED_PYTHON, '[Calling tool: roll({"dice": 2})]', (ROLL,)),
        (MARKED_PYTHON, "<|python_tag|>print(roll(dice=2))", (ROLL,)),
        # every argument is a block of lines
        (LINE_BLOCKS, BLOCKS, (EDIT,)),
        (LINE_BLOCKS, f"```tool\n{BLOCKS}```", (EDIT,)),
        (LINE_BLOCKS, f"```tool\n{BLOCKS}```\n", (EDIT,)),
    ],
)
def test_a_text_has_these_calls(syntax: Syntax, text: str, calls: tuple[WrittenCall, ...]) -> None:
    assert read_syntax(syntax, text) == (Calls(calls), "")


def test_several_calls_follow_one_another() -> None:
    fenced = f"```tool\n{BLOCKS}```\n"
    both = Calls((EDIT, EDIT))
    assert read_syntax(LINE_BLOCKS, f"{fenced}\n{fenced}x") == (both, "x")
    assert read_syntax(LINE_BLOCKS, BLOCKS + BLOCKS) == (both, "")


def test_a_value_may_be_empty() -> None:
    text = "TOOL_NAME: f\nBEGIN_ARG: a\nEND_ARG"
    assert read_syntax(LINE_BLOCKS, text)[0] == Calls((WrittenCall("f", {"a": ""}),))


def test_a_call_without_arguments_needs_its_fence() -> None:
    now = Calls((WrittenCall("now", {}),))
    assert read_syntax(LINE_BLOCKS, "```tool\nTOOL_NAME: now\n```")[0] == now
    assert read_syntax(LINE_BLOCKS, "TOOL_NAME: now")[0] == NoCall(Reason.NOT_A_CALL)


@pytest.mark.parametrize(
    ("syntax", "text", "reason"),
    [
        # after a mark
        (MARKED_PYTHON, "<|python_tag|>", Reason.NOT_A_CALL),
        (MARKED_PYTHON, "<|python_tag|>roll", Reason.NOT_A_CALL),
        (MARKED_PYTHON, "<|python_tag|>2(a=1)", Reason.NOT_A_CALL),
        (MARKED_PYTHON, "<|python_tag|>roll(2)", Reason.BROKEN),
        (MARKED_PYTHON, "<|python_tag|>roll(dice=2", Reason.BROKEN),
        (MARKED_PYTHON, '<|python_tag|>roll({"dice": 2}', Reason.BROKEN),
        (MARKED_PYTHON, "<|python_tag|>roll({'a', 'b'})", Reason.BROKEN),
        (MARKED_PYTHON, "<|python_tag|>print(roll(dice=2)", Reason.BROKEN),
        (MARKED_PYTHON, "<|python_tag|>print(2)", Reason.NOT_A_CALL),
        # blocks of lines
        (LINE_BLOCKS, "```tool\nls -l\n```", Reason.NOT_A_CALL),
        (LINE_BLOCKS, "TOOL_NAME:\n", Reason.NOT_A_CALL),
        (LINE_BLOCKS, "TOOL_NAME: f\nBEGIN_ARG: a\ncut", Reason.NOT_A_CALL),
        (LINE_BLOCKS, "TOOL_NAME: f\nBEGIN_ARG:\nx\nEND_ARG", Reason.NOT_A_CALL),
        (
            LINE_BLOCKS,
            "TOOL_NAME: f\nBEGIN_ARG: a\n1\nEND_ARG\nBEGIN_ARG: a\n2\nEND_ARG",
            Reason.NOT_A_CALL,
        ),
        (LINE_BLOCKS, "```tool\nTOOL_NAME: f\nBEGIN_ARG: a\n1\nEND_ARG\nso", Reason.NOT_A_CALL),
        (
            LINE_BLOCKS,
            "TOOL_NAME: f\n" + "".join(f"BEGIN_ARG: a{n}\n1\nEND_ARG\n" for n in range(101)),
            Reason.NOT_A_CALL,
        ),
    ],
)
def test_other_text_is_no_call(syntax: Syntax, text: str, reason: Reason) -> None:
    assert read_syntax(syntax, text)[0] == NoCall(reason)
