"""Which scenarios there are: families by name, and the suites made of them."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from proxy.errors import InvalidConfiguration
from proxy.evals.scenarios import calling, ordering, restraint, stepping
from proxy.evals.scenarios.task import Task

FAMILIES: Mapping[str, Callable[[int], Task]] = {
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
RESTRAINT = ("none", "ask", "trap")
# `long` takes as many replies as all others together
QUICK = {**dict.fromkeys(FAMILIES, 4), "single": 6, "choose": 6, "chain": 6, "long": 1, "trap": 6}
FULL = {**dict.fromkeys(FAMILIES, 25), "long": 5}


@lru_cache(maxsize=4096)
def task_named(name: str) -> Task | None:
    """Make the task of a name such as `chain-3`; None if there is no such family."""
    family, _, number = name.rpartition("-")
    if family not in FAMILIES or not number.isdecimal():
        return None
    return FAMILIES[family](int(number))


def suite(name: str, families: Sequence[str] = ()) -> tuple[Task, ...]:
    """Return the tasks of a suite, of these families alone where any are named."""
    sizes = {"quick": QUICK, "full": FULL}.get(name)
    if sizes is None:
        raise InvalidConfiguration("--suite", f"there is no suite {name!r}: quick, or full")
    if unknown := [one for one in families if one not in FAMILIES]:
        known = ", ".join(FAMILIES)
        raise InvalidConfiguration("--family", f"there is no {unknown[0]!r}; known: {known}")
    chosen = families or FAMILIES
    return tuple(
        task
        for family in chosen
        for index in range(sizes[family])
        if (task := task_named(f"{family}-{index}")) is not None
    )
