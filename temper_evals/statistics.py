"""Paired statistics, without a library: differences with intervals, help and harm, single rates.

An instance is the unit: its seeds stay together. Families are strata, a fixed list, so intervals
speak of this suite.
"""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TypeAlias

RESAMPLES = 10_000
_SEED = 20_260_822
_NORMAL = NormalDist()
_CONFIDENCE = 0.95

# The mean difference of each instance, by family.
Strata: TypeAlias = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate, and between which bounds it lies with 95 %."""

    estimate: float
    low: float
    high: float


def wilson(hits: int, of: int) -> Interval:
    """Return a share with its interval by Wilson."""
    if of == 0:
        return Interval(0.0, 0.0, 1.0)
    z = _NORMAL.inv_cdf((1 + _CONFIDENCE) / 2)
    share, square = hits / of, z * z
    middle = (share + square / (2 * of)) / (1 + square / of)
    half = z / (1 + square / of) * math.sqrt(share * (1 - share) / of + square / (4 * of * of))
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half))


def upper_bound(hits: int, of: int) -> float:
    """Return the exact bound that a share stays below with 95 % (Clopper and Pearson)."""
    if of == 0 or hits >= of:
        return 1.0
    low, high = hits / of, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        is_likely = _at_most(hits, of, middle) > 1 - _CONFIDENCE
        low, high = (middle, high) if is_likely else (low, middle)
    return high


def _at_most(hits: int, of: int, share: float) -> float:
    """Return how likely at most so many hits are."""
    if share >= 1:
        return 0.0
    term = (1 - share) ** of
    total = term
    for k in range(1, hits + 1):
        term *= (of - k + 1) / k * share / (1 - share)
        total += term
    return total


def mcnemar(helped: int, harmed: int) -> float:
    """Return the exact two-sided p value that help and harm are alike."""
    of, fewer = helped + harmed, min(helped, harmed)
    if of == 0:
        return 1.0
    tail = sum(math.comb(of, k) for k in range(fewer + 1))
    return min(1.0, float(2 * tail / 2**of))


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """Correct p values of several comparisons by Holm."""
    ordered = sorted(values, key=lambda name: values[name])
    corrected: dict[str, float] = {}
    least = 0.0
    for place, name in enumerate(ordered):
        least = max(least, min(1.0, (len(ordered) - place) * values[name]))
        corrected[name] = least
    return corrected


def mean(strata: Strata) -> float:
    """Return the mean over all instances."""
    values = [one for family in strata.values() for one in family]
    return sum(values) / len(values) if values else 0.0


def difference(strata: Strata, resamples: int = RESAMPLES) -> Interval:
    """Return a mean difference with its BCa interval, resampled by family."""
    families = tuple(tuple(sorted(one)) for _, one in sorted(strata.items()) if one)
    return _bootstrap(families, resamples)


@lru_cache(maxsize=256)
def _bootstrap(families: tuple[tuple[float, ...], ...], resamples: int) -> Interval:
    count = sum(map(len, families))
    estimate = sum(map(sum, families)) / count if count else 0.0
    if len({one for family in families for one in family}) < 2:
        return Interval(estimate, estimate, estimate)
    draw = random.Random(_SEED)  # noqa: S311 - resampling
    means = sorted(
        sum(sum(draw.choices(family, k=len(family))) for family in families) / count
        for _ in range(resamples)
    )
    tail = (1 - _CONFIDENCE) / 2
    bias = _bias(means, estimate)
    skew = _acceleration(families, count)
    low, high = (_corrected(share, bias, skew) for share in (tail, 1 - tail))
    return Interval(estimate, _quantile(means, low), _quantile(means, high))


def _bias(means: Sequence[float], estimate: float) -> float:
    below = sum(one < estimate for one in means) + 0.5 * sum(one == estimate for one in means)
    share = min(max(below / len(means), 1 / len(means)), 1 - 1 / len(means))
    return _NORMAL.inv_cdf(share)


def _acceleration(families: tuple[tuple[float, ...], ...], count: int) -> float:
    """Return the skewness of the mean, by leaving out one instance at a time."""
    cubes = squares = 0.0
    for family in families:
        centre = sum(family) / len(family)
        cubes += sum((centre - one) ** 3 for one in family)
        squares += sum((centre - one) ** 2 for one in family)
    return -cubes / (6 * squares**1.5) if squares and count else 0.0


def _corrected(share: float, bias: float, skew: float) -> float:
    z = bias + _NORMAL.inv_cdf(share)
    return _NORMAL.cdf(bias + z / (1 - skew * z))


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    least = min(max(math.floor(place), 0), len(ordered) - 1)
    most = min(least + 1, len(ordered) - 1)
    return ordered[least] + (ordered[most] - ordered[least]) * (place - least)


def leave_one_out(strata: Strata) -> tuple[float, float]:
    """Return the extremes of a mean when any one family is left out."""
    means = [
        mean({name: one for name, one in strata.items() if name != family}) for family in strata
    ]
    return (min(means), max(means)) if len(means) > 1 else (mean(strata), mean(strata))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which so large a share of the values lies; 0 if there are none."""
    return _quantile(sorted(values), share) if values else 0.0
