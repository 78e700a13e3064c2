"""The goals of the second edition, fixed before its runs: Temper beside forge, tuned and not.

One that is missed is published as missed, and one for which there are too few runs as not shown.
"""

from collections.abc import Iterator

from benchmarks.evals.thresholds import Evidence, Outcome, Promise
from temper_evals.arms import AGAIN, DIRECT, TEMPER, TUNED
from temper_evals.reply_bed import ReplyCounts
from temper_evals.report.table import points
from temper_evals.results import ArmResult, compare_runs, results_of
from temper_evals.statistics import RESAMPLES

_FORGE = "forge"
_LOWER = -0.01
_LOST, _WRONG = 0.01, 0.005  # of recorded replies that an own handler read right
_HARM = 1 / 8  # of forge's
_SECONDS, _TOKENS = 0.7, 0.6  # of forge's
_GENERATIONS = {TEMPER: 1.15, TUNED: 1.45}


def goals(evidence: Evidence) -> list[Promise]:
    """Hold every goal against the records."""
    found: list[Promise] = []
    for bed in evidence.beds("main"):
        found += _beside_forge(evidence, bed)
        found += _generations(evidence, bed)
        found += _again(evidence, bed)
    return [*found, *_over_acting(evidence)]


def _beside_forge(evidence: Evidence, bed: str) -> Iterator[Promise]:
    found = _on_same_cases(evidence, bed, TUNED)
    forge, own = found.get(_FORGE), found.get(TUNED)
    if forge is None or own is None:
        return
    title = f"{bed}: `{TUNED}` against `{_FORGE}`"
    runs = [evidence.runs("main", bed, arm) for arm in (_FORGE, TUNED)]
    lift = compare_runs(runs[0], runs[1], RESAMPLES).lift
    is_met = lift.estimate >= 0 and lift.low > _LOWER
    yield _promise(f"{title}: success", ">= 0, lower bound > -1 point", points(lift), is_met=is_met)
    if forge.against is not None and own.against is not None:
        theirs, ours = forge.against.harmed, own.against.harmed
        is_met = ours <= _HARM * theirs
        yield _promise(f"{title}: harmed", "<= 1/8", f"{ours} against {theirs}", is_met=is_met)
    for what, most, a, b in (
        ("model seconds", _SECONDS, own.cost.model_seconds, forge.cost.model_seconds),
        ("tokens", _TOKENS, _tokens(own), _tokens(forge)),
    ):
        share = a / b if b else 0.0
        yield _promise(f"{title}: {what}", f"<= {most}", f"{share:.2f}", is_met=share <= most)


def _on_same_cases(evidence: Evidence, bed: str, arm: str) -> dict[str, ArmResult]:
    """Sum up an arm, forge and the bare model on the cases that the arm has run."""
    cases = {one.pair for one in evidence.runs("main", bed, arm)}
    names = (DIRECT, _FORGE, arm)
    runs = (run for name in names for run in evidence.runs("main", bed, name))
    return {one.arm: one for one in results_of(run for run in runs if run.pair in cases)}


def _generations(evidence: Evidence, bed: str) -> Iterator[Promise]:
    for arm, most in _GENERATIONS.items():
        if (one := evidence.find("main", bed, arm)) is not None:
            rate = one.cost.generations_per_request
            title = f"{bed}, `{arm}`: generations a request"
            yield _promise(title, f"<= {most}", f"{rate:.2f}", is_met=round(rate, 2) <= most)


def _again(evidence: Evidence, bed: str) -> Iterator[Promise]:
    """Hold two arms that are the same against each other."""
    runs = [evidence.runs("main", bed, arm) for arm in (TEMPER, AGAIN)]
    if all(runs):
        both = compare_runs(runs[0], runs[1], RESAMPLES)
        measured = f"{both.helped + both.harmed} of {both.pairs} differ"
        is_met = both.helped + both.harmed == 0
        yield _promise(f"{bed}: the same twice (A/A)", "no run differs", measured, is_met=is_met)


def _over_acting(evidence: Evidence) -> Iterator[Promise]:
    """Where a model acts again in a tenth of the questions, tuning is not to do harm."""
    for bed in evidence.beds("over-acting"):
        if bed.endswith("over_acting=0.1"):
            runs = [evidence.runs("over-acting", bed, arm) for arm in (TEMPER, TUNED)]
            verdicts = evidence.verdicts.get(bed, ())
            told = "; ".join(verdicts) or "not tuned"
            is_off = bool(verdicts) and not any(
                one.startswith("close_out") and one.endswith(": on") for one in verdicts
            )
            outcome = Outcome.MET if is_off else Outcome.MISSED
            outcome = outcome if verdicts else Outcome.NOT_SHOWN
            yield Promise(f"{bed}: close_out left off", "by `tune` itself", told, outcome)
            if all(runs):
                measured = points(compare_runs(runs[0], runs[1], RESAMPLES).lift)
                yield Promise(f"{bed}: tuned - defaults", "reported", measured, Outcome.REPORTED)


def reply_goals(category: str, one: ReplyCounts) -> list[Promise]:
    """Hold what became of the recorded replies of a category against its goals."""
    if one.needless or not (one.lost or one.asked or one.wrong or one.right < one.count):
        measured, mark = f"{one.needless} needless of {one.count}", Outcome.REPORTED
        return [Promise(f"replies, {category}", "reported", measured, mark)]
    read, count = one.right + one.asked, max(1, one.count)
    return [
        _promise(
            f"replies, {category}: right or asked again",
            ">= own handlers",
            f"{read} against {one.own} of {one.count}",
            is_met=read >= one.own,
        ),
        _promise(
            f"replies, {category}: lost in silence",
            "<= 1 %",
            f"{one.lost} of {one.count}",
            is_met=one.lost / count <= _LOST,
        ),
        _promise(
            f"replies, {category}: wrong",
            "<= 0.5 %",
            f"{one.wrong} of {one.count}",
            is_met=one.wrong / count <= _WRONG,
        ),
    ]


def _tokens(one: ArmResult) -> float:
    return one.cost.prompt + one.cost.generated


def _promise(endpoint: str, threshold: str, measured: str, *, is_met: bool) -> Promise:
    return Promise(endpoint, threshold, measured, Outcome.MET if is_met else Outcome.MISSED)


def beside_forge(evidence: Evidence) -> list[tuple[str, ...]]:
    """Write the rows of the first table: forge against Temper, on every bed."""
    return [
        row
        for bed in evidence.beds("main")
        for arm in (TEMPER, TUNED, "forge-respond")
        if (row := _row(evidence, bed, arm))
    ]


def _row(evidence: Evidence, bed: str, arm: str) -> tuple[str, ...]:
    found = _on_same_cases(evidence, bed, arm)
    forge, own, direct = found.get(_FORGE), found.get(arm), found.get(DIRECT)
    if forge is None or own is None or forge.against is None or own.against is None:
        return ()
    runs = [evidence.runs("main", bed, one) for one in (_FORGE, arm)]
    return (
        bed,
        f"`{arm}`",
        "" if direct is None else f"{100 * direct.success.estimate:.1f}",
        f"{100 * forge.success.estimate:.1f}",
        f"{100 * own.success.estimate:.1f}",
        points(compare_runs(runs[0], runs[1], RESAMPLES).lift),
        f"{forge.against.harmed}",
        f"{own.against.harmed}",
        f"{own.cost.model_seconds / forge.cost.model_seconds:.2f}",
        f"{_tokens(own) / _tokens(forge):.2f}",
        f"{own.cost.generations_per_request:.2f}",
    )


ROW_HEADINGS = (
    *("bed", "arm", "direct", "forge", "arm, right %", "arm - forge (95 %)", "forge harmed"),
    *("arm harmed", "model s / forge's", "tokens / forge's", "gen./request"),
)
