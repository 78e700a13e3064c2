"""The promises of the first edition of docs/evidence.md, made before any measurement.

A missed threshold is published as missed, and a threshold with too few runs as not shown.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from temper_evals.arms import CEILING, DIRECT, TEMPER
from temper_evals.records import RunRecord
from temper_evals.report.table import points
from temper_evals.results import (
    ArmResult,
    compare_runs,
    cost_of,
    harm_where_restraint_counts,
    results_of,
)
from temper_evals.statistics import RESAMPLES

# the least lift over `direct`; the least share of the gap to the ceiling, and its least lower bound
_LIFT, _GAP, _GAP_BOUND = 0.15, 0.9, 0.85
# the highest shares of harmed runs, overall and in one family; the least number of runs of traps
_HARM, _HARM_IN_FAMILY, _TRAPS = 0.005, 0.01, 2_000
# the most seconds by which the first text may be later; the most cached share that may be lost
_LATER_SECONDS, _CACHED = 0.010, 0.02


class Outcome(Enum):
    """The result of a promise; the value is the text on the page."""

    MET = "met"
    MISSED = "**missed**"
    NOT_SHOWN = "not shown"
    REPORTED = ""


@dataclass(frozen=True, slots=True)
class Promise:
    """A promise about a measured value (`endpoint`): its threshold, the value, and the outcome."""

    endpoint: str
    threshold: str
    measured: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Evidence:
    """The records of all parts with their results, and the verdicts of tuning by model setup."""

    parts: Mapping[str, Sequence[RunRecord]]
    results: Mapping[str, Sequence[ArmResult]]
    verdicts: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def find(self, part: str, bed: str, arm: str) -> ArmResult | None:
        """Return an arm's results; None if it was not run."""
        matches = (
            result
            for result in self.results.get(part, ())
            if (result.bed, result.arm) == (bed, arm)
        )
        return next(matches, None)

    def runs(self, part: str, bed: str, arm: str) -> list[RunRecord]:
        return [run for run in self.parts.get(part, ()) if (run.bed, run.arm) == (bed, arm)]

    def beds(self, part: str) -> list[str]:
        return list(dict.fromkeys(result.bed for result in self.results.get(part, ())))


def evidence_of(
    parts: Mapping[str, Sequence[RunRecord]], verdicts: Mapping[str, Sequence[str]] | None = None
) -> Evidence:
    results = {name: results_of(runs) for name, runs in parts.items()}
    return Evidence(parts, results, verdicts or {})


def promises(evidence: Evidence) -> list[Promise]:
    """Check every threshold against the records."""
    judges: tuple[Callable[[Evidence], list[Promise]], ...] = (
        _controls,
        _lifts,
        _over_others,
        _grid,
        _harm,
        _traps,
        _costs,
    )
    return [promise for judge in judges for promise in judge(evidence)]


def judged(endpoint: str, threshold: str, measured: str, *, is_met: bool) -> Promise:
    """Return a promise that is met or missed."""
    return Promise(endpoint, threshold, measured, Outcome.MET if is_met else Outcome.MISSED)


def _controls(evidence: Evidence) -> list[Promise]:
    promises: list[Promise] = []
    for bed, arm in (("healthy", TEMPER), ("healthy", "temper-off"), ("values-only", TEMPER)):
        runs = [run for run in evidence.runs("controls", bed, arm) if run.family != "long"]
        direct = {run.pair: run.digest for run in evidence.runs("controls", bed, DIRECT)}
        same = sum(direct.get(run.pair) == run.digest for run in runs)
        result = evidence.find("controls", bed, arm)
        if result is None or result.against is None:
            continue
        rate = cost_of(runs).generations_per_request
        is_met = same == len(runs) and result.against.harmed == 0 and round(rate, 2) <= 1
        measured = f"{same} of {len(runs)} the same, {rate:.2f}, harm {result.against.harmed}"
        promised = "byte-equal to direct but for what does not fit the window, 1.00, harm 0"
        if bed == "values-only":
            is_met = result.against.lift.estimate == 0
            promised, measured = "lift 0", points(result.against.lift)
        promises.append(judged(f"{bed}, `{arm}`", promised, measured, is_met=is_met))
    return promises


def _lifts(evidence: Evidence) -> list[Promise]:
    promises: list[Promise] = []
    small = evidence.find("main", "p-small", TEMPER)
    if small is not None and small.against is not None and small.gap is not None:
        lift, gap = small.against.lift, small.gap
        is_met = lift.estimate >= _LIFT and gap.estimate >= _GAP and gap.low >= _GAP_BOUND
        measured = f"{points(lift)}; {100 * gap.estimate:.0f} % of the gap"
        promised = ">= 15 points over direct; >= 90 % of the gap (lower bound 85)"
        promises.append(judged("p-small", promised, measured, is_met=is_met))
    native = evidence.find("main", "n-8b", TEMPER)
    urged = evidence.runs("main", "n-8b", "direct-urged")
    if native is not None and native.gap is not None and urged:
        lift = compare_runs(urged, evidence.runs("main", "n-8b", TEMPER), RESAMPLES).lift
        is_met = lift.estimate >= 0.05 and native.gap.estimate >= 0.8
        measured = f"{points(lift)}; {100 * native.gap.estimate:.0f} % of the gap"
        promised = ">= 5 points over direct-urged; >= 80 % of the gap"
        promises.append(judged("n-8b", promised, measured, is_met=is_met))
    temper, best = (evidence.find("main", "mismatch", arm) for arm in (TEMPER, CEILING))
    if temper is not None and best is not None and best.right:
        share = temper.right / best.right
        promised, measured = ">= 95 % of the ceiling", f"{100 * share:.1f} %"
        is_met = share >= 0.95
        promises.append(judged("mismatch", promised, measured, is_met=is_met))
    return promises


def _over_others(evidence: Evidence) -> list[Promise]:
    promises: list[Promise] = []
    for bed in evidence.beds("main"):
        rival, temper = (evidence.find("main", bed, arm) for arm in ("forge-respond", TEMPER))
        if rival is None or temper is None:
            continue
        runs = [evidence.runs("main", bed, arm) for arm in ("forge-respond", TEMPER)]
        lift = compare_runs(runs[0], runs[1], RESAMPLES).lift
        generations = temper.cost.generations / max(rival.cost.generations, 1e-9)
        later = temper.cost.text_p50 / max(rival.cost.text_p50, 1e-9)
        leads = lift.estimate >= 0.05 if bed in ("p-small", "mismatch") else lift.low > -0.01
        is_met = leads and generations <= 1 / 2 and later <= 1 / 3
        bound = ">= +5 points" if bed in ("p-small", "mismatch") else "lower bound > -1 point"
        promises.append(
            judged(
                f"{bed}: over forge-respond",
                f"{bound}; <= 1/2 of its generations; <= 1/3 of its time to the first text",
                f"{points(lift)}; {generations:.2f}; {later:.2f}",
                is_met=is_met,
            )
        )
    return promises


def _grid(evidence: Evidence) -> list[Promise]:
    cells = [result for result in evidence.results.get("grid", ()) if result.arm == TEMPER]
    lifts = {cell.bed: cell.against.lift for cell in cells if cell.against is not None}
    if not lifts:
        return []
    worst = min(lifts, key=lambda bed: lifts[bed].low)
    measured = f"worst of {len(lifts)}: {worst}, {points(lifts[worst])}"
    is_met = lifts[worst].low > -0.01
    promised = "lower bound of temper - direct > -1 point in every cell"
    return [judged("whole grid", promised, measured, is_met=is_met)]


def _harm(evidence: Evidence) -> list[Promise]:
    promises: list[Promise] = []
    for bed in evidence.beds("main"):
        result = evidence.find("main", bed, TEMPER)
        if result is None or result.against is None:
            continue
        against, direct = result.against, evidence.find("main", bed, DIRECT)
        bound = against.harm_bound
        shown = Outcome.NOT_SHOWN if against.harmed == 0 else Outcome.MISSED
        outcome = Outcome.MET if bound <= _HARM else shown
        measured = f"{against.harmed} of {against.right_before}: below {100 * bound:.1f} %"
        promises.append(Promise(f"{bed}: harm", "upper bound <= 0.5 %", measured, outcome))
        if direct is not None:
            is_met = result.damage <= direct.damage
            measured = f"{result.damage} against {direct.damage}"
            promises.append(judged(f"{bed}: damage", "<= direct", measured, is_met=is_met))
    return promises


def _traps(evidence: Evidence) -> list[Promise]:
    promises: list[Promise] = []
    traps = evidence.runs("traps", "p-small", TEMPER)
    if traps:
        promoted = sum(trap.promoted for trap in traps)
        is_enough = len(traps) >= _TRAPS
        outcome = Outcome.MISSED if promoted else Outcome.MET if is_enough else Outcome.NOT_SHOWN
        measured = f"{promoted} in {len(traps)}"
        promised = "0 false promotions in >= 2,000 traps"
        promises.append(Promise("p-small: traps", promised, measured, outcome))
    for part in ("traps", "restraint"):
        counted = harm_where_restraint_counts(evidence.parts.get(part, ()), "p-small", TEMPER)
        for family, (harmed, of) in counted.items():
            if of:
                is_met = harmed / of <= _HARM_IN_FAMILY
                promised, measured = "<= 1 %", f"{harmed} of {of}"
                title = f"p-small: harm in `{family}`"
                promises.append(judged(title, promised, measured, is_met=is_met))
    return promises


def _costs(evidence: Evidence) -> list[Promise]:
    promises: list[Promise] = []
    for bed, most in (("n-8b", 1.25), ("p-small", 1.6)):
        temper, direct = (evidence.find("main", bed, arm) for arm in (TEMPER, DIRECT))
        if temper is None or direct is None:
            continue
        later = temper.cost.text_p50 - direct.cost.text_p50
        rate, cached = temper.cost.generations_per_request, temper.cost.cached_share
        is_met = rate <= most and cached >= direct.cost.cached_share - _CACHED
        is_met = is_met and later <= _LATER_SECONDS
        promises.append(
            judged(
                f"{bed}: cost",
                f"<= {most} generations per request; first text <= +10 ms; "
                "cached share >= -2 points",
                f"{rate:.2f}; {1000 * later:+.1f} ms; "
                f"{100 * (cached - direct.cost.cached_share):+.1f} points",
                is_met=is_met,
            )
        )
    return promises
