"""The limit that all syntaxes have in common; the rest of the contract is a matter of types."""

import pytest

from proxy.guardrails.rescue.findings import (
    ArgumentsStarted,
    ArgumentsText,
    Dropped,
    Finding,
    Found,
    Prose,
    Refused,
)
from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.guardrails.rescue.scanner import find_calls
from proxy.guardrails.rescue.syntax import MOST_CALLS, Reason
from tests.fakes.arrivals import joined

LOOK = '{"name": "look", "arguments": {"at": "x"}}'
CALL = f"<tool_call>{LOOK}</tool_call>"


def found_in(text: str) -> list[Finding]:
    found = find_calls(text, SYNTAXES, ("look",))
    kept = [one for one in found if not isinstance(one, ArgumentsStarted | ArgumentsText)]
    return joined(kept)


def test_a_reply_has_so_many_calls_and_no_more() -> None:
    def ends(count: int, behind: str) -> tuple[int, list[Finding]]:
        findings = found_in(f"{CALL}\n" * count + behind)
        calls = [one for one in findings if isinstance(one, Found)]
        return len(calls), findings[-1:]

    assert ends(MOST_CALLS, "Done.") == (MOST_CALLS, [Prose("Done.")])
    assert ends(MOST_CALLS, CALL) == (MOST_CALLS, [Dropped("too_many_calls")])
    assert ends(2 * MOST_CALLS, f"Done. {CALL}") == (MOST_CALLS, [Dropped("too_many_calls")])


@pytest.mark.parametrize(
    ("before", "call", "between", "behind"),
    [
        ("<tool_call>[", LOOK, ",", "]</tool_call>"),
        ("<tool_call>", LOOK, "\n", "</tool_call>"),
        ("[TOOL_CALLS]", LOOK, ",", ""),
        ("[TOOL_CALLS][", LOOK, ",", "]"),
        ("<|tool_call_start|>[", "look(at='x')", ", ", "]<|tool_call_end|>"),
        (
            "<function_calls>",
            '<invoke name="look"><parameter name="at">x</parameter></invoke>',
            "\n",
            "</function_calls>",
        ),
    ],
)
def test_the_first_ones_of_too_many_marked_calls_count(
    before: str, call: str, between: str, behind: str
) -> None:
    def findings(count: int) -> list[Finding]:
        return found_in(before + between.join([call] * count) + behind)

    (whole,) = findings(MOST_CALLS)
    assert isinstance(whole, Found)
    assert len(whole.calls) == MOST_CALLS
    for count in (MOST_CALLS + 1, MOST_CALLS + 2, 3 * MOST_CALLS):
        first, rest = findings(count)
        assert isinstance(first, Found)
        assert first.calls == whole.calls
        assert rest == Dropped("too_many_calls")


@pytest.mark.parametrize(
    ("before", "between", "behind"),
    [("[", ",", "]"), ("", "\n", ""), ("```json\n[", ",", "]\n```"), ("```json\n", "\n", "\n```")],
)
def test_nothing_of_too_many_unmarked_calls_counts(before: str, between: str, behind: str) -> None:
    def findings(count: int) -> list[Finding]:
        return found_in(before + between.join([LOOK] * count) + behind)

    (whole,) = findings(MOST_CALLS)
    assert isinstance(whole, Found)
    refused, prose = findings(2 * MOST_CALLS)
    assert refused == Refused(Reason.TOO_MANY_CALLS)
    assert prose == Prose(before + between.join([LOOK] * 2 * MOST_CALLS) + behind)
    assert findings(2 * MOST_CALLS + 1)[0] == refused
