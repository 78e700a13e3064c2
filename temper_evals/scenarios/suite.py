"""The families by name, and the suites that consist of them."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from proxy.errors import InvalidConfiguration
from temper_evals.scenarios import calling, ordering, restraint, stepping
from temper_evals.scenarios.held_out.calendar import calendar
from temper_evals.scenarios.held_out.refactoring import refactoring
from temper_evals.scenarios.held_out.travel import travel
from temper_evals.scenarios.held_out.triage import triage
from temper_evals.scenarios.task import PlannedTask

FAMILIES: Mapping[str, Callable[[int], PlannedTask]] = {
    "single": calling.single,
    "choose": calling.choose,
    "chain": stepping.chain,
    "branch": stepping.branch,
    "parallel": calling.parallel,
    "schema": calling.schema,
    "verbatim": calling.verbatim,
    "failing": stepping.failing,
    "none": restraint.none,
    "ask": restraint.ask,
    "trap": restraint.trap,
    "forced": restraint.forced,
    "long": stepping.long,
    "ordered": ordering.ordered,
}
# by a second author, for published figures only; development must not use their results
HELD_OUT: Mapping[str, Callable[[int], PlannedTask]] = {
    "calendar": calendar,
    "refactoring": refactoring,
    "travel": travel,
    "triage": triage,
}
ALL_FAMILIES = {**FAMILIES, **HELD_OUT}
RESTRAINT = ("none", "ask", "trap")
# `long` needs as many replies as all other families together
QUICK = {**dict.fromkeys(FAMILIES, 4), "single": 6, "choose": 6, "chain": 6, "long": 1, "trap": 6}
FULL = {**dict.fromkeys(ALL_FAMILIES, 25), "long": 5}


@lru_cache(maxsize=4096)
def task_named(name: str) -> PlannedTask | None:
    """Return the task of a name such as `chain-3`; None for an unknown family."""
    family, _, number = name.rpartition("-")
    if family not in ALL_FAMILIES or not number.isdecimal():
        return None
    return ALL_FAMILIES[family](int(number))


def suite(name: str, families: Sequence[str] = ()) -> tuple[PlannedTask, ...]:
    """Return the tasks of a suite, or only those of `families`."""
    sizes = {"quick": QUICK, "full": FULL}.get(name)
    if sizes is None:
        raise InvalidConfiguration("--suite", f"unknown suite {name!r}; known: quick, full")
    for family in families:
        _check_family(family, sizes)
    return tuple(
        task
        for family in families or sizes
        for index in range(sizes[family])
        if (task := task_named(f"{family}-{index}")) is not None
    )


def _check_family(family: str, sizes: Mapping[str, int]) -> None:
    """Refuse an unknown family, and a family that the suite does not have."""
    if family not in ALL_FAMILIES:
        known = ", ".join(ALL_FAMILIES)
        raise InvalidConfiguration("--family", f"unknown family {family!r}; known: {known}")
    if family not in sizes:
        problem = f"{family!r} is held out for publication: use --suite full"
        raise InvalidConfiguration("--family", problem)
