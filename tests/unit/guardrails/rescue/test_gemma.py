import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.gemma import BareGemma, BareGemmaInText, Gemma
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason
from tests.fakes.arrivals import read_syntax

NOTE = WrittenCall("note", {"text": 'say "hi"', "n": 2})
BODY = 'note{text:<|"|>say "hi"<|"|>,n:2}'


@pytest.mark.parametrize(
    "text",
    [
        f"<|tool_call>call:{BODY}<tool_call|>",
        f"<tool_call> call:{BODY}\n</tool_call>",
        '<start_function_call>call:note{text:<escape>say "hi"<escape>,n:2}<end_function_call>',
        "<|tool_call>call:note(text='say \"hi\"', n=2)<tool_call|>",
        f"<|tool_call>call:{BODY[:-1]}<tool_call|>",
    ],
)
def test_a_call_stands_between_marks(text: str) -> None:
    assert read_syntax(Gemma(), f"{text}x") == (Calls((NOTE,)), "x")


def test_marks_may_be_missing() -> None:
    opened = Calls((NOTE,), closed=False)
    assert read_syntax(Gemma(), f"<|tool_call>call:{BODY}")[0] == opened
    assert read_syntax(BareGemma(), f"call:{BODY}\n") == (opened, "")
    assert read_syntax(BareGemmaInText(), f"\ncall:{BODY}<tool_call|>")[0] == Calls((NOTE,))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<|tool_call> marks", Reason.NOT_A_CALL),
        ("<|tool_call>call:", Reason.NOT_A_CALL),
        ("<|tool_call>call:note", Reason.NOT_A_CALL),
        ('<|tool_call>call:note{text:<|"|>cut', Reason.BROKEN),
        ("<|tool_call>call:note{n:2", Reason.BROKEN),
        ('<|tool_call>call:note{text:<|"|>whole<|"|>', Reason.BROKEN),
        ("<|tool_call>call:note(2)", Reason.BROKEN),
    ],
)
def test_anything_else_is_no_call(text: str, reason: Reason) -> None:
    assert read_syntax(Gemma(), text)[0] == NotACall(reason)


def test_the_word_before_the_name_may_be_missing() -> None:
    found = Calls((WrittenCall("f", {"a": "x"}),))
    assert read_syntax(Gemma(), '<|tool_call>f{a:<|"|>x<|"|>}<tool_call|>')[0] == found
    assert read_syntax(Gemma(), '<|tool_call>call: f{a:<|"|>x<|"|>}<tool_call|>')[0] == found
