import math
import random

import pytest

from temper_evals import statistics
from temper_evals.statistics import (
    difference,
    holm,
    mcnemar,
    percentile,
    upper_bound,
    wilson,
)
from tests.examples import examples

scipy_stats = pytest.importorskip("scipy.stats")


@pytest.mark.parametrize("helped", range(0, 30, 3))
@pytest.mark.parametrize("harmed", [0, 1, 4, 13])
def test_mcnemar_returns_the_same_as_the_binomial_test_of_scipy(helped: int, harmed: int) -> None:
    of = helped + harmed
    expected = scipy_stats.binomtest(helped, of, 0.5).pvalue if of else 1.0
    assert mcnemar(helped, harmed) == pytest.approx(expected)


@pytest.mark.parametrize(("hits", "of"), [(0, 10), (3, 10), (10, 10), (129, 600), (1, 1260)])
def test_wilson_and_upper_bound_return_the_same_as_scipy(hits: int, of: int) -> None:
    interval, theirs = (
        wilson(hits, of),
        scipy_stats.binomtest(hits, of).proportion_ci(method="wilson"),
    )
    assert interval.low == pytest.approx(theirs.low, abs=1e-12)
    assert interval.high == pytest.approx(theirs.high)
    exact = scipy_stats.binomtest(hits, of, alternative="less").proportion_ci()
    assert upper_bound(hits, of) == pytest.approx(exact.high)


def test_the_upper_bound_for_0_harmed_of_600_pairs_is_below_half_a_percent() -> None:
    assert upper_bound(0, 600) < 0.005
    assert upper_bound(2, 1260) < 0.005
    assert upper_bound(1, 600) > 0.005
    assert upper_bound(0, 0) == 1.0
    assert wilson(0, 0) == statistics.Interval(0.0, 0.0, 1.0)


def test_about_95_percent_of_the_intervals_of_difference_contain_the_true_value() -> None:
    draw = random.Random(7)
    helps, harms, hits, count = 0.15, 0.05, 0, examples(1000)
    for _ in range(count):
        strata = {
            family: [
                1.0 if (luck := draw.random()) < helps else -1.0 if luck < helps + harms else 0.0
                for _ in range(30)
            ]
            for family in "abcd"
        }
        interval = difference(strata, 300)
        hits += interval.low <= helps - harms <= interval.high
    assert abs(hits / count - 0.95) <= 0.02 * math.sqrt(1000 / count)


def test_the_interval_of_a_difference_is_close_to_scipys_bootstrap() -> None:
    draw = random.Random(3)
    values = [float(draw.choice([0, 0, 0, 1, 1, -1])) for _ in range(120)]
    interval = difference({"all": values})
    theirs = scipy_stats.bootstrap(
        (values,),
        lambda sample: sum(sample) / len(sample),
        method="BCa",
        vectorized=False,
        random_state=1,
    ).confidence_interval
    assert interval.low == pytest.approx(theirs.low, abs=0.02)
    assert interval.high == pytest.approx(theirs.high, abs=0.02)


def test_constant_values_have_an_interval_of_width_zero() -> None:
    assert difference({"a": [0.0] * 5, "b": [0.0]}) == statistics.Interval(0.0, 0.0, 0.0)
    assert difference({}) == statistics.Interval(0.0, 0.0, 0.0)
    assert statistics.mean({}) == 0.0


def test_two_families_of_constant_values_have_an_interval_of_width_zero() -> None:
    interval = difference({"a": [1.0] * 50, "b": [0.0] * 50}, 500)
    assert (interval.low, interval.estimate, interval.high) == (0.5, 0.5, 0.5)


def test_p_values_are_corrected_by_holms_method() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx(
        {"a": 0.03, "c": 0.06, "b": 0.06}
    )
    assert holm({}) == {}


def test_a_percentile_is_interpolated() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0, 2.0], 0.25) == 1.25
    assert percentile([], 0.5) == 0.0
