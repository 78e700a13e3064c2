"""Makes the runs for the evidence page; existing runs are kept."""

import asyncio
import contextlib
import math
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.evals.proxies import peer_arms
from benchmarks.load.candidates import REPOSITORY
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from temper_evals.arms import AGAIN, CEILING, DIRECT, PARTS, STRUCTURAL, TEMPER, TUNED, Arm
from temper_evals.evaluation import EvaluationChoice, evaluate
from temper_evals.model_setups import simulated_setup
from temper_evals.records import Records, protocol_hash
from temper_evals.runs import ArmProgress
from temper_evals.scenarios.suite import FAMILIES, suite
from temper_evals.temper_server import temper_in_front
from temper_evals.tuning import TemperRunners, Tuning, earned_by, environment_of, halves

TUNING = "tuning"  # a folder next to the folders of the parts
COMMITS = "commit.txt"
REPLIES = "replies"  # a separate part, made by `python -m benchmarks replies`

_BEDS = ("p-small", "n-8b", "mismatch", "n-30b", "q4", "n-8b-lazy")
_CONTROLS = ("healthy", "values-only")
_SMALL_MODELS = ("coder-0.5b", "coder-1.5b")
_TEMPER_ARMS = (DIRECT, TEMPER, AGAIN, TUNED, CEILING)
_FORGES = ("forge", "forge-respond")
_ALL_BUT_LONG = tuple(name for name in FAMILIES if name != "long")
_OVER_ACTING = (0.1, 0.0, 0.03)
# "" is the default, 0.4
_RESTRAINT = ("@answer_tool_restraint=0.1", "", "@answer_tool_restraint=0.9")
# a setting that is undecided after these seeds stays off
_TUNING_SEEDS = 6


@dataclass(frozen=True, slots=True)
class Size:
    """The amount of runs: the suite, the seeds of each part, and the number of beds."""

    suite: str
    seeds: int
    trap_seeds: int
    restraint_seeds: int
    without_seeds: int
    beds: int
    has_grid: bool = False


# "small" takes one to two hours on two cores, "full" most of a day
SIZES = {
    "small": Size("full", 2, 80, 4, 6, 4),
    "full": Size("full", 5, 80, 24, 20, len(_BEDS), has_grid=True),
}


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the evidence; its records are in a separate folder."""

    name: str
    choice: EvaluationChoice


def parts_of(peers: Path, size: Size) -> tuple[Part, ...]:
    """Return the parts of the evidence.

    In the part `over-acting`, models make more calls if they get a further prompt. In the part
    `answer-tool`, an answer tool prevents some needless calls. The models of these two parts are
    cells of the grid. In the part `small-models`, models repeat calls and echo results.
    """
    others = peer_arms(peers)
    # without LiteLLM: it repairs nothing, and its arm takes as long as five other arms
    quick_others = tuple(other for other in others if other in _FORGES)
    base = EvaluationChoice(suite=size.suite, seeds=size.seeds, pace=0.0, extra_arms=others)
    small = replace(base, suite="quick", seeds=1, profiles=("p-small",))
    without = (*(f"temper-without-{part}" for part in PARTS), STRUCTURAL)
    named = {
        "main": replace(base, profiles=_BEDS[: size.beds], arms=(*_TEMPER_ARMS, *quick_others)),
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
            arms=(DIRECT, TEMPER, TUNED, CEILING),
        ),
        "over-acting": replace(
            small,
            seeds=size.seeds,
            profiles=tuple(
                f"{bed}@over_acting={rate:g}" for bed in _BEDS[:2] for rate in _OVER_ACTING
            ),
            arms=(DIRECT, TEMPER, TUNED, *quick_others[:1]),
        ),
        "restraint": replace(
            base,
            seeds=size.restraint_seeds,
            profiles=("p-small",),
            families=("none", "ask"),
            arms=(DIRECT, TEMPER, TUNED, *quick_others, CEILING),
        ),
        "without": replace(
            small, seeds=size.without_seeds, families=_ALL_BUT_LONG, arms=(DIRECT, TEMPER, *without)
        ),
        "answer-tool": replace(
            small,
            seeds=5,
            profiles=tuple(f"p-small{cell}" for cell in _RESTRAINT),
            arms=(DIRECT, TEMPER, "temper-respond"),
        ),
        "small-models": replace(
            small,
            seeds=size.seeds,
            profiles=_SMALL_MODELS,
            families=_ALL_BUT_LONG,
            arms=(DIRECT, TEMPER, *quick_others, CEILING),
        ),
        "grid": replace(small, families=_ALL_BUT_LONG, arms=(DIRECT, TEMPER), has_grid=True),
    }
    names = (name for name in named if size.has_grid or name != "grid")
    return tuple(Part(name, named[name]) for name in names)


def publish(part: Part, folder: Path, print_line: Callable[[str], None]) -> None:
    """Make the missing runs of a part: all models with one seed, then all with two, and so on.

    If the part is interrupted, it therefore has all models, but with fewer seeds.
    """

    def on_progress(progress: ArmProgress) -> None:
        if progress.done == progress.of:
            print_line(
                f"{part.name}: {progress.bed} {progress.arm} {progress.right}/{progress.done}"
            )

    note_commit(folder)

    async def run() -> None:
        # a single model runs all seeds at once, because starting the servers takes longer than the
        # runs
        first = 1 if len(part.choice.profiles) > 1 else part.choice.seeds
        for seeds in range(first, part.choice.seeds + 1):
            for profile in part.choice.profiles:
                choice = replace(part.choice, seeds=seeds, profiles=(profile,))
                if TUNED in choice.arms:
                    earned = await tune_bed(folder, profile, print_line)
                    choice = replace(choice, extra_arms={**choice.extra_arms, TUNED: _arm(earned)})
                await evaluate(choice, folder / part.name, on_progress)

    asyncio.run(run())


def note_commit(folder: Path) -> None:
    """Add the commit of this checkout to the list of commits that have made runs in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path, commit = folder / COMMITS, current_commit()
    known = path.read_text("utf-8").splitlines() if path.exists() else []
    if commit not in known:
        path.write_text("".join(f"{entry}\n" for entry in (*known, commit)), "utf-8")


def current_commit() -> str:
    """Return the commit of this checkout, followed by "with changes" if files differ from it."""
    git = ("git", "-C", str(REPOSITORY))
    try:
        head = _output(*git, "rev-parse", "HEAD")
        is_changed = _output(*git, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.CalledProcessError):
        return "no checkout"
    return head[:12] + (" with changes" if is_changed else "")


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()  # noqa: S603


async def tune_bed(folder: Path, profile: str, print_line: Callable[[str], None]) -> JsonObject:
    """Return the settings that tuning earned for a simulated model.

    The model is tuned only once, with seeds that no part of the evidence uses.
    """
    path = folder / TUNING / f"{profile}.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        cases, _ = halves(suite("full", _ALL_BUT_LONG))
        bed = simulated_setup(profile)
        records = Records(folder / TUNING / f"{profile}.runs", {"hash": protocol_hash()})
        with contextlib.closing(records):
            async with bed.open(is_ceiling=False) as target:
                runners = TemperRunners(target, bed, records)
                tuning = Tuning(runners.open, cases, math.inf, most_seeds=_TUNING_SEEDS)
                await tuning.run()
        sentences = [verdict.sentence() for verdict in tuning.verdicts]
        settings: JsonObject = {**earned_by(tuning.verdicts)}
        path.write_bytes(json.dump({"earned": settings, "verdicts": [*sentences]}))
        for sentence in sentences:
            print_line(f"tuning {profile}: {sentence}")
    document = json.parse(path.read_bytes())
    earned = document.get("earned") if isinstance(document, dict) else None
    return earned if isinstance(earned, dict) else {}


def _arm(earned: JsonObject) -> Arm:
    values = {name: settings for name, settings in earned.items() if isinstance(settings, dict)}
    environment = environment_of(values)
    return Arm(TUNED, lambda backend: temper_in_front(backend, environment))
