"""The goals for Temper and forge in the second edition of docs/evidence.md, fixed before its runs.

A missed goal is published as missed, and a goal with too few runs as not shown.
"""

from collections.abc import Iterator

from benchmarks.evals.thresholds import Evidence, Outcome, Promise, judged
from temper_evals.arms import AGAIN, DIRECT, TEMPER, TUNED
from temper_evals.reply_bed import ReplyCounts
from temper_evals.report.table import points
from temper_evals.results import ArmResult, compare_runs, results_of
from temper_evals.statistics import RESAMPLES

_FORGE = "forge"
_LOWER = -0.01
_LOST, _WRONG = 0.01, 0.005  # shares of the recorded replies
_HARM = 1 / 8  # relative to forge
_SECONDS, _TOKENS = 0.7, 0.6  # relative to forge
_GENERATIONS = {TEMPER: 1.15, TUNED: 1.45}


def goals(evidence: Evidence) -> list[Promise]:
    """Check every goal against the records."""
    promises: list[Promise] = []
    for bed in evidence.beds("main"):
        promises += _beside_forge(evidence, bed)
        promises += _generations(evidence, bed)
        promises += _again(evidence, bed)
    return [*promises, *_over_acting(evidence)]


def _beside_forge(evidence: Evidence, bed: str) -> Iterator[Promise]:
    results = _on_same_cases(evidence, bed, TUNED)
    forge, tuned = results.get(_FORGE), results.get(TUNED)
    if forge is None or tuned is None:
        return
    title = f"{bed}: `{TUNED}` against `{_FORGE}`"
    runs = [evidence.runs("main", bed, arm) for arm in (_FORGE, TUNED)]
    lift = compare_runs(runs[0], runs[1], RESAMPLES).lift
    is_met = lift.estimate >= 0 and lift.low > _LOWER
    yield judged(f"{title}: success", ">= 0, lower bound > -1 point", points(lift), is_met=is_met)
    if forge.against is not None and tuned.against is not None:
        by_forge, by_temper = forge.against.harmed, tuned.against.harmed
        is_met = by_temper <= _HARM * by_forge
        measured = f"{by_temper} against {by_forge}"
        yield judged(f"{title}: harmed", "<= 1/8", measured, is_met=is_met)
    for what, most, a, b in (
        ("model seconds", _SECONDS, tuned.cost.model_seconds, forge.cost.model_seconds),
        ("tokens", _TOKENS, _tokens(tuned), _tokens(forge)),
    ):
        share = a / b if b else 0.0
        yield judged(f"{title}: {what}", f"<= {most}", f"{share:.2f}", is_met=share <= most)


def _on_same_cases(evidence: Evidence, bed: str, arm: str) -> dict[str, ArmResult]:
    """Return the results of an arm, forge and `direct` on the cases that the arm has run."""
    cases = {run.pair for run in evidence.runs("main", bed, arm)}
    names = (DIRECT, _FORGE, arm)
    runs = (run for name in names for run in evidence.runs("main", bed, name))
    return {result.arm: result for result in results_of(run for run in runs if run.pair in cases)}


def _generations(evidence: Evidence, bed: str) -> Iterator[Promise]:
    for arm, most in _GENERATIONS.items():
        if (result := evidence.find("main", bed, arm)) is not None:
            rate = result.cost.generations_per_request
            title = f"{bed}, `{arm}`: generations per request"
            yield judged(title, f"<= {most}", f"{rate:.2f}", is_met=round(rate, 2) <= most)


def _again(evidence: Evidence, bed: str) -> Iterator[Promise]:
    """Compare two identical arms (an A/A test)."""
    runs = [evidence.runs("main", bed, arm) for arm in (TEMPER, AGAIN)]
    if all(runs):
        both = compare_runs(runs[0], runs[1], RESAMPLES)
        measured = f"{both.helped + both.harmed} of {both.pairs} differ"
        is_met = both.helped + both.harmed == 0
        yield judged(f"{bed}: the same twice (A/A)", "no run differs", measured, is_met=is_met)


def _over_acting(evidence: Evidence) -> Iterator[Promise]:
    """Check that tuning turns off close-out checks if the model calls a tool in 10 % of them."""
    for bed in evidence.beds("over-acting"):
        if bed.endswith("over_acting=0.1"):
            runs = [evidence.runs("over-acting", bed, arm) for arm in (TEMPER, TUNED)]
            verdicts = evidence.verdicts.get(bed, ())
            tuning = "; ".join(verdicts) or "not tuned"
            is_off = bool(verdicts) and not any(
                verdict.startswith("close_out") and verdict.endswith(": on") for verdict in verdicts
            )
            outcome = Outcome.MET if is_off else Outcome.MISSED
            outcome = outcome if verdicts else Outcome.NOT_SHOWN
            yield Promise(f"{bed}: close_out left off", "by `tune` itself", tuning, outcome)
            if all(runs):
                measured = points(compare_runs(runs[0], runs[1], RESAMPLES).lift)
                yield Promise(f"{bed}: tuned - defaults", "reported", measured, Outcome.REPORTED)


def reply_goals(category: str, counts: ReplyCounts) -> list[Promise]:
    """Compare the results of a category of recorded replies with its goals."""
    if counts.needless or not (
        counts.lost or counts.retried or counts.wrong or counts.right < counts.count
    ):
        measured = f"{counts.needless} needless of {counts.count}"
        return [Promise(f"replies, {category}", "reported", measured, Outcome.REPORTED)]
    read, count = counts.right + counts.retried, max(1, counts.count)
    return [
        judged(
            f"replies, {category}: right or retried",
            ">= own handlers",
            f"{read} against {counts.handler_right} of {counts.count}",
            is_met=read >= counts.handler_right,
        ),
        judged(
            f"replies, {category}: lost in silence",
            "<= 1 %",
            f"{counts.lost} of {counts.count}",
            is_met=counts.lost / count <= _LOST,
        ),
        judged(
            f"replies, {category}: wrong",
            "<= 0.5 %",
            f"{counts.wrong} of {counts.count}",
            is_met=counts.wrong / count <= _WRONG,
        ),
    ]


def _tokens(result: ArmResult) -> float:
    return result.cost.prompt + result.cost.generated


def rows_beside_forge(evidence: Evidence) -> list[tuple[str, ...]]:
    """Return the rows of the first table: forge and Temper on every bed."""
    return [
        row
        for bed in evidence.beds("main")
        for arm in (TEMPER, TUNED, "forge-respond")
        if (row := _row(evidence, bed, arm))
    ]


def _row(evidence: Evidence, bed: str, arm: str) -> tuple[str, ...]:
    results = _on_same_cases(evidence, bed, arm)
    forge, other, direct = results.get(_FORGE), results.get(arm), results.get(DIRECT)
    if forge is None or other is None or forge.against is None or other.against is None:
        return ()
    runs = [evidence.runs("main", bed, name) for name in (_FORGE, arm)]
    return (
        bed,
        f"`{arm}`",
        "" if direct is None else f"{100 * direct.success.estimate:.1f}",
        f"{100 * forge.success.estimate:.1f}",
        f"{100 * other.success.estimate:.1f}",
        points(compare_runs(runs[0], runs[1], RESAMPLES).lift),
        f"{forge.against.harmed}",
        f"{other.against.harmed}",
        f"{other.cost.model_seconds / forge.cost.model_seconds:.2f}",
        f"{_tokens(other) / _tokens(forge):.2f}",
        f"{other.cost.generations_per_request:.2f}",
    )


ROW_HEADINGS = (
    *("bed", "arm", "direct", "forge", "arm, right %", "arm - forge (95 %)", "forge harmed"),
    *("arm harmed", "model s / forge's", "tokens / forge's", "gen./request"),
)
