import random
from math import isnan

import pytest

from benchmarks.load.figures import median, percentile


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([5.0], 50, 5.0),
        ([1.0, 2.0], 50, 1.0),
        ([3.0, 1.0, 2.0], 50, 2.0),
        ([float(n) for n in range(1, 101)], 99, 99.0),
        ([float(n) for n in range(1, 101)], 100, 100.0),
        ([1.0, 2.0, 3.0], 0, 1.0),
    ],
)
def test_a_percentile_is_a_value_that_was_measured(
    values: list[float], percent: float, expected: float
) -> None:
    assert percentile(values, percent) == expected


def test_so_many_percent_of_the_values_do_not_exceed_a_percentile() -> None:
    chance = random.Random(0)
    for size in range(1, 60):
        values = [chance.random() for _ in range(size)]
        for percent in (1, 50, 90, 99):
            found = percentile(values, percent)
            assert 100 * sum(value <= found for value in values) >= percent * size
            assert 100 * sum(value < found for value in values) < percent * size


def test_the_median_of_an_even_number_lies_between_two_values() -> None:
    assert median([4.0, 1.0, 2.0, 9.0]) == 3.0


def test_percentiles_of_nothing_are_nan() -> None:
    assert isnan(percentile([], 50))
    assert isnan(median([]))
