"""The number of examples of property tests: few by default, more with HYPOTHESIS_PROFILE.

The profiles "quick" (the default) and "deep" try the same examples in every run, independent of
earlier tests in the process. The profile "searching" tries 20,000 random examples, and "thorough"
100,000.
"""

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "quick")
QUICK_SHARE = 10

Item = TypeVar("Item")


def examples(count: int) -> int:
    """Return the number of examples for the profile, from the number of a thorough run."""
    return -(-count // QUICK_SHARE) if PROFILE == "quick" else count


def share(items: Sequence[Item]) -> Sequence[Item]:
    """Return the share of the items that the profile tries; at least the first."""
    return items[::QUICK_SHARE] if PROFILE == "quick" else items


def mostly_deep(rows: Iterable[object]) -> list[object]:
    """Return the rows of a parametrized test; nine of ten are marked `deep`."""
    return [
        pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=pytest.mark.deep)
        if number % QUICK_SHARE
        else row
        for number, row in enumerate(rows)
    ]


def load_profile() -> None:
    # no deadlines: the time of an example depends on the load of the machine
    for name in ("quick", "deep"):
        settings.register_profile(name, derandomize=True, max_examples=examples(100), deadline=None)
    settings.register_profile("searching", max_examples=20_000, deadline=None)
    settings.register_profile("thorough", max_examples=100_000, deadline=None)
    settings.load_profile(PROFILE)
    if settings.default is not None and settings.default.derandomize:
        _forget_constants_of_modules()


def _forget_constants_of_modules() -> None:
    """Keep Hypothesis from using constants of the imported modules in its examples.

    Each process of a test run imports other modules, so the same test would have other examples.
    """
    if hasattr(providers, "_local_constants"):
        # Hypothesis has no setting for this
        providers._get_local_constants = lambda: providers._local_constants  # noqa: SLF001
