"""Statistics of paired runs: differences with intervals, help and harm, and shares.

The unit is an instance of a task. Its runs with different seeds are averaged first, because they
are not independent. Families are strata: the bootstrap resamples instances within each family, so
an interval describes this suite and not tasks in general.

    difference in success      BCa interval
    share of right runs        Wilson interval
    share of harmed runs       exact upper bound (Clopper and Pearson)
    help against harm          exact McNemar test

Requires scipy from the extra `evals`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import stats

RESAMPLES = 10_000
_BATCH = 1_000  # resamples in memory at once
# constant, so that two reports of the same records have the same intervals
_SEED = 20_260_822

FloatArray: TypeAlias = npt.NDArray[np.float64]
# The mean difference of each instance, by family.
Strata: TypeAlias = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate with its 95 % interval."""

    estimate: float
    low: float
    high: float


def wilson(hits: int, of: int) -> Interval:
    """Return a share with its Wilson interval."""
    if of == 0:
        return Interval(0.0, 0.0, 1.0)
    interval = stats.binomtest(hits, of).proportion_ci(method="wilson")
    return Interval(hits / of, float(interval.low), float(interval.high))


def upper_bound(hits: int, of: int) -> float:
    """Return the exact upper bound of a share, with 95 % confidence (Clopper and Pearson)."""
    if of == 0:
        return 1.0
    return float(stats.binomtest(hits, of, alternative="less").proportion_ci().high)


def mcnemar(helped: int, harmed: int) -> float:
    """Return the exact two-sided p-value of the hypothesis that help is as likely as harm."""
    of = helped + harmed
    return float(stats.binomtest(helped, of).pvalue) if of else 1.0


def holm(values: Mapping[str, float]) -> dict[str, float]:
    """Correct p-values of several comparisons by Holm's method."""
    ordered = sorted(values, key=lambda name: values[name])
    corrected: dict[str, float] = {}
    least = 0.0
    for index, name in enumerate(ordered):
        least = max(least, min(1.0, (len(ordered) - index) * values[name]))
        corrected[name] = least
    return corrected


def mean(strata: Strata) -> float:
    values = [value for family in strata.values() for value in family]
    return sum(values) / len(values) if values else 0.0


def difference(strata: Strata, resamples: int = RESAMPLES) -> Interval:
    """Return a mean difference with its BCa interval, resampled by family."""
    families = tuple(tuple(sorted(family)) for _, family in sorted(strata.items()) if family)
    return _bootstrap(families, resamples)


@lru_cache(maxsize=256)
def _bootstrap(families: tuple[tuple[float, ...], ...], resamples: int) -> Interval:
    count = sum(map(len, families))
    estimate = sum(map(sum, families)) / count if count else 0.0
    varied = [family for family in families if len({*family}) > 1]
    if not varied:
        return Interval(estimate, estimate, estimate)
    # constant families do not affect the interval, and scipy refuses some of them
    constant = sum(sum(family) for family in families if len({*family}) == 1)

    def mean_of_all(*samples: FloatArray, axis: int) -> FloatArray:
        total: FloatArray = np.concatenate(samples, axis=axis).sum(axis=axis)
        return (total + constant) / count

    interval = stats.bootstrap(
        varied,
        mean_of_all,
        vectorized=True,
        method="BCa",
        n_resamples=resamples,
        batch=_BATCH,
        rng=_SEED,
    ).confidence_interval
    return Interval(estimate, float(interval.low), float(interval.high))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the quantile of the values; 0 if there are none."""
    return float(np.quantile(values, share)) if values else 0.0
