"""The benchmark of floods, on a size at which it takes no time, and their work in steps."""

import sys
from types import FrameType

import pytest

from benchmarks.rescue_floods import FLOODS, PIECES, main, measured, text_of
from proxy.guardrails.rescue.registry import SYNTAXES
from proxy.guardrails.rescue.scanner import Scanner

MOST_CALLS = 6  # of Python functions a character; the dearest floods are quotes that may be none
LENGTH = 100_000


def test_every_flood_is_timed_at_every_size_of_pieces(capsys: pytest.CaptureFixture[str]) -> None:
    main(400)
    head, *lines = capsys.readouterr().out.splitlines()
    assert [line[:34].strip() for line in lines] == list(FLOODS)
    assert all(len(line) == len(head) for line in lines)
    assert all(name in head for name in PIECES)


def test_a_flood_has_the_size_that_was_asked_for() -> None:
    assert text_of("ab", 5) == "ababa"
    assert text_of(("[", "1,"), 6) == "[1,1,1"
    assert all(len(text_of(flood, 999)) == 999 for flood in FLOODS.values())


def test_growth_compares_with_half_the_size() -> None:
    seconds, growth = measured("word ", 20_000, 4_096)
    assert seconds > 0
    assert growth > 0


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
    assert calls < MOST_CALLS * LENGTH
