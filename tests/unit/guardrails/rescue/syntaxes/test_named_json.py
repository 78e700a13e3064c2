import pytest

from proxy.guardrails.rescue.findings import Prose
from proxy.guardrails.rescue.registry import find_syntax
from proxy.guardrails.rescue.scanner import Scanner, find_calls
from tests.fakes.arrivals import calls_found

FUNCTIONARY = find_syntax("functionary")
FUNCTIONARY_IN_TEXT = find_syntax("functionary_in_text")


PING = '>>>ping\n{"host": "a"}'


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (f"{PING}{PING}", 2),
        (f"Let me look.\n{PING}", 1),
        (f"Let me look.{PING}", 0),
        (f"{PING}\nis how it is written.", 0),
        (f"So:\n{PING}\n\nThat is all.", 0),
        (PING.replace("ping", "pong"), 0),
    ],
)
def test_calls_are_read_only_on_separate_lines_at_the_end_and_only_of_offered_tools(
    text: str, count: int
) -> None:
    findings = find_calls(text, (FUNCTIONARY, FUNCTIONARY_IN_TEXT), ("ping",))
    assert sum(len(finding.calls) for finding in calls_found(findings)) == count


def test_a_greater_than_sign_at_the_end_of_a_chunk_is_not_held_back() -> None:
    scanner = Scanner((FUNCTIONARY, FUNCTIONARY_IN_TEXT), ("ping",))
    assert scanner.feed("a ->") == [Prose("a ->")]
