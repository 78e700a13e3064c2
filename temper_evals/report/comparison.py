"""Compares the arms of two evaluations on the cases that both evaluations ran."""

from dataclasses import dataclass
from pathlib import Path

from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from temper_evals.records import RunRecord, read_protocol, read_runs
from temper_evals.report.table import points
from temper_evals.results import Paired, compare_runs
from temper_evals.statistics import RESAMPLES

_SIGNIFICANT = 0.05


@dataclass(frozen=True, slots=True)
class ArmChange:
    """The change of an arm from one evaluation to the next."""

    bed: str
    arm: str
    paired: Paired

    @property
    def is_worse(self) -> bool:
        """True if the arm is significantly worse."""
        return self.paired.harmed > self.paired.helped and self.paired.p < _SIGNIFICANT

    def sentence(self) -> str:
        paired = self.paired
        word = "WORSE" if self.is_worse else "not worse"
        return (
            f"{self.bed} {self.arm}: {points(paired.lift)} points in {paired.pairs} pairs, "
            f"{paired.helped} better, {paired.harmed} worse, p = {paired.p:.3f}: {word}"
        )

    def document(self) -> JsonObject:
        paired = self.paired
        return {
            "bed": self.bed,
            "arm": self.arm,
            "pairs": paired.pairs,
            "lift": [paired.lift.estimate, paired.lift.low, paired.lift.high],
            "helped": paired.helped,
            "harmed": paired.harmed,
            "p": paired.p,
            "worse": self.is_worse,
        }


def compare_folders(before: Path, after: Path) -> list[ArmChange]:
    """Compare two folders; raises InvalidConfiguration if their protocols differ."""
    hashes = [read_protocol(folder).get("hash") for folder in (before, after)]
    if hashes[0] != hashes[1]:
        problem = f"{before} and {after} were made by different protocols: run both again"
        raise InvalidConfiguration("temper eval compare", problem)
    old, new = _by_arm(before), _by_arm(after)
    both = [key for key in old if key in new]
    if not both:
        problem = f"{before} and {after} have no bed and arm in common"
        raise InvalidConfiguration("temper eval compare", problem)
    return [ArmChange(*key, compare_runs(old[key], new[key], RESAMPLES)) for key in both]


def _by_arm(folder: Path) -> dict[tuple[str, str], list[RunRecord]]:
    arms: dict[tuple[str, str], list[RunRecord]] = {}
    for run in read_runs(folder):
        arms.setdefault((run.bed, run.arm), []).append(run)
    return arms
