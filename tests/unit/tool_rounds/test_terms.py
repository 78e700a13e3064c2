import pytest

from proxy.tool_rounds.terms import RunTerms


@pytest.mark.parametrize(
    ("window", "calls", "chars"),
    [
        (None, 1, 16_000),
        (None, 8, 16_000),
        (8_192, 1, 6_144),
        (8_192, 3, 2_048),
        (8_192, 100, 200),
        (131_072, 1, 16_000),
        (8_192, 0, 6_144),
    ],
)
def test_results_of_one_round_share_a_quarter_of_the_window(
    window: int | None, calls: int, chars: int
) -> None:
    assert RunTerms(frozenset(), window=window).chars_for(calls) == chars
