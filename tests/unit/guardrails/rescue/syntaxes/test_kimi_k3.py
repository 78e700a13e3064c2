import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason
from proxy.guardrails.rescue.syntaxes.kimi_k3 import KimiK3
from tests.fakes.arrivals import read_syntax

START = '<|open|>call tool="sum" index="1"<|sep|>'
END = "<|close|>call<|sep|>"


def argument(key: str, kind: str, text: str) -> str:
    return f'<|open|>argument key="{key}" type="{kind}"<|sep|>{text}<|close|>argument<|sep|>'


def test_every_argument_has_a_type() -> None:
    arguments = argument("a", "number", "1") + argument("b", "string", "2")
    text = START + arguments + argument("c", "object", "{oh") + END
    call = WrittenCall("sum", {"a": 1, "b": "2", "c": "{oh"})
    assert read_syntax(KimiK3(), f"{text}x") == (Calls((call,)), "x")
    assert read_syntax(KimiK3(), START + END)[0] == Calls((WrittenCall("sum", {}),))


def test_the_closing_mark_may_be_missing() -> None:
    result = read_syntax(KimiK3(), START + argument("a", "number", "1"))[0]
    assert result == Calls((WrittenCall("sum", {"a": 1}),), closed=False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (START, Reason.NOT_A_CALL),
        ('<|open|>call tool="sum', Reason.NOT_A_CALL),
        (START + '<|open|>argument key="a" type="number"<|sep|>1', Reason.BROKEN),
        (START + '<|open|>argument key=""<|sep|>1<|close|>argument<|sep|>', Reason.BROKEN),
    ],
)
def test_anything_else_is_no_call(text: str, reason: Reason) -> None:
    assert read_syntax(KimiK3(), text)[0] == NotACall(reason)


def test_attributes_may_be_escaped() -> None:
    text = (
        '<|open|>call tool="a&amp;b&quot;c" index="1"<|sep|><|open|>argument key="k&amp;q" '
        'type="string"<|sep|>v<|close|>argument<|sep|><|close|>call<|sep|>'
    )
    assert read_syntax(KimiK3(), text)[0] == Calls((WrittenCall('a&b"c', {"k&q": "v"}),))


@pytest.mark.parametrize(
    "inner", ['<|open|>call tool="b"<|sep|>', '<|open|>argument key="b"<|sep|>']
)
def test_a_value_without_end_does_not_run_into_the_next_element(inner: str) -> None:
    text = f'<|open|>call tool="a"<|sep|><|open|>argument key="a"<|sep|>1{inner}2'
    text += "<|close|>argument<|sep|><|close|>call<|sep|>"
    assert read_syntax(KimiK3(), text)[0] == NotACall(Reason.BROKEN)


def test_a_key_whose_quotation_mark_is_missing_is_none() -> None:
    text = '<|open|>call tool="a"<|sep|><|open|>argument key="first type="string"<|sep|>1'
    text += "<|close|>argument<|sep|><|close|>call<|sep|>"
    assert read_syntax(KimiK3(), text)[0] == NotACall(Reason.BROKEN)
