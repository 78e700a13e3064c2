"""Percentiles of values within a round, and medians over rounds."""

import statistics
from collections.abc import Iterable, Sequence
from math import ceil, nan

Figures = dict[str, float]


def percentile(values: Iterable[float], percent: float) -> float:
    """Return the smallest value that `percent` % of the values do not exceed; NaN if empty."""
    ordered = sorted(values)
    if not ordered:
        return nan
    return ordered[max(0, ceil(len(ordered) * percent / 100) - 1)]


def median(values: Sequence[float]) -> float:
    """Return the median; NaN if empty."""
    return statistics.median(values) if values else nan
