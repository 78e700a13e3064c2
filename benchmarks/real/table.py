"""The tables of a measurement: a column for each arm of a model, and the goals."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from benchmarks.real.arms import ARMS
from benchmarks.real.judging import OUT_OF_TIME, JudgedRun
from benchmarks.real.records import Record, TokenCounts
from proxy.conversation.json import JsonValue
from temper_evals.report.markdown import markdown_table

KINDS = {"chain": "several steps", "single": "one step", "trap": "traps", "none": "no tool"}


@dataclass(frozen=True)
class ArmReport:
    """The runs of an arm with a model, and those of `direct` for comparison."""

    model: str
    arm: str
    records: Sequence[Record]
    direct: Sequence[Record] = ()

    @cached_property
    def judged(self) -> list[JudgedRun]:
        return [record.judged for record in self.records]

    @property
    def right(self) -> int:
        return sum(judged.right for judged in self.judged)

    @property
    def requests(self) -> int:
        return sum(len(record.run.replies) for record in self.records)

    @property
    def generations(self) -> int:
        return sum(record.generations for record in self.records)

    @property
    def seconds(self) -> float:
        return sum(record.run.seconds for record in self.records)

    @property
    def tokens(self) -> TokenCounts:
        return sum((record.tokens for record in self.records), TokenCounts())

    @property
    def identical(self) -> int | None:
        """The largest number of equal calls in one generation; None if none was recorded."""
        counts = [record.identical for record in self.records if record.identical is not None]
        return max(counts, default=None)

    @cached_property
    def kinds(self) -> dict[str, tuple[int, int]]:
        """The numbers of right runs and of all runs, by the kind of task."""
        counts = dict.fromkeys(KINDS, (0, 0))
        for record, judged in zip(self.records, self.judged, strict=True):
            right, runs = counts[record.kind]
            counts[record.kind] = right + judged.right, runs + 1
        return counts

    def right_of(self, kind: str) -> str:
        """Return the number of right runs of a kind, such as "3 of 5"."""
        return "{} of {}".format(*self.kinds[kind])

    def changed(self, *, helped: bool) -> int:
        """Count the helped runs (wrong in `direct`, right in this arm), or the harmed runs."""
        direct = {record.key[2:]: record.judged.right for record in self.direct}
        return sum(
            judged.right is helped and direct.get(record.key[2:]) is not helped
            for record, judged in zip(self.records, self.judged, strict=True)
            if record.key[2:] in direct
        )


def _right(report: ArmReport) -> str:
    from temper_evals.statistics import wilson  # requires scipy

    share = wilson(report.right, len(report.records))
    interval = f"{100 * share.low:.0f} to {100 * share.high:.0f} %"
    return f"{report.right} of {len(report.records)} ({interval})"


def _per_task(value: float, report: ArmReport) -> str:
    return f"{value / len(report.records):.1f}" if report.records else "-"


def _cached(report: ArmReport) -> str:
    prompts = report.tokens.read + report.tokens.cached
    share = f" ({report.tokens.cached / prompts:.0%})" if prompts else ""
    return f"{report.tokens.cached:,}{share}"


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _count(of_run: Callable[[JudgedRun], int]) -> Callable[[ArmReport], str]:
    return lambda report: _number(sum(of_run(judged) for judged in report.judged))


def _changed(*, helped: bool) -> Callable[[ArmReport], str]:
    return lambda report: _number(
        report.changed(helped=helped) if report.direct and report.arm != "direct" else None
    )


_ROWS: dict[str, Callable[[ArmReport], str]] = {
    "right (95 %)": _right,
    **{
        f"right, {title}": (lambda report, kind=kind: report.right_of(kind))  # type: ignore[misc]
        for kind, title in KINDS.items()
    },
    "helped: wrong in `direct`, right here": _changed(helped=True),
    "harmed: right in `direct`, wrong here": _changed(helped=False),
    "side effects executed twice or more": _count(lambda run: len(run.verdict.repeated)),
    "needless calls": _count(lambda run: len(run.verdict.needless)),
    "replies that show markup or JSON": _count(lambda run: len(run.exposed)),
    "apologies after successful calls": _count(lambda run: run.has_apology),
    "ended without an answer in words": _count(lambda run: not run.has_answer),
    "out of time": _count(lambda run: run.run.problem == OUT_OF_TIME),
    "other failed requests": _count(lambda run: run.run.problem not in ("", OUT_OF_TIME)),
    "client requests": lambda report: _number(report.requests),
    "generations": lambda report: _number(report.generations),
    "generations per task": lambda report: _per_task(report.generations, report),
    "most copies of a call in a generation": lambda report: _number(report.identical),
    "prompt tokens read anew": lambda report: _number(report.tokens.read),
    "prompt tokens from the cache": _cached,
    "tokens generated": lambda report: _number(report.tokens.generated),
    "seconds per task": lambda report: _per_task(report.seconds, report),
}


def markdown(records: Sequence[Record], protocol: Mapping[str, JsonValue]) -> str:
    """Return the protocol, the table of each model, and the goals."""
    parts = [_describe(protocol)]
    for model in dict.fromkeys(record.model for record in records):
        reports = reports_of(model, records)
        parts += [_table(model, [*reports.values()]), _goals(model, reports)]
    return "\n".join(part for part in parts if part)


def _describe(protocol: Mapping[str, JsonValue]) -> str:
    parts = [
        f"{name} {', '.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in protocol.items()
        if name != "models"
    ]
    models = protocol.get("models")
    files = [f"`{text}`" for text in models] if isinstance(models, list) else []
    return f"{'; '.join(parts)}. Models with their SHA-256: {', '.join(files)}.\n"


def reports_of(model: str, records: Sequence[Record]) -> dict[str, ArmReport]:
    of_arm: dict[str, list[Record]] = {arm: [] for arm in ARMS}
    for record in records:
        if record.model == model:
            of_arm[record.arm].append(record)
    direct = of_arm["direct"]
    return {arm: ArmReport(model, arm, runs, direct) for arm, runs in of_arm.items() if runs}


def _table(model: str, reports: Sequence[ArmReport]) -> str:
    rows = ([title, *(row(report) for report in reports)] for title, row in _ROWS.items())
    return markdown_table((model, *(f"`{report.arm}`" for report in reports)), rows)


def _goals(model: str, reports: Mapping[str, ArmReport]) -> str:
    """Return the table of goals; a goal is skipped unless its arms have the same runs."""
    direct, temper, forge = (reports.get(arm) for arm in ("direct", "temper", "forge"))
    tuned, again = reports.get("temper-tuned"), reports.get("temper-again")
    rows: list[tuple[str, str, bool]] = []
    if temper and direct and _comparable(temper, direct):
        counts = f"{temper.right} against {direct.right}"
        rows.append(("`temper` right >= `direct`", counts, temper.right >= direct.right))
    if temper and forge and _comparable(temper, forge):
        harm = temper.changed(helped=False), forge.changed(helped=False)
        generations = temper.generations, forge.generations
        rows += [
            (
                "`temper` right >= `forge`",
                f"{temper.right} against {forge.right}",
                temper.right >= forge.right,
            ),
            (
                "`temper` harmed <= 1/8 of `forge`",
                f"{harm[0]} against {harm[1]}",
                8 * harm[0] <= harm[1],
            ),
            (
                "`temper` generations <= 1/2 of `forge`",
                f"{generations[0]} against {generations[1]}",
                2 * generations[0] <= generations[1],
            ),
        ]
    if tuned and temper and forge and _comparable(tuned, temper) and _comparable(tuned, forge):
        best = max(temper.right, forge.right)
        counts = f"{tuned.right} against {temper.right} and {forge.right}"
        rows.append(("`temper-tuned` right > `temper` and `forge`", counts, tuned.right > best))
    if temper and again and _comparable(temper, again):
        pairs = zip(_by_key(temper), _by_key(again), strict=True)
        differing = sum(first.run.calls != second.run.calls for first, second in pairs)
        counts = f"{differing} of {len(temper.records)} runs make other calls"
        rows.append(("the same twice (A/A)", counts, differing == 0))
    cells = ((goal, counts, "met" if met else "**missed**") for goal, counts, met in rows)
    return markdown_table((f"goals, {model}", "measured", ""), cells) if rows else ""


def _by_key(report: ArmReport) -> list[Record]:
    return sorted(report.records, key=lambda record: record.key)


def _comparable(first: ArmReport, other: ArmReport) -> bool:
    """Return whether two arms have the same runs."""
    keys = [{record.key[2:] for record in report.records} for report in (first, other)]
    return keys[0] == keys[1]
