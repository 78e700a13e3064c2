"""What grows is noticed; what only warms up, or swells for a moment, is not."""

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

NOISE = [random.Random(place).uniform(-1, 1) for place in range(300)]
FLOODS = range(13, 300, 37)


def memory(*values: float) -> list[Sample]:
    return [Sample(2.0 * place, value, 20) for place, value in enumerate(values)]


def is_flat(*values: float) -> bool:
    found = of_memory(memory(*values))
    assert found is not None
    return found.is_flat


def test_what_stays_is_flat_in_spite_of_noise_and_floods() -> None:
    values = [100 + noise for noise in NOISE]
    for place in FLOODS:
        values[place : place + 3] = [400.0] * 3
    assert is_flat(*values)


def test_what_grows_in_the_first_fifth_has_warmed_up() -> None:
    assert is_flat(*(min(80 + place, 140) + noise for place, noise in enumerate(NOISE)))


def test_memory_that_shrinks_counts_as_flat() -> None:
    assert is_flat(*(200 - place / 10 for place in range(300)))


@pytest.mark.parametrize("leaked", [1.5 * MOST_MEMORY_MB, 20 * MOST_MEMORY_MB])
def test_a_leak_is_seen_whatever_the_noise(leaked: float) -> None:
    """Leak so many MB between the middles of the fifths that are compared."""
    values = [100 + noise + leaked * place / 180 for place, noise in enumerate(NOISE)]
    assert not is_flat(*values)


def test_a_step_that_stays_is_seen() -> None:
    assert not is_flat(*[100.0] * 200, *[110.0] * 100)


def test_as_much_as_is_allowed_is_flat_and_more_is_not() -> None:
    for more, expected in ((0.0, True), (0.01, False)):
        found = flatness([1.0] * 8 + [4.0 + more] * 2, 3.0)
        assert found is not None
        assert (found.second_fifth, found.last_fifth, found.is_flat) == (1.0, 4.0 + more, expected)


def test_descriptors_are_judged_by_themselves() -> None:
    samples = [Sample(place, 100, 20 + place) for place in range(100)]
    found = of_descriptors(samples)
    assert found is not None
    assert found.most == MOST_DESCRIPTORS
    assert not found.is_flat


def test_too_few_samples_give_no_verdict() -> None:
    assert of_memory(memory(1, 2, 3, 400)) is None
