"""The table of all arms of all models: help, harm and cost, next to the ceiling of the model.

The records and the tables call a model with its settings a `bed`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import NamedTuple

from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.arms import CEILING
from temper_evals.loop import Ending
from temper_evals.records import RunRecord
from temper_evals.report.markdown import markdown_table
from temper_evals.results import ArmResult, Cost
from temper_evals.statistics import Interval

HEADINGS = (
    *("bed", "arm", "runs", "success", "lift (95 %)", "gap closed", "helped", "harmed"),
    *("harm below", "damage", "gen./request", "tokens/run", "model s/run", "ceiling"),
)

_USER_FAMILY, _MOST_ENDS = "own", 20


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}"


def points(interval: Interval) -> str:
    """Write a difference in percentage points with its interval."""
    low, high = 100 * interval.low, 100 * interval.high
    return f"{100 * interval.estimate:+.1f} [{low:+.1f}, {high:+.1f}]"


def rows(results: Sequence[ArmResult]) -> list[tuple[str, ...]]:
    """Return a row per arm, with the ceiling of its model, or "unknown" for a real model."""
    ceilings = {
        result.bed: percent(result.success.estimate) for result in results if result.arm == CEILING
    }
    return [_row(result, ceilings.get(result.bed, "unknown")) for result in results]


def _row(result: ArmResult, ceiling: str) -> tuple[str, ...]:
    against = result.against
    return (
        result.bed,
        result.arm,
        str(result.runs),
        percent(result.success.estimate),
        "" if against is None else points(against.lift),
        "" if result.gap is None else f"{percent(result.gap.estimate, 0)} %",
        "" if against is None else str(against.helped),
        "" if against is None else str(against.harmed),
        "" if against is None else f"{percent(against.harm_bound)} %",
        str(result.damage),
        f"{result.cost.generations_per_request:.2f}",
        f"{result.cost.prompt + result.cost.generated:.0f}",
        f"{result.cost.model_seconds:.1f}",
        ceiling,
    )


def failures(runs: Iterable[RunRecord]) -> list[str]:
    """Return for each arm the number of failed runs and the most frequent reason."""
    counts: Counter[tuple[str, str]] = Counter()
    failed: dict[tuple[str, str], Counter[str]] = {}
    for run in runs:
        counts[run.bed, run.arm] += 1
        if run.ending == Ending.FAILED.value:
            failed.setdefault((run.bed, run.arm), Counter())[run.why] += 1
    return [
        f"{bed} {arm}: {reasons.total()} of {counts[bed, arm]} runs failed, most often because: "
        f"{reasons.most_common(1)[0][0]}"
        for (bed, arm), reasons in failed.items()
    ]


def wrong_ends(runs: Iterable[RunRecord]) -> list[str]:
    """Return the reasons for wrong runs of the user's own scenarios."""
    wrong = [run for run in runs if run.family == _USER_FAMILY and not run.right]
    lines = [f"{run.arm} {run.scenario}/{run.seed}: {run.why}" for run in wrong[:_MOST_ENDS]]
    unlisted = len(wrong) - len(lines)
    return [*lines, f"... and {unlisted} more in runs.jsonl"] if unlisted else lines


class Price(NamedTuple):
    """The price of a million tokens of prompts and of replies."""

    prompt: float
    generated: float

    def of(self, result: ArmResult) -> float:
        """Return the price of a thousand runs of an arm."""
        cost = result.cost
        return (cost.prompt * self.prompt + cost.generated * self.generated) / 1000


def markdown(results: Sequence[ArmResult], price: Price | None = None) -> str:
    """Return the table as Markdown; a `price` adds the price of a thousand runs."""
    headings, cells = [*HEADINGS], rows(results)
    if price is not None:
        headings.append("price of 1000 runs")
        cells = [
            (*row, f"{price.of(result):.2f}") for row, result in zip(cells, results, strict=True)
        ]
    return markdown_table(headings, cells)


def document(result: ArmResult) -> JsonObject:
    against, gap = result.against, result.gap
    return {
        "bed": result.bed,
        "arm": result.arm,
        "runs": result.runs,
        "right": result.right,
        "completed": result.completed,
        "success": _interval(result.success),
        "lift": None if against is None else _interval(against.lift),
        "gap_closed": None if gap is None else _interval(gap),
        "helped": None if against is None else against.helped,
        "harmed": None if against is None else against.harmed,
        "harm_bound": None if against is None else against.harm_bound,
        "p": None if against is None else against.p,
        "same_bytes": result.same_bytes,
        "damage": result.damage,
        "promoted": result.promoted,
        "reach": result.reach,
        "all_seeds_right": result.steady,
        "cost": _cost(result.cost),
        "families": {name: [right, of] for name, (right, of) in result.families.items()},
    }


def _interval(interval: Interval) -> JsonValue:
    return [interval.estimate, interval.low, interval.high]


def _cost(cost: Cost) -> JsonObject:
    return {field.name: float(getattr(cost, field.name)) for field in fields(cost)}
