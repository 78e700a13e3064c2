"""Lasting growth is detected, but growth during warm-up and short peaks count as flat."""

import random

import pytest

from benchmarks.faults.flatness import (
    MOST_DESCRIPTORS,
    MOST_MEMORY_MB,
    Sample,
    flatness,
    of_descriptors,
    of_memory,
)

NOISE = [random.Random(seed).uniform(-1, 1) for seed in range(300)]
FLOODS = range(13, 300, 37)


def memory(*values: float) -> list[Sample]:
    return [Sample(2.0 * i, value, 20) for i, value in enumerate(values)]


def is_flat(*values: float) -> bool:
    result = of_memory(memory(*values))
    assert result is not None
    return result.is_flat


def test_constant_memory_with_noise_and_short_peaks_is_flat() -> None:
    values = [100 + noise for noise in NOISE]
    for index in FLOODS:
        values[index : index + 3] = [400.0] * 3
    assert is_flat(*values)


def test_growth_in_the_first_fifth_counts_as_flat() -> None:
    assert is_flat(*(min(80 + i, 140) + noise for i, noise in enumerate(NOISE)))


def test_memory_that_shrinks_counts_as_flat() -> None:
    assert is_flat(*(200 - i / 10 for i in range(300)))


@pytest.mark.parametrize("leaked", [1.5 * MOST_MEMORY_MB, 20 * MOST_MEMORY_MB])
def test_leak_is_detected_despite_noise(leaked: float) -> None:
    """A leak is detected if it exceeds the limit between the second and the last fifth."""
    values = [100 + noise + leaked * i / 180 for i, noise in enumerate(NOISE)]
    assert not is_flat(*values)


def test_a_single_lasting_increase_is_detected() -> None:
    assert not is_flat(*[100.0] * 200, *[110.0] * 100)


def test_growth_equal_to_the_limit_counts_as_flat() -> None:
    for more, expected in ((0.0, True), (0.01, False)):
        result = flatness([1.0] * 8 + [4.0 + more] * 2, 3.0)
        assert result is not None
        assert (result.second_fifth, result.last_fifth, result.is_flat) == (
            1.0,
            4.0 + more,
            expected,
        )


def test_a_growing_number_of_file_descriptors_is_detected() -> None:
    samples = [Sample(i, 100, 20 + i) for i in range(100)]
    result = of_descriptors(samples)
    assert result is not None
    assert result.most == MOST_DESCRIPTORS
    assert not result.is_flat


def test_too_few_samples_give_no_verdict() -> None:
    assert of_memory(memory(1, 2, 3, 400)) is None
