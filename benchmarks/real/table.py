"""The table of a measurement: a column for each model and arm."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

from benchmarks.real.arms import TokenCounts
from benchmarks.real.judging import JudgedRun
from proxy.conversation.json import JsonObject, JsonValue

KINDS = {"chain": "several steps", "single": "one step", "none": "no tool"}


@dataclass(frozen=True, slots=True)
class ArmReport:
    """The runs of an arm with a model.

    `kinds` are the kinds of the runs' tasks. `generations` and `identical` (the most copies of a
    complete call in one generation) are None where they cannot be seen.
    """

    model: str
    arm: str
    runs: Sequence[JudgedRun] = ()
    kinds: Sequence[str] = ()
    tokens: TokenCounts = field(default_factory=TokenCounts)
    generations: int | None = None
    identical: int | None = None

    @property
    def requests(self) -> int:
        return sum(len(judged.run.replies) for judged in self.runs)

    @property
    def seconds(self) -> float:
        return sum(judged.run.seconds for judged in self.runs)

    def right_of(self, kind: str) -> str:
        """Return how many runs of a kind are right, such as "3 of 5"."""
        rights = [
            judged.right
            for judged, own_kind in zip(self.runs, self.kinds, strict=True)
            if own_kind == kind
        ]
        return f"{sum(rights)} of {len(rights)}"

    def document(self) -> JsonObject:
        """Return it for programs, with every transcript."""
        runs: list[JsonValue] = [
            {
                **asdict(judged.run),
                "right": judged.right,
                "verdict": str(judged.verdict),
                "exposed": [[*kinds] for kinds in judged.exposed],
                "has_apology": judged.has_apology,
                "has_answer": judged.has_answer,
            }
            for judged in self.runs
        ]
        return {
            "model": self.model,
            "arm": self.arm,
            "tokens": asdict(self.tokens),
            "generations": self.generations,
            "identical": self.identical,
            "runs": runs,
        }


def _per_request(report: ArmReport) -> str:
    if report.generations is None or not report.requests:
        return "-"
    return f"{report.generations / report.requests:.2f}"


def _cached(report: ArmReport) -> str:
    prompts = report.tokens.read + report.tokens.cached
    share = f" ({report.tokens.cached / prompts:.0%})" if prompts else ""
    return f"{report.tokens.cached:,}{share}"


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _count(of_run: Callable[[JudgedRun], int]) -> Callable[[ArmReport], str]:
    return lambda report: _number(sum(of_run(judged) for judged in report.runs))


_ROWS: dict[str, Callable[[ArmReport], str]] = {
    "right": lambda report: f"{sum(run.right for run in report.runs)} of {len(report.runs)}",
    **{
        f"right, {title}": (lambda report, kind=kind: report.right_of(kind))  # type: ignore[misc]
        for kind, title in KINDS.items()
    },
    "side effects executed twice or more": _count(lambda run: len(run.verdict.repeated)),
    "needless calls": _count(lambda run: len(run.verdict.needless)),
    "replies that show markup or JSON": _count(lambda run: len(run.exposed)),
    "apologies after successful calls": _count(lambda run: run.has_apology),
    "ended without an answer in words": _count(lambda run: not run.has_answer),
    "failed requests": _count(lambda run: bool(run.run.problem)),
    "client requests": lambda report: _number(report.requests),
    "generations": lambda report: _number(report.generations),
    "generations per request": _per_request,
    "most copies of a call in a generation": lambda report: _number(report.identical),
    "prompt tokens read anew": lambda report: _number(report.tokens.read),
    "prompt tokens from the cache": _cached,
    "tokens generated": lambda report: _number(report.tokens.generated),
    "seconds": lambda report: f"{report.seconds:,.0f}",
}


def markdown(reports: Sequence[ArmReport]) -> str:
    """Return the table; the heading of a column is the model and the arm."""
    heading = ["", *(f"{report.model}: {report.arm}" for report in reports)]
    rows = [heading, ["---"] * len(heading)]
    rows += [[title, *(row(report) for report in reports)] for title, row in _ROWS.items()]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)
