import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls, NoCall, Reason
from proxy.guardrails.rescue.syntaxes.line_blocks import LINE_BLOCKS
from tests.fakes.arrivals import read_syntax

BLOCKS = "TOOL_NAME: edit\nBEGIN_ARG: path\na.py\nEND_ARG\nBEGIN_ARG: text\nx\n\n  y\nEND_ARG\n"
EDIT = WrittenCall("edit", {"path": "a.py", "text": "x\n\n  y"})


@pytest.mark.parametrize("text", [BLOCKS, f"```tool\n{BLOCKS}```", f"```tool\n{BLOCKS}```\n"])
def test_every_argument_is_a_block_of_lines(text: str) -> None:
    assert read_syntax(LINE_BLOCKS, text) == (Calls((EDIT,)), "")


def test_several_calls_stand_in_a_row() -> None:
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
    "text",
    [
        "```tool\nls -l\n```",
        "TOOL_NAME:\n",
        "TOOL_NAME: f\nBEGIN_ARG: a\ncut",
        "TOOL_NAME: f\nBEGIN_ARG:\nx\nEND_ARG",
        "TOOL_NAME: f\nBEGIN_ARG: a\n1\nEND_ARG\nBEGIN_ARG: a\n2\nEND_ARG",
        "```tool\nTOOL_NAME: f\nBEGIN_ARG: a\n1\nEND_ARG\nso",
        "TOOL_NAME: f\n" + "".join(f"BEGIN_ARG: a{n}\n1\nEND_ARG\n" for n in range(101)),
    ],
)
def test_anything_else_is_no_call(text: str) -> None:
    assert read_syntax(LINE_BLOCKS, text)[0] == NoCall(Reason.NOT_A_CALL)
