"""What `benchmarks.context_run` found, the figures made of it, and their table."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import mean

from proxy.conversation.json import JsonObject
from temper_evals.report.markdown import markdown_table

CACHED_GOAL, BREAKS_GOAL, LEAD_GOAL, ERROR_GOAL, ADDED_GOAL = 0.9, 4, 0.25, 0.02, 15.0
FIRST_FACTS_GOAL, MEAN_FACTS_GOAL = 0.85, 0.4  # of those planted
LONG_PROMPT = 28_000  # tokens
_FEW = 5


def share(values: Sequence[float], part: float) -> float:
    """Return the value that `part` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


@dataclass(frozen=True, slots=True)
class TurnFound:
    """One turn: `prompt` and `cached` as the server counted, `estimate` and `client` as Temper did.

    `is_over` reports that prompt and answer together would not fit into the window. `counting_ms`
    of the `added_ms` went into questions to the server about tokens. `facts` are those of the
    planted ones that the prompt as it was sent still holds.
    """

    step: int
    prompt: int
    cached: int
    estimate: int | None
    client: int | None
    tier: int
    epoch: int
    is_broken: bool
    is_over: bool
    is_counted: bool
    facts: int
    added_ms: float
    counting_ms: float

    @property
    def error(self) -> float | None:
        """How far the estimate was off, as a share of the prompt."""
        return None if self.estimate is None else abs(self.estimate - self.prompt) / self.prompt


@dataclass(frozen=True, slots=True)
class Recall:
    """How many facts were planted, and which are missing after the first cut, at turn `cut`."""

    planted: int
    cut: int | None
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """One strategy's run."""

    strategy: str
    turns: tuple[TurnFound, ...]
    recall: Recall

    @property
    def cached(self) -> float:
        """The share of all prompt tokens that came from the cache."""
        return sum(turn.cached for turn in self.turns) / sum(turn.prompt for turn in self.turns)

    @property
    def prefilled(self) -> int:
        """The prompt tokens that the server had to read."""
        return sum(turn.prompt - turn.cached for turn in self.turns)

    @property
    def breaks(self) -> int:
        """How often the prompt did not begin with the one before."""
        return sum(turn.is_broken for turn in self.turns)

    @property
    def overflows(self) -> int:
        """How many prompts left no room for their answers."""
        return sum(turn.is_over for turn in self.turns)

    @property
    def added_ms(self) -> float:
        """What Temper adds, at p95; not counted is the first turn, in which it warms up."""
        return share([turn.added_ms for turn in self.turns[1:]], 0.95)

    @property
    def added_to_long_ms(self) -> float | None:
        """The same for prompts of about 32k tokens; None where there are too few."""
        added = [turn.added_ms for turn in self.turns if turn.prompt >= LONG_PROMPT]
        return share(added, 0.95) if len(added) >= _FEW else None

    @property
    def error(self) -> float | None:
        """How far estimates are off at p99; None where nothing was estimated."""
        return _p99([turn.error for turn in self.turns])

    @property
    def error_where_counted(self) -> float | None:
        """The same for the turns before which the server was asked to count."""
        return _p99([turn.error for turn in self.turns if turn.is_counted])

    @property
    def mean_facts(self) -> float | None:
        """How many of the planted facts a prompt has since the first cut; None without a cut."""
        if self.recall.cut is None:
            return None
        return mean(turn.facts for turn in self.turns if turn.step >= self.recall.cut)

    def document(self) -> JsonObject:
        """Return everything as JSON."""
        return {
            "strategy": self.strategy,
            "cached": self.cached,
            "prefilled": self.prefilled,
            "breaks": self.breaks,
            "overflows": self.overflows,
            "added_ms_p95": self.added_ms,
            "added_to_long_ms_p95": self.added_to_long_ms,
            "estimate_error_p99": self.error,
            "estimate_error_p99_where_counted": self.error_where_counted,
            "recall": asdict(self.recall),
            "turns": [asdict(turn) for turn in self.turns],
        }


def _p99(errors: Sequence[float | None]) -> float | None:
    known = [error for error in errors if error is not None]
    return share(known, 0.99) if known else None


_HEADS = (
    "strategy",
    "from cache",
    "prefilled",
    "breaks",
    "too long",
    "estimate off, p99",
    "where counted",
    "added, p95",
    "facts after the first cut",
    "mean since",
    "in the end",
)


def table(runs: Sequence[Run]) -> str:
    """Write the figures of all runs as a Markdown table."""
    return markdown_table(_HEADS, map(_cells, runs))


def _cells(run: Run) -> tuple[str, ...]:
    recall, last = run.recall, run.turns[-1]
    kept = recall.planted - len(recall.missing)
    return (
        run.strategy,
        f"{run.cached:.1%}",
        f"{run.prefilled:,}",
        str(run.breaks),
        str(run.overflows),
        "" if run.error is None else f"{run.error:.1%}",
        "" if run.error_where_counted is None else f"{run.error_where_counted:.1%}",
        f"{run.added_ms:.1f} ms",
        "no cut" if recall.cut is None else f"{kept} of {recall.planted}",
        "" if run.mean_facts is None else f"{run.mean_facts:.1f}",
        str(last.facts),
    )


def goals(runs: Sequence[Run]) -> list[tuple[str, bool]]:
    """Hold the figures against the goals; those that cannot be told from these runs are left out.

    Shares are points of a hundred, so a lead is a difference.
    """
    by_name = {run.strategy: run for run in runs}
    tiered, sliding, off = (by_name.get(name) for name in ("tiered", "sliding", "off"))
    if tiered is None:
        return []
    told = [
        (f"from cache {tiered.cached:.1%}, goal {CACHED_GOAL:.0%}", tiered.cached >= CACHED_GOAL),
        (f"{tiered.breaks} breaks, at most {BREAKS_GOAL}", tiered.breaks <= BREAKS_GOAL),
    ]
    if sliding is not None:
        lead = tiered.cached - sliding.cached
        words = f"{100 * lead:.1f} points more than sliding, goal {100 * LEAD_GOAL:.0f}"
        told.append((words, lead >= LEAD_GOAL))
    for error, turns in ((tiered.error, "all"), (tiered.error_where_counted, "counted")):
        if error is not None:
            words = f"estimates of {turns} turns off by {error:.1%} at p99, goal {ERROR_GOAL:.0%}"
            told.append((words, error <= ERROR_GOAL))
    told += _facts_kept(tiered)
    if off is not None:
        added = tiered.added_ms - off.added_ms
        words = f"{added:.1f} ms added by compaction at p95, goal {ADDED_GOAL:g} ms"
        told.append((words, added <= ADDED_GOAL))
        long, plain = tiered.added_to_long_ms, off.added_to_long_ms
        if long is not None and plain is not None:
            words = f"{long - plain:.1f} ms at p95 of prompts of {LONG_PROMPT:,} tokens and more"
            told.append((f"{words}, goal {ADDED_GOAL:g} ms", long - plain <= ADDED_GOAL))
    return told


def _facts_kept(run: Run) -> list[tuple[str, bool]]:
    """Hold what is left of the planted facts against the goals, if there was a cut."""
    recall, found = run.recall, run.mean_facts
    if found is None:
        return []
    kept, first = recall.planted - len(recall.missing), FIRST_FACTS_GOAL * recall.planted
    mean_goal = MEAN_FACTS_GOAL * recall.planted
    return [
        (f"{kept} facts after the first cut, goal {first:.0f}", kept >= first),
        (f"{found:.1f} facts on average since, goal {mean_goal:.0f}", found >= mean_goal),
    ]
