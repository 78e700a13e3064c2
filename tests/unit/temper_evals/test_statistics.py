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
def test_mcnemar_is_scipys_exact_binomial_test(helped: int, harmed: int) -> None:
    of = helped + harmed
    expected = scipy_stats.binomtest(helped, of, 0.5).pvalue if of else 1.0
    assert mcnemar(helped, harmed) == pytest.approx(expected)


@pytest.mark.parametrize(("hits", "of"), [(0, 10), (3, 10), (10, 10), (129, 600), (1, 1260)])
def test_single_rates_have_scipys_intervals(hits: int, of: int) -> None:
    own, theirs = wilson(hits, of), scipy_stats.binomtest(hits, of).proportion_ci(method="wilson")
    assert own.low == pytest.approx(theirs.low, abs=1e-12)
    assert own.high == pytest.approx(theirs.high)
    exact = scipy_stats.binomtest(hits, of, alternative="less").proportion_ci()
    assert upper_bound(hits, of) == pytest.approx(exact.high)


def test_so_many_pairs_are_needed_for_harm_of_half_a_percent() -> None:
    assert upper_bound(0, 600) < 0.005
    assert upper_bound(2, 1260) < 0.005
    assert upper_bound(1, 600) > 0.005
    assert upper_bound(0, 0) == 1.0
    assert wilson(0, 0) == statistics.Interval(0.0, 0.0, 1.0)


def test_95_percent_of_all_intervals_hold_the_truth() -> None:
    draw = random.Random(7)
    helps, harms, held, count = 0.15, 0.05, 0, examples(1000)
    for _ in range(count):
        strata = {
            family: [
                1.0 if (luck := draw.random()) < helps else -1.0 if luck < helps + harms else 0.0
                for _ in range(30)
            ]
            for family in "abcd"
        }
        found = difference(strata, 300)
        held += found.low <= helps - harms <= found.high
    assert abs(held / count - 0.95) <= 0.02 * math.sqrt(1000 / count)


def test_an_interval_is_that_of_scipys_bootstrap() -> None:
    draw = random.Random(3)
    values = [float(draw.choice([0, 0, 0, 1, 1, -1])) for _ in range(120)]
    own = difference({"all": values})
    theirs = scipy_stats.bootstrap(
        (values,), lambda one: sum(one) / len(one), method="BCa", vectorized=False, random_state=1
    ).confidence_interval
    assert own.low == pytest.approx(theirs.low, abs=0.02)
    assert own.high == pytest.approx(theirs.high, abs=0.02)


def test_what_never_varies_has_no_width() -> None:
    assert difference({"a": [0.0] * 5, "b": [0.0]}) == statistics.Interval(0.0, 0.0, 0.0)
    assert difference({}) == statistics.Interval(0.0, 0.0, 0.0)
    assert statistics.mean({}) == 0.0


def test_families_are_strata_that_keep_their_size() -> None:
    found = difference({"a": [1.0] * 50, "b": [0.0] * 50}, 500)
    assert (found.low, found.estimate, found.high) == (0.5, 0.5, 0.5)


def test_several_comparisons_are_corrected() -> None:
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx(
        {"a": 0.03, "c": 0.06, "b": 0.06}
    )
    assert holm({}) == {}


def test_a_percentile_lies_between_the_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0, 2.0], 0.25) == 1.25
    assert percentile([], 0.5) == 0.0
