"""Summarizes the records by arm: success, cost, and runs helped or harmed against `direct`."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from temper_evals.arms import CEILING, DIRECT, OBSERVED
from temper_evals.records import RunRecord
from temper_evals.scenarios.suite import RESTRAINT
from temper_evals.simulated.profiles import AFTER_RESULTS, OF_FORM, Flaw
from temper_evals.statistics import (
    RESAMPLES,
    Interval,
    Strata,
    difference,
    mcnemar,
    mean,
    percentile,
    upper_bound,
    wilson,
)

_VISIBLE = frozenset(
    flaw.value for flaw in (*OF_FORM, *AFTER_RESULTS, Flaw.FOREIGN, Flaw.REPEATED, Flaw.QUOTED)
)


@dataclass(frozen=True, slots=True)
class Paired:
    """The comparison of two arms, `before` and `after`, on the cases that both ran.

    `lift` is the mean difference in success, and `p` is the p-value of McNemar's test. With 95 %
    confidence, the share of harmed runs among the runs that were right before is below
    `harm_bound`.
    """

    pairs: int
    lift: Interval
    helped: int
    harmed: int
    right_before: int
    p: float
    harm_bound: float
    harms: tuple[RunRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Cost:
    """The average cost of a run.

    `text_*` and `call_*` are percentiles of the seconds to the first text and to the first call,
    measured by the client.
    """

    generations_per_request: float
    generations: float
    prompt: float
    generated: float
    cached_share: float
    model_seconds: float
    seconds: float
    text_p50: float
    text_p95: float
    call_p50: float
    call_p95: float
    wasted: float


@dataclass(frozen=True, slots=True)
class ArmResult:
    """The results of an arm on a setup (`bed`).

    `completed` counts the runs that ended with an answer, and `same_bytes` counts the runs whose
    replies are identical to those of `direct`. `reach` is the share of requests with a repair or a
    retry. `against` is the comparison with `direct`. `gap` is the part of the gap from `direct` to
    the ceiling that the arm closes. `steady` is the share of scenarios that are right with every
    seed.
    """

    bed: str
    arm: str
    runs: int
    success: Interval
    completed: int
    right: int
    damage: int
    promoted: int
    cost: Cost
    reach: float | None
    same_bytes: int
    against: Paired | None
    gap: Interval | None
    families: Mapping[str, tuple[int, int]]
    steady: float


def results_of(runs: Iterable[RunRecord], resamples: int = RESAMPLES) -> list[ArmResult]:
    """Summarize the records by setup and arm, in the order of their first records."""
    arms: dict[tuple[str, str], list[RunRecord]] = defaultdict(list)
    for run in runs:
        arms[run.bed, run.arm].append(run)
    return [_result(arms, bed, arm, resamples) for bed, arm in arms]


def _result(
    arms: Mapping[tuple[str, str], list[RunRecord]], bed: str, arm: str, resamples: int
) -> ArmResult:
    runs, direct = arms[bed, arm], arms.get((bed, DIRECT), [])
    ceiling = arms.get((bed, CEILING), [])
    has_other = bool(direct) and arm != DIRECT
    right = sum(run.right for run in runs)
    outcomes = [outcome for run in runs for outcome in run.outcomes]
    return ArmResult(
        bed,
        arm,
        len(runs),
        wilson(right, len(runs)),
        sum(run.ending == "answered" for run in runs),
        right,
        sum(run.damage for run in runs),
        sum(run.promoted for run in runs),
        cost_of(runs),
        sum(outcome != "clean" for outcome in outcomes) / len(outcomes) if outcomes else None,
        _same_bytes(runs, direct),
        compare_runs(direct, runs, resamples) if has_other else None,
        _gap(direct, runs, ceiling, resamples) if has_other and ceiling else None,
        families_of(runs),
        _steady(runs),
    )


def compare_runs(before: Sequence[RunRecord], after: Sequence[RunRecord], resamples: int) -> Paired:
    """Compare two arms on the cases that both ran."""
    pairs = _pairs(before, after)
    helped = sum(second.right and not first.right for first, second in pairs)
    harms = tuple(second for first, second in pairs if first.right and not second.right)
    right_before = sum(first.right for first, _ in pairs)
    return Paired(
        len(pairs),
        difference(strata_of(pairs), resamples),
        helped,
        len(harms),
        right_before,
        mcnemar(helped, len(harms)),
        upper_bound(len(harms), right_before),
        harms,
    )


def _pairs(
    before: Sequence[RunRecord], after: Sequence[RunRecord]
) -> list[tuple[RunRecord, RunRecord]]:
    first = {run.pair: run for run in before}
    return [(first[run.pair], run) for run in after if run.pair in first]


def strata_of(pairs: Iterable[tuple[RunRecord, RunRecord]]) -> Strata:
    """Return a list for each family: the mean difference in success of each scenario."""
    seeds: dict[tuple[str, str], list[float]] = defaultdict(list)
    for first, second in pairs:
        seeds[first.family, first.scenario].append(float(second.right) - float(first.right))
    strata: dict[str, list[float]] = defaultdict(list)
    for (family, _), values in seeds.items():
        strata[family].append(sum(values) / len(values))
    return strata


def _gap(
    direct: Sequence[RunRecord],
    runs: Sequence[RunRecord],
    ceiling: Sequence[RunRecord],
    resamples: int,
) -> Interval | None:
    """Return the part of the gap from direct to the ceiling that an arm closes.

    The interval covers only the uncertainty of the remaining gap; the width of the whole gap is
    treated as exact.
    """
    width = mean(_between(direct, ceiling))
    if width <= 0:
        return None
    remaining = difference(_between(ceiling, runs), resamples)
    edges = (remaining.estimate, remaining.low, remaining.high)
    return Interval(*(1 + edge / width for edge in edges))


def _between(before: Sequence[RunRecord], after: Sequence[RunRecord]) -> Strata:
    return strata_of(_pairs(before, after))


def cost_of(runs: Sequence[RunRecord]) -> Cost:
    count, requests = max(1, len(runs)), max(1, sum(run.requests for run in runs))
    prompt = sum(run.prompt for run in runs)
    texts = [second for run in runs for second in run.text_seconds]
    calls = [second for run in runs for second in run.call_seconds]
    return Cost(
        sum(run.generations for run in runs) / requests,
        sum(run.generations for run in runs) / count,
        prompt / count,
        sum(run.generated for run in runs) / count,
        sum(run.cached for run in runs) / prompt if prompt else 0.0,
        sum(run.model_seconds for run in runs) / count,
        sum(run.seconds for run in runs) / count,
        percentile(texts, 0.5),
        percentile(texts, 0.95),
        percentile(calls, 0.5),
        percentile(calls, 0.95),
        sum(run.wasted for run in runs) / count,
    )


def _same_bytes(runs: Sequence[RunRecord], direct: Sequence[RunRecord]) -> int:
    digests = {run.pair: run.digest for run in direct}
    return sum(digests.get(run.pair) == run.digest for run in runs)


def families_of(runs: Iterable[RunRecord]) -> dict[str, tuple[int, int]]:
    """Return the number of right runs and of all runs in each family."""
    families: dict[str, tuple[int, int]] = {}
    for run in runs:
        right, of = families.get(run.family, (0, 0))
        families[run.family] = right + run.right, of + 1
    return families


def _steady(runs: Iterable[RunRecord]) -> float:
    """Return the share of scenarios whose runs are right with every seed."""
    seeds: dict[str, list[bool]] = defaultdict(list)
    for run in runs:
        seeds[run.scenario].append(run.right)
    return sum(map(all, seeds.values())) / len(seeds) if seeds else 0.0


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The highest possible shares of right runs; None where unknown.

    `perfect` is the success of a model without any error that a proxy could see or prevent.
    `detectable` is the share of runs that are right without help or have a visibly wrong reply.
    Prose in place of a call, a needless call and a wrong value are not visibly wrong.
    """

    perfect: float | None
    detectable: float | None


def ceilings_of(bed: str, runs: Iterable[RunRecord]) -> Ceilings:
    """Return the ceilings of a model setup (`bed`).

    Simulated models label their errors. For other models, the arm `temper-observe` reports the
    replies that Temper would not have accepted, and forwards them unchanged.
    """
    arms: dict[str, list[RunRecord]] = defaultdict(list)
    for run in runs:
        if run.bed == bed:
            arms[run.arm].append(run)
    best, direct, observed = arms[CEILING], arms[DIRECT], arms[OBSERVED]
    has_labels = any(run.flaws for run in direct)
    has_detectable_error = _has_visible_flaw if has_labels else _was_rejected
    labeled = direct if has_labels else observed
    detectable = sum(run.right or has_detectable_error(run) for run in labeled)
    return Ceilings(
        sum(run.right for run in best) / len(best) if best else None,
        detectable / len(labeled) if labeled else None,
    )


def _has_visible_flaw(run: RunRecord) -> bool:
    return any(flaw in _VISIBLE for flaw in run.flaws)


def _was_rejected(run: RunRecord) -> bool:
    return any(outcome != "clean" for outcome in run.outcomes)


def harm_where_restraint_counts(
    runs: Sequence[RunRecord], bed: str, arm: str
) -> dict[str, tuple[int, int]]:
    """Return (harmed runs, runs that were right in `direct`) for each family of `RESTRAINT`."""
    direct = {run.pair: run for run in runs if (run.bed, run.arm) == (bed, DIRECT)}
    counts: dict[str, tuple[int, int]] = {}
    for family in RESTRAINT:
        runs_of_arm = [run for run in runs if (run.bed, run.arm, run.family) == (bed, arm, family)]
        were_right = [run for run in runs_of_arm if run.pair in direct and direct[run.pair].right]
        counts[family] = sum(not run.right for run in were_right), len(were_right)
    return counts
