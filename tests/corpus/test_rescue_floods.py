"""The work of the scanner for hostile replies, in calls of Python functions."""

import sys
from types import FrameType

import pytest

from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.guardrails.rescue.scanner import Scanner
from tests.corpus.floods import FLOODS, text_of

# of Python functions: for each character, and once until the scanner gives a call up; the dearest
# floods are quotes that may be none
MOST_CALLS, MOST_AT_FIRST = 7, 100_000
LENGTH = 50_000


@pytest.mark.parametrize("name", FLOODS)
def test_no_flood_is_read_step_by_step(name: str) -> None:
    calls = 0

    def count(_frame: FrameType, event: str, _of: object) -> None:
        nonlocal calls
        calls += event == "call"

    scanner = Scanner(SYNTAXES, ("look",))
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        scanner.feed(text_of(FLOODS[name], LENGTH))
        scanner.finish()
    finally:
        sys.setprofile(before)
    assert calls < MOST_CALLS * LENGTH + MOST_AT_FIRST
