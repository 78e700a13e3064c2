"""The work of the scanner for hostile replies, counted as calls of Python functions."""

import sys
from types import FrameType

import pytest

from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.guardrails.rescue.scanner import Scanner
from tests.corpus.floods import FLOODS, text_of
from tests.examples import PROFILE, mostly_deep

# Limits of Python function calls: per character, and until the scanner gives up a tool call.
# The most expensive floods are quotation marks that may or may not end a string.
MOST_CALLS, MOST_AT_FIRST = 7, 100_000
# Length of the flood -> its limit. The limit per character is lower for twice the length, which
# shows that the work per character does not grow.
LIMITS = {50_000: MOST_CALLS * 50_000 + MOST_AT_FIRST}
if PROFILE != "quick":
    LIMITS[100_000] = 6 * 100_000


@pytest.mark.parametrize(("length", "limit"), LIMITS.items())
@pytest.mark.parametrize("name", mostly_deep(FLOODS))
def test_the_scanner_makes_few_function_calls_per_character_of_a_flood(
    name: str, length: int, limit: int
) -> None:
    calls = 0

    def count(_frame: FrameType, event: str, _of: object) -> None:
        nonlocal calls
        calls += event == "call"

    scanner = Scanner(SYNTAXES, ("look",))
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        scanner.feed(text_of(FLOODS[name], length))
        scanner.finish()
    finally:
        sys.setprofile(before)
    assert calls < limit
