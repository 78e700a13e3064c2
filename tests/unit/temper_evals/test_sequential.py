import random

import pytest

from temper_evals.sequential import BETTER, EVEN, FALSE_OFF, FALSE_ON, Decision, SequentialTest


def after_pairs(helped: int, harmed: int, same: int = 0) -> SequentialTest:
    return SequentialTest(helped + harmed + same, helped, harmed)


def test_only_pairs_that_differ_are_evidence() -> None:
    test = SequentialTest()
    for before, after in ((False, False), (True, True), (False, True), (True, False)):
        test.add(before=before, after=after)
    assert (test.pairs, test.helped, test.harmed) == (4, 1, 1)


@pytest.mark.parametrize(
    ("helped", "harmed", "decision"),
    [
        (0, 0, Decision.UNDECIDED),
        (6, 0, Decision.UNDECIDED),
        (7, 0, Decision.ON),
        (9, 1, Decision.ON),
        (8, 1, Decision.UNDECIDED),
        (0, 2, Decision.UNDECIDED),
        (0, 3, Decision.OFF),
        (3, 5, Decision.OFF),
    ],
)
def test_it_ends_as_soon_as_it_is_decided(helped: int, harmed: int, decision: Decision) -> None:
    assert after_pairs(helped, harmed, 20).decision is decision


def test_a_negligible_effect_is_not_earned() -> None:
    assert after_pairs(0, 0, 148).decision is Decision.UNDECIDED
    assert after_pairs(0, 0, 149).decision is Decision.OFF
    assert after_pairs(7, 0, 10_000).decision is Decision.ON


def test_it_estimates_the_remaining_pairs() -> None:
    short, long = after_pairs(5, 0, 20), after_pairs(2, 0, 20)
    assert 0 < short.missing < long.missing
    assert after_pairs(1, 2, 20).missing > 0


def share_of(decision: Decision, help_share: float, *, differing: float = 0.15) -> float:
    """Return how often sequences with these rates of difference and help end this way."""
    draw, hits, count = random.Random(7), 0, 2_000
    for _ in range(count):
        test = SequentialTest()
        while test.decision is Decision.UNDECIDED:
            is_help = draw.random() < help_share
            if draw.random() < differing:
                test.add(before=not is_help, after=is_help)
            else:
                test.add(before=True, after=True)
        hits += test.decision is decision
    return hits / count


@pytest.mark.deep
@pytest.mark.parametrize(
    ("decision", "help_share", "most"),
    [
        (Decision.ON, EVEN, FALSE_ON),
        (Decision.ON, 0.3, FALSE_ON / 10),
        (Decision.OFF, BETTER, FALSE_OFF),
        (Decision.OFF, 0.95, FALSE_OFF / 10),
    ],
)
def test_its_error_rate_is_within_its_bound(
    decision: Decision, help_share: float, most: float
) -> None:
    assert share_of(decision, help_share) <= most


@pytest.mark.parametrize(
    ("helped", "harmed", "same", "loses"),
    [
        (0, 0, 20, None),
        (3, 0, 20, None),
        (4, 0, 20, False),
        (0, 4, 20, None),
        (0, 5, 20, True),
        (8, 10, 20, None),  # the test has decided, and yet fewer helped
        (10, 10, 20, False),
        (0, 0, 149, False),
    ],
)
def test_with_the_sides_changed_it_decides_whether_anything_is_lost(
    helped: int, harmed: int, same: int, loses: bool | None
) -> None:
    assert after_pairs(helped, harmed, same).loses is loses


def test_it_estimates_the_pairs_needed_to_exclude_a_loss() -> None:
    assert 0 < after_pairs(3, 0, 20).missing_for_loss < after_pairs(1, 0, 20).missing_for_loss
    assert after_pairs(8, 10, 20).missing_for_loss > 0
