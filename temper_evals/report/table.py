"""The table in words: every arm of each bed, with help, harm, cost and ceiling side by side."""

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

_OWN, _MOST_ENDS = "own", 20


def percent(share: float, digits: int = 1) -> str:
    """Write a share in percent."""
    return f"{100 * share:.{digits}f}"


def points(interval: Interval) -> str:
    """Write a difference in percentage points with its interval."""
    low, high = 100 * interval.low, 100 * interval.high
    return f"{100 * interval.estimate:+.1f} [{low:+.1f}, {high:+.1f}]"


def rows(results: Sequence[ArmResult]) -> list[tuple[str, ...]]:
    """Write the rows; without the ceiling of its bed no arm is shown to be good or bad."""
    ceilings = {one.bed: percent(one.success.estimate) for one in results if one.arm == CEILING}
    return [_row(one, ceilings.get(one.bed, "unknown")) for one in results]


def _row(one: ArmResult, ceiling: str) -> tuple[str, ...]:
    against = one.against
    return (
        one.bed,
        one.arm,
        str(one.runs),
        percent(one.success.estimate),
        "" if against is None else points(against.lift),
        "" if one.gap is None else f"{percent(one.gap.estimate, 0)} %",
        "" if against is None else str(against.helped),
        "" if against is None else str(against.harmed),
        "" if against is None else f"{percent(against.harm_bound)} %",
        str(one.damage),
        f"{one.cost.generations_per_request:.2f}",
        f"{one.cost.prompt + one.cost.generated:.0f}",
        f"{one.cost.model_seconds:.1f}",
        ceiling,
    )


def failures(runs: Iterable[RunRecord]) -> list[str]:
    """Say of each arm how many of its runs failed, and why the most: nobody measured anything."""
    made: Counter[tuple[str, str]] = Counter()
    failed: dict[tuple[str, str], Counter[str]] = {}
    for one in runs:
        made[one.bed, one.arm] += 1
        if one.ending == Ending.FAILED.value:
            failed.setdefault((one.bed, one.arm), Counter())[one.why] += 1
    return [
        f"{bed} {arm}: {whys.total()} of {made[bed, arm]} runs failed, most often with: "
        f"{whys.most_common(1)[0][0]}"
        for (bed, arm), whys in failed.items()
    ]


def wrong_ends(runs: Iterable[RunRecord]) -> list[str]:
    """Say why runs of scenarios of one's own are wrong: their author has to know."""
    wrong = [one for one in runs if one.family == _OWN and not one.right]
    told = [f"{one.arm} {one.scenario}/{one.seed}: {one.why}" for one in wrong[:_MOST_ENDS]]
    more = len(wrong) - len(told)
    return [*told, f"... and {more} more in runs.jsonl"] if more else told


class Price(NamedTuple):
    """What a million tokens cost, of prompts and of replies."""

    prompt: float
    generated: float

    def of(self, one: ArmResult) -> float:
        """Return what a thousand runs of an arm cost."""
        cost = one.cost
        return (cost.prompt * self.prompt + cost.generated * self.generated) / 1000


def markdown(results: Sequence[ArmResult], price: Price | None = None) -> str:
    """Write the table as Markdown; with a `price` it has what a thousand runs cost."""
    headings, written = [*HEADINGS], rows(results)
    if price is not None:
        headings.append("price of 1000 runs")
        written = [
            (*row, f"{price.of(one):.2f}") for row, one in zip(written, results, strict=True)
        ]
    return markdown_table(headings, written)


def document(one: ArmResult) -> JsonObject:
    """Return an arm's results for programs."""
    against, gap = one.against, one.gap
    return {
        "bed": one.bed,
        "arm": one.arm,
        "runs": one.runs,
        "right": one.right,
        "completed": one.completed,
        "success": _interval(one.success),
        "lift": None if against is None else _interval(against.lift),
        "gap_closed": None if gap is None else _interval(gap),
        "helped": None if against is None else against.helped,
        "harmed": None if against is None else against.harmed,
        "harm_bound": None if against is None else against.harm_bound,
        "p": None if against is None else against.p,
        "same_bytes": one.same_bytes,
        "damage": one.damage,
        "promoted": one.promoted,
        "reach": one.reach,
        "all_seeds_right": one.steady,
        "cost": _cost(one.cost),
        "families": {name: [right, of] for name, (right, of) in one.families.items()},
    }


def _interval(one: Interval) -> JsonValue:
    return [one.estimate, one.low, one.high]


def _cost(cost: Cost) -> JsonObject:
    return {field.name: float(getattr(cost, field.name)) for field in fields(cost)}
