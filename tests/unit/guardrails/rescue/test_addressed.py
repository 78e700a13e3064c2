import pytest

from proxy.guardrails.rescue.addressed import Addressed, AddressedAtStart, RepeatedResult
from proxy.guardrails.rescue.findings import Found, Prose, Refused
from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.guardrails.rescue.syntax import NotACall, Reason
from tests.fakes.arrivals import chunkings, read_syntax, scan

CALL = '<tool_call>{"name": "look", "arguments": {}}</tool_call>'


def test_a_message_to_the_user_is_passed_as_a_whole() -> None:
    text = f"to=user<|message|>Write {CALL}"
    quoted = NotACall(Reason.QUOTED)
    assert read_syntax(AddressedAtStart(), f"{text}<|eot|>x") == (quoted, "<|eot|>x")
    assert read_syntax(Addressed(), f" {text}") == (quoted, "")


def test_what_stands_in_it_is_never_run() -> None:
    text = f"<|start|>assistant to=user<|message|>\n{CALL}\n<|eom|>{CALL}"
    for pieces in chunkings(text):
        findings = scan(pieces, SYNTAXES, ("look",))
        assert [type(finding) for finding in findings if not isinstance(finding, Prose)][:1] == [
            Refused
        ]
        assert sum(isinstance(finding, Found) for finding in findings) == 1


@pytest.mark.parametrize("end", ["</tool_response>", ""])
def test_a_repeated_result_is_passed_with_the_calls_in_it(end: str) -> None:
    text = f"<tool_response>\n<tool_call>{{}}</tool_call>\n{end}"
    outcome, rest = read_syntax(RepeatedResult(), f"{text} x" if end else text)
    assert (outcome, rest) == (NotACall(Reason.QUOTED), " x" if end else "")
