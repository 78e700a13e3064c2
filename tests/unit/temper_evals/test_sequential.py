import random

import pytest

from temper_evals.sequential import BETTER, EVEN, FALSE_OFF, FALSE_ON, Decision, SequentialTest


def after_pairs(helped: int, harmed: int, same: int = 0) -> SequentialTest:
    return SequentialTest(helped + harmed + same, helped, harmed)


def test_helped_pairs_are_right_only_in_the_later_run_and_harmed_only_in_the_earlier() -> None:
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
def test_the_decision_depends_on_the_numbers_of_helped_and_harmed_pairs(
    helped: int, harmed: int, decision: Decision
) -> None:
    assert after_pairs(helped, harmed, 20).decision is decision


def test_after_149_pairs_with_equal_results_the_decision_is_off() -> None:
    assert after_pairs(0, 0, 148).decision is Decision.UNDECIDED
    assert after_pairs(0, 0, 149).decision is Decision.OFF
    assert after_pairs(7, 0, 10_000).decision is Decision.ON


def test_the_number_of_missing_pairs_is_smaller_after_more_helped_pairs() -> None:
    short, long = after_pairs(5, 0, 20), after_pairs(2, 0, 20)
    assert 0 < short.missing < long.missing
    assert after_pairs(1, 2, 20).missing > 0


def share_of(decision: Decision, help_share: float, *, differing: float = 0.15) -> float:
    """Simulate 2,000 tests of random pairs; return the share that ends with this decision.

    A pair differs with the probability `differing`, and a differing pair helps with `help_share`.
    """
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
def test_the_share_of_wrong_decisions_is_at_most_the_promised_share(
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
        (8, 10, 20, None),  # the gain is decided (OFF), but a loss is neither shown nor excluded
        (10, 10, 20, False),
        (0, 0, 149, False),
    ],
)
def test_whether_an_arm_loses_depends_on_the_numbers_of_helped_and_harmed_pairs(
    helped: int, harmed: int, same: int, loses: bool | None
) -> None:
    assert after_pairs(helped, harmed, same).loses is loses


def test_the_number_of_missing_pairs_for_a_loss_is_smaller_after_more_helped_pairs() -> None:
    assert 0 < after_pairs(3, 0, 20).missing_for_loss < after_pairs(1, 0, 20).missing_for_loss
    assert after_pairs(8, 10, 20).missing_for_loss > 0
