"""Prints the results in a terminal: the verdicts, then a table of the arms for each model.

The records call a model with its settings a `bed`. A table has as many columns as the width allows.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.table import Table

from temper_evals.arms import CEILING, DIRECT, TEMPER
from temper_evals.loop import Ending
from temper_evals.records import RunRecord
from temper_evals.reply_bed import NO_CALL, ReplyCounts
from temper_evals.report.table import percent, points
from temper_evals.results import ArmResult, Ceilings, ceilings_of
from temper_evals.sequential import Decision, SequentialTest
from temper_evals.statistics import wilson

_REPLY_COLUMNS = (
    *("n", "right", "95 %", "own", "lost", "asked", "wrong", "needl.", "again", "failed"),
)
_REPLY_LEGEND = (
    "95 %: Wilson interval of the right share; own: read correctly by BFCL's handler of the model; "
    "of these, lost: no call, no retry; asked: no call even after a retry (with the same text); "
    "wrong: other calls; needl.: a call where none is right; again: more than one generation"
)
# wide enough to measure a table without wrapping
_UNLIMITED = 1_000
_NAME, _CELL = 14, 9  # widths of the column of names, and of an arm's column

_Column = tuple[str, Callable[[ArmResult], str]]
_COLUMNS: tuple[_Column, ...] = (
    ("arm", lambda arm: _fold(arm.arm)),
    ("right %", lambda arm: percent(arm.success.estimate)),
    ("lift (95 %)", lambda arm: "" if arm.against is None else points(arm.against.lift)),
    ("helped", lambda arm: "" if arm.against is None else str(arm.against.helped)),
    ("harmed", lambda arm: "" if arm.against is None else str(arm.against.harmed)),
    ("gen.", lambda arm: f"{arm.cost.generations_per_request:.2f}"),
    ("tokens", lambda arm: f"{arm.cost.prompt + arm.cost.generated:.0f}"),
)
_WIDE_COLUMNS: tuple[_Column, ...] = (
    ("harm <", lambda arm: "" if arm.against is None else percent(arm.against.harm_bound)),
    ("gap %", lambda arm: "" if arm.gap is None else percent(arm.gap.estimate, 0)),
    ("damage", lambda arm: str(arm.damage)),
    ("wasted", lambda arm: f"{arm.cost.wasted:.2f}"),
    ("s", lambda arm: f"{arm.cost.model_seconds or arm.cost.seconds:.1f}"),
)
_LONG_NAME = 18
_LONGEST_MODEL = 22
_LEGEND = (
    "lift: points over direct; helped: wrong became right; harmed: right became wrong; gen.: "
    "generations per request; tokens: per run; wasted: failed or repeated calls per run"
)
_ALL = "all"
_CATEGORY_LEGEND = (
    "right runs of all runs, with the Wilson interval of their share in percent; helped: wrong in "
    "direct and right in temper; harmed: right in direct and wrong in temper; other call: any call "
    "but the written one, or a failed request"
)
# start of a judgment's reason -> kind of failure
_CLASSES = (
    ("missing call", "missing call"),
    ("unrequested change", "unrequested change"),
    ("needless call", "needless call"),
    ("the answer", "wrong answer"),
    ("no answer", "no answer"),
)


def show(console: Console, results: Sequence[ArmResult], runs: Sequence[RunRecord]) -> None:
    """Print the verdicts, an overview if there are several models, and the table of each model."""
    for line in verdicts(results, runs):
        console.print(line)
    if len({result.bed for result in results}) > 1:
        console.print()
        console.print(_overview(results, console))
    for bed in dict.fromkeys(result.bed for result in results):
        arms = [result for result in results if result.bed == bed]
        console.print(f"\n{_title(bed, arms, runs)}")
        console.print(_bed_table(arms, console))
    console.print(_LEGEND, style="dim")


def _overview(results: Sequence[ArmResult], console: Console) -> Table:
    """Return one table of all models: the share of right runs of each arm, and Temper's effect.

    If it does not fit, only `direct` and `temper` are shown.
    """
    shown = [result for result in results if result.arm != CEILING]
    arms = list(dict.fromkeys(result.arm for result in shown))
    table = _make_overview(shown, arms)
    if _fits(table, console):
        return table
    return _make_overview(shown, [arm for arm in arms if arm in (DIRECT, TEMPER)] or arms[:2])


def _make_overview(shown: Sequence[ArmResult], arms: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("right % by model", overflow="fold")
    for heading in (*map(_fold, arms), "helped", "harmed", "gen."):
        table.add_column(heading, justify="right", no_wrap=True)
    for bed in dict.fromkeys(result.bed for result in shown):
        by_arm = {result.arm: result for result in shown if result.bed == bed}
        shares = (percent(by_arm[arm].success.estimate) if arm in by_arm else "" for arm in arms)
        temper = by_arm.get(TEMPER)
        effect = ["", "", ""]
        if temper is not None:
            paired = temper.against
            effect = [f"{paired.helped}", f"{paired.harmed}"] if paired is not None else ["", ""]
            effect.append(f"{temper.cost.generations_per_request:.2f}")
        table.add_row(bed, *shares, *effect)
    return table


def verdicts(results: Iterable[ArmResult], runs: Sequence[RunRecord]) -> Iterator[str]:
    """Yield a sentence for each model: whether Temper helps, or how many more runs are needed."""
    for result in results:
        if result.against is not None and result.arm == TEMPER:
            seeds = len(
                {run.seed for run in runs if (run.bed, run.arm) == (result.bed, result.arm)}
            )
            yield _verdict(result, seeds)


def _verdict(result: ArmResult, seeds: int) -> str:
    against = result.against
    assert against is not None  # noqa: S101 - checked by the caller
    test = SequentialTest(against.pairs, against.helped, against.harmed)
    counted = f"{test.helped} helped, {test.harmed} harmed of {test.pairs} runs"
    cost = f"{result.cost.generations_per_request:.2f} generations per request"
    match test.decision:
        case Decision.ON:
            return f"{result.bed}: Temper helps: {counted}; {cost}."
        case Decision.OFF if test.is_rare:
            return f"{result.bed}: Temper changes almost nothing: {counted}; {cost}."
        case Decision.OFF:
            return f"{result.bed}: Temper does not help: {counted}; {cost}."
        case _:
            wanted = math.ceil(max(1, seeds) * (test.pairs + test.missing) / max(1, test.pairs))
            more = f"about {test.missing} more runs needed (--seeds {wanted})"
            return f"{result.bed}: undecided: {counted}; {more}."


def _title(bed: str, results: Sequence[ArmResult], runs: Sequence[RunRecord]) -> str:
    counts = {result.runs for result in results}
    count = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else f"{max(counts)}"
    return f"{bed}, {count} runs per arm; {_ceiling_words(ceilings_of(bed, runs))}"


def _bed_table(results: Sequence[ArmResult], console: Console) -> Table:
    """Return the widest table that fits; the HTML page and the JSON have all columns."""
    wide = range(len(_WIDE_COLUMNS), -1, -1)
    tables = [_make_table(results, _COLUMNS + _WIDE_COLUMNS[:count]) for count in wide]
    return next((table for table in tables if _fits(table, console)), tables[-1])


def _make_table(results: Sequence[ArmResult], columns: Sequence[_Column]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name, _ in columns:
        table.add_column(name, justify="left" if name == "arm" else "right", no_wrap=True)
    for result in results:
        table.add_row(*(write(result) for _, write in columns))
    return table


def _fold(name: str) -> str:
    """Write a long name in two lines."""
    head, _, tail = name.rpartition("-")
    return f"{head}-\n{tail}" if len(name) > _LONG_NAME and head else name


def _fits(table: Table, console: Console) -> bool:
    unlimited = console.options.update(width=_UNLIMITED)
    return Measurement.get(console, unlimited, table).maximum <= console.width


def _ceiling_words(ceilings: Ceilings) -> str:
    perfect = f"ceiling {_share(ceilings.perfect)}"
    if ceilings.perfect is None:
        perfect = "ceiling unknown (only a simulated model can run without its errors)"
    if ceilings.detectable is None:
        return f"{perfect}; detectable unknown (requires the arm temper-observe)"
    return f"{perfect}; detectable {_share(ceilings.detectable)}"


def _share(share: float | None) -> str:
    return "" if share is None else percent(share)


def show_by(
    console: Console, group: str, results: Sequence[ArmResult], runs: Sequence[RunRecord]
) -> None:
    """Print right runs by family, or wrong runs by cause, with a column for each arm."""
    for bed in dict.fromkeys(result.bed for result in results):
        arms = [result for result in results if result.bed == bed and result.arm != CEILING]
        if group == "family":
            cells = {
                arm.arm: {name: f"{a}/{b}" for name, (a, b) in arm.families.items()} for arm in arms
            }
        else:
            cells = {arm.arm: _count_failures(bed, arm.arm, runs) for arm in arms}
        what = "right runs by family" if group == "family" else "wrong runs by cause"
        console.print(f"{bed}: {what}")
        for table in _side_by_side(cells, console.width):
            console.print(table)


def show_categories(console: Console, runs: Sequence[RunRecord]) -> None:
    """Print the right runs of a benchmark by category and arm, with Wilson intervals."""
    for bed in dict.fromkeys(run.bed for run in runs):
        of_bed = [run for run in runs if run.bed == bed]
        arms = [*dict.fromkeys(run.arm for run in of_bed)]
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column(bed, no_wrap=True)
        last = ("helped", "harmed") if DIRECT in arms else ("other call", "no call")
        for name in (*arms, *last):
            table.add_column(name, justify="right", no_wrap=True)
        for category in (*dict.fromkeys(run.family for run in of_bed), _ALL):
            chosen = [run for run in of_bed if category in (run.family, _ALL)]
            table.add_row(category, *_category_cells(chosen, arms))
        console.print(table)
    console.print(_CATEGORY_LEGEND, style="dim")


def _category_cells(runs: Sequence[RunRecord], arms: Sequence[str]) -> Iterator[str]:
    """Yield the right runs of each arm, then two counts of `temper`.

    With the arm `direct`, these are the helped and the harmed runs; without it, the runs with
    another call and the runs without a call.
    """
    by_arm = {arm: {run.pair: run.right for run in runs if run.arm == arm} for arm in arms}
    for right in by_arm.values():
        share = wilson(sum(right.values()), len(right))
        edges = f"[{percent(share.low)}, {percent(share.high)}]"
        yield f"{sum(right.values())}/{len(right)} {edges}"
    if DIRECT not in arms:
        lost = sum(run.why == NO_CALL for run in runs)
        yield from (str(sum(not run.right for run in runs) - lost), str(lost))
        return
    before, after = by_arm[DIRECT], by_arm.get(TEMPER, {})
    pairs = Counter((before[pair], after[pair]) for pair in before.keys() & after.keys())
    yield from (str(pairs[False, True]), str(pairs[True, False]))


def _count_failures(bed: str, arm: str, runs: Iterable[RunRecord]) -> dict[str, str]:
    wrong = (run for run in runs if (run.bed, run.arm) == (bed, arm) and not run.right)
    return {name: str(count) for name, count in Counter(map(failure_class, wrong)).most_common()}


def failure_class(run: RunRecord) -> str:
    """Return the kind of failure of a wrong run."""
    if run.ending == Ending.FAILED.value:
        return "failed request"
    if run.ending != Ending.ANSWERED.value:
        return "limit reached" if run.ending == Ending.LIMIT.value else "cut off"
    kinds = (name for start, name in _CLASSES if run.why.startswith(start))
    return next(kinds, "other")


def _side_by_side(cells: Mapping[str, Mapping[str, str]], width: int) -> Iterator[RenderableType]:
    """Yield tables of as many arms as fit into the width."""
    names = list(dict.fromkeys(name for column in cells.values() for name in column))
    longest = max((len(name) for name in names), default=0)
    at_once = max(1, (width - max(longest, _NAME)) // (_CELL + 3))
    arms = list(cells)
    for start in range(0, len(arms), at_once):
        shown = arms[start : start + at_once]
        table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("", no_wrap=True)
        for arm in shown:
            table.add_column(arm.replace("-", "-\n"), justify="right", no_wrap=True)
        for name in names:
            table.add_row(name, *(cells[arm].get(name, "") for arm in shown))
        yield table


def show_replies(console: Console, counts: Mapping[tuple[str, str, str], ReplyCounts]) -> None:
    """Print the results of recorded replies: a table per arm with a row per category."""
    for arm in dict.fromkeys(arm for arm, *_ in counts):
        of_arm = {key[1:]: counted for key, counted in counts.items() if key[0] == arm}
        tables = [_replies_table(of_arm, _REPLY_COLUMNS[:most]) for most in (10, 7)]
        console.print(f"\n{arm}")
        console.print(next((table for table in tables if _fits(table, console)), tables[-1]))
    console.print(_REPLY_LEGEND, style="dim")


def _replies_table(counts: Mapping[tuple[str, str], ReplyCounts], columns: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("category", no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    last = ""
    for (bed, category), counted in counts.items():
        if bed != last:
            table.add_row(bed[:_LONGEST_MODEL])
        last = bed
        table.add_row(f"  {category[: _LONGEST_MODEL - 2]}", *reply_cells(counted)[: len(columns)])
    return table


def reply_cells(counts: ReplyCounts) -> tuple[str, ...]:
    """Return the cells of a category, in the order of `_REPLY_COLUMNS`."""
    right = wilson(counts.right, counts.count)
    edges = f"{percent(right.low, 0)}-{percent(right.high, 0)}"
    counted = (
        counts.handler_right,
        counts.lost,
        counts.retried,
        counts.wrong,
        counts.needless,
        counts.again,
        counts.failed,
    )
    return str(counts.count), str(counts.right), edges, *map(str, counted)
