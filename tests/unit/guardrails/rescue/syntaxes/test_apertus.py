import pytest

from proxy.conversation.tools import WrittenCall
from proxy.guardrails.rescue.syntax import Calls, NotACall, Reason
from proxy.guardrails.rescue.syntaxes.apertus import Apertus
from tests.fakes.arrivals import read_syntax

CALLS = (WrittenCall("draw", {"what": "cat"}), WrittenCall("now", {}))
LIST = '[{"draw": {"what": "cat"}}, {"now": {}}]'


def test_the_key_is_the_name() -> None:
    text = f"<|tools_prefix|>{LIST}<|tools_suffix|>x"
    assert read_syntax(Apertus(), text) == (Calls(CALLS), "x")
    one = '<|tools_prefix|>{"now": {}} <|tools_suffix|>'
    assert read_syntax(Apertus(), one)[0] == Calls(CALLS[1:])


def test_the_closing_mark_may_be_missing() -> None:
    result = read_syntax(Apertus(), f"<|tools_prefix|>{LIST}")[0]
    assert result == Calls(CALLS, closed=False)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("[]", Reason.NOT_A_CALL),
        ("[1]", Reason.NOT_A_CALL),
        ('[{"a": {}, "b": {}}]', Reason.NOT_A_CALL),
        ("oh", Reason.BROKEN),
    ],
)
def test_anything_else_is_no_call(body: str, reason: Reason) -> None:
    assert read_syntax(Apertus(), f"<|tools_prefix|>{body}")[0] == NotACall(reason)


def test_the_usual_envelope_counts_as_well() -> None:
    text = '<|tools_prefix|>[{"name": "draw", "arguments": {"what": "cat"}}]<|tools_suffix|>'
    assert read_syntax(Apertus(), text)[0] == Calls(CALLS[:1])
