import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.kimi_k3 import KimiK3
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason
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
