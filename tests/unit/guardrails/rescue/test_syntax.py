"""Tests the limits and the consecutive calls that are common to all syntaxes."""

import pytest

from proxy.guardrails.rescue.findings import (
    ArgumentsStarted,
    ArgumentsText,
    DroppedText,
    Finding,
    FoundCalls,
    Prose,
    RefusedText,
)
from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.guardrails.rescue.scanner import Scanner, find_calls
from proxy.guardrails.rescue.syntax import MOST_CALLS, Reason
from proxy.guardrails.rescue.syntaxes.tool_names import syntaxes_for
from tests.fakes.arrivals import chunkings, joined
from tests.fakes.playbook import make_tool

LOOK = '{"name": "look", "arguments": {"at": "x"}}'
CALL = f"<tool_call>{LOOK}</tool_call>"


def findings_in(text: str) -> list[Finding]:
    findings = find_calls(text, SYNTAXES, ("look",))
    reported = [
        finding for finding in findings if not isinstance(finding, ArgumentsStarted | ArgumentsText)
    ]
    return joined(reported)


def test_calls_of_a_reply_above_the_limit_are_dropped() -> None:
    def ends(count: int, after: str) -> tuple[int, list[Finding]]:
        findings = findings_in(f"{CALL}\n" * count + after)
        calls = [finding for finding in findings if isinstance(finding, FoundCalls)]
        return len(calls), findings[-1:]

    assert ends(MOST_CALLS, "Done.") == (MOST_CALLS, [Prose("Done.")])
    assert ends(MOST_CALLS, CALL) == (MOST_CALLS, [DroppedText("too_many_calls")])
    assert ends(2 * MOST_CALLS, f"Done. {CALL}") == (MOST_CALLS, [DroppedText("too_many_calls")])


@pytest.mark.parametrize(
    ("before", "call", "between", "after"),
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
def test_marked_calls_up_to_the_limit_are_accepted_and_all_later_ones_dropped(
    before: str, call: str, between: str, after: str
) -> None:
    def findings(count: int) -> list[Finding]:
        return findings_in(before + between.join([call] * count) + after)

    (complete,) = findings(MOST_CALLS)
    assert isinstance(complete, FoundCalls)
    assert len(complete.calls) == MOST_CALLS
    for count in (MOST_CALLS + 1, MOST_CALLS + 2, 3 * MOST_CALLS):
        first, dropped = findings(count)
        assert isinstance(first, FoundCalls)
        assert first.calls == complete.calls
        assert dropped == DroppedText("too_many_calls")


@pytest.mark.parametrize(
    ("before", "between", "after"),
    [("[", ",", "]"), ("", "\n", ""), ("```json\n[", ",", "]\n```"), ("```json\n", "\n", "\n```")],
)
def test_too_many_unmarked_calls_are_refused(before: str, between: str, after: str) -> None:
    def findings(count: int) -> list[Finding]:
        return findings_in(before + between.join([LOOK] * count) + after)

    (complete,) = findings(MOST_CALLS)
    assert isinstance(complete, FoundCalls)
    refused, prose = findings(2 * MOST_CALLS)
    assert refused == RefusedText(Reason.TOO_MANY_CALLS)
    assert prose == Prose(before + between.join([LOOK] * 2 * MOST_CALLS) + after)
    assert findings(2 * MOST_CALLS + 1)[0] == refused


OFFERED = (
    make_tool("look", {"type": "object", "properties": {"at": {"type": "string"}}}),
    make_tool("now", {"type": "object", "properties": {"zone": {"type": "string"}}}),
)
NOW = '{"name": "now", "arguments": {"zone": "y"}}'
# Two calls without marks, and the text before, between and after them.
ROWS = {
    "closed JSON": ("So.\n", f"{LOOK}\n</tool_call>", "\n", f"{NOW}\n</tool_call>"),
    "JSON": ("", LOOK, "\n", NOW),
    "Gemma's": ("So.\n", "call:look{at:x}", "\n", 'call:now{zone:<|"|>y<|"|>}'),
    "Gemma's at the start": ("", "call:look{at:x}", "\n", "call:now{zone:y}"),
    "lists of Python": ("So.\n", "[look(at='x')]", "\n\n", "[now(zone='y')]"),
    "a reply of Python": ("", "[look(at='x')]", "\n", "[now(zone='y')]"),
    "Functionary's": ("So.\n", '>>>look\n{"at": "x"}', "", '>>>now\n{"zone": "y"}'),
    "Functionary's without mark": ("", 'look\n{"at": "x"}', "", '>>>now\n{"zone": "y"}'),
    "names and JSON": ("", 'look\n{"at": "x"}', "\n", 'now\n{"zone": "y"}'),
    "actions": (
        "So.\n",
        'Action: look\nAction Input: {"at": "x"}',
        "\n",
        'Action: now\nAction Input: {"zone": "y"}',
    ),
    "fences": ("So.\n", f"```json\n{LOOK}\n```", "\n", f"```json\n{NOW}\n```"),
    "attributes": ("So.\n", '<look at="x"/>', "\n", '<now zone="y"/>'),
}

# These calls are recognized by the names of tools; with other names they are ordinary text.
NAMED_AFTER_TOOLS = ("Functionary's without mark", "names and JSON", "attributes")


def call_names(text: str) -> list[str]:
    """Return the names of the calls in a text; assert that they are the same at any chunking."""
    results: list[list[str]] = []
    for pieces in chunkings(text):
        scanner = Scanner(SYNTAXES, [tool.name for tool in OFFERED], syntaxes_for(OFFERED))
        findings = [finding for piece in pieces for finding in scanner.feed(piece)]
        calls = [
            finding
            for finding in joined(findings + scanner.finish())
            if isinstance(finding, FoundCalls)
        ]
        results.append([call.name for finding in calls for call in finding.calls])
    assert all(result == results[0] for result in results)
    return results[0]


@pytest.mark.parametrize("title", ROWS)
def test_consecutive_unmarked_calls_at_the_end_of_a_text_are_accepted(title: str) -> None:
    before, first, between, second = ROWS[title]
    assert call_names(before + first + between + second) == ["look", "now"]
    assert call_names(f"{before}{first}{between}{second}{between}{first}\n") == [
        "look",
        "now",
        "look",
    ]


@pytest.mark.parametrize("title", ROWS)
def test_consecutive_unmarked_calls_are_refused_if_one_is_invalid(title: str) -> None:
    before, first, between, second = ROWS[title]
    unknown = first.replace("look", "other")
    assert call_names(before + first + between + unknown + between + second) == []
    cut_off = second.removesuffix("</tool_call>")[:-8]  # the closing mark may be incomplete
    assert call_names(before + first + between + cut_off) == []
    if title not in NAMED_AFTER_TOOLS:
        assert call_names(before + unknown + between + first + between + second) == []


@pytest.mark.parametrize(
    "text",
    [
        f"[look(at='x')]\n```json\n{NOW}\n```",
        '[look(at=\'x\')]\n>>>now\n{"zone": "y"}',
        f"call:look{{at:x}}\n```json\n{NOW}\n```\nAction: now\nAction Input: {{}}",
        f"First:\n```json\n{LOOK}\n```\nThen:\n```json\n{NOW}\n```",
        "[look(at='x')]\nis one, and this is another:\n[now(zone='y')]",
    ],
)
def test_unmarked_calls_in_different_syntaxes_or_with_text_between_them_are_refused(
    text: str,
) -> None:
    assert call_names(text) == []


def test_an_unmarked_call_before_a_marked_call_is_accepted() -> None:
    assert call_names(f"[look(at='x')]\n<tool_call>{NOW}</tool_call>") == ["look", "now"]


def test_an_unmarked_call_in_reasoning_is_refused() -> None:
    assert call_names(f"[look(at='x')]\nI think.\n</think>\n{NOW}") == ["now"]


@pytest.mark.parametrize("title", ROWS)
def test_too_many_consecutive_unmarked_calls_are_all_refused(title: str) -> None:
    before, first, between, second = ROWS[title]

    def names(count: int) -> list[str]:
        text = before + between.join([first, *[second] * (count - 1)])
        scanner = Scanner(SYNTAXES, [tool.name for tool in OFFERED], syntaxes_for(OFFERED))
        findings = [
            finding
            for finding in scanner.feed(text) + scanner.finish()
            if isinstance(finding, FoundCalls)
        ]
        return [call.name for finding in findings for call in finding.calls]

    assert len(names(MOST_CALLS)) == MOST_CALLS
    assert names(MOST_CALLS + 1) == []
    assert names(2 * MOST_CALLS) == []
