"""Makes the runs that the page of evidence is written of; what is there already is kept."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.evals.proxies import peer_arms
from temper_evals.arms import CEILING, DIRECT, PARTS, TEMPER
from temper_evals.evaluation import EvaluationChoice, evaluate
from temper_evals.runs import ArmProgress
from temper_evals.scenarios.suite import FAMILIES

_BEDS = ("p-small", "n-8b", "mismatch", "n-30b", "q4", "n-8b-lazy")
_CONTROLS = ("healthy", "values-only")
_OWN = (
    *(DIRECT, "direct-urged", "direct-required", TEMPER, "temper-accept", "temper-respond"),
    *("temper-off", CEILING),
)
_ALL_BUT_LONG = tuple(one for one in FAMILIES if one != "long")


@dataclass(frozen=True, slots=True)
class Size:
    """How much is run: the suite, its seeds, those of traps and restraint, on how many beds."""

    suite: str
    seeds: int
    trap_seeds: int
    restraint_seeds: int
    beds: int


# about an hour on two cores, and most of a day
SIZES = {"small": Size("full", 1, 24, 4, 4), "full": Size("full", 5, 24, 24, len(_BEDS))}


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the evidence, in a folder of its own."""

    name: str
    choice: EvaluationChoice


def parts_of(peers: Path, size: Size) -> tuple[Part, ...]:
    """Return the parts: all arms, controls, traps, restraint, parts left out, and the grid."""
    others = peer_arms(peers)
    # this one changes nothing, and an arm of it takes as long as five of the others
    quick_others = tuple(one for one in others if one != "litellm")
    base = EvaluationChoice(suite=size.suite, seeds=size.seeds, pace=0.0, extra_arms=others)
    small = replace(base, suite="quick", seeds=1, profiles=("p-small",))
    without = tuple(f"temper-without-{part}" for part in PARTS)
    named = {
        "main": replace(base, profiles=_BEDS[: size.beds], arms=(*_OWN, *quick_others)),
        "controls": replace(
            small,
            profiles=_CONTROLS,
            arms=(DIRECT, TEMPER, "temper-off", "temper-observe", *others, CEILING),
        ),
        "traps": replace(
            base,
            seeds=size.trap_seeds,
            profiles=("p-small",),
            families=("trap",),
            arms=(DIRECT, TEMPER, CEILING),
        ),
        "restraint": replace(
            base,
            seeds=size.restraint_seeds,
            profiles=("p-small",),
            families=("none", "ask"),
            arms=(DIRECT, TEMPER, "temper-respond", *quick_others, CEILING),
        ),
        "without": replace(
            small, seeds=size.seeds, families=_ALL_BUT_LONG, arms=(DIRECT, TEMPER, *without)
        ),
        "grid": replace(small, families=_ALL_BUT_LONG, arms=(DIRECT, TEMPER), has_grid=True),
    }
    return tuple(Part(name, choice) for name, choice in named.items())


def publish(part: Part, folder: Path, tell: Callable[[str], None]) -> None:
    """Make the runs of a part that the folder lacks."""

    def on_progress(progress: ArmProgress) -> None:
        if progress.done == progress.of:
            tell(f"{part.name}: {progress.bed} {progress.arm} {progress.right}/{progress.done}")

    asyncio.run(evaluate(part.choice, folder / part.name, on_progress))
