"""Results as Markdown: a column for each candidate, the goals, and the machine.

A page with results has the mark `all` or `brief` (see `benchmarks.pages`). The results for healthy
replies have separate marks, `healthy` and `harm`.
"""

from benchmarks.healthy import table as healthy
from benchmarks.load.goals import GOALS, Goal
from benchmarks.load.results import Results
from temper_evals.report.markdown import markdown_table

# The figures of each scenario with their labels.
ROWS: dict[str, dict[str, str]] = {
    "call": {
        "p50": "one call, not streamed: p50, ms",
        "p99": "the same: p99, ms",
        "requests_per_second": "the same, 16 at once: requests/s",
        "cpu_us_per_request": "the same: CPU per request, us",
        "cpu_us_per_request_alone": "one at a time: CPU per request, us",
    },
    "clients": {
        "p99_1": "one call from 1 client: p99, ms",
        "p99_4": "from 4 clients at once: p99, ms",
        "p99_16": "from 16: p99, ms",
        "p99_64": "from 64: p99, ms",
    },
    "prose-accept": {
        "first_content": "tools, prose accepted: first content, ms",
        "total": "the same: total, ms",
    },
    "prose-respond": {
        "first_content": "tools, prose through `respond`: first content, ms",
        "total": "the same: total, ms",
    },
    "plain": {"first_content": "no tools: first content, ms"},
    "streams": {"cpu_us_per_token": "8 streams: CPU per token, us"},
    "burst": {"tokens_per_second": "burst: tokens/s"},
    "slow": {
        "delay_p50": "256 slow streams: delay per token p50, ms",
        "delay_p99": "the same: p99, ms",
        "cpu_us_per_token": "the same: CPU per token, us",
        "peak_mb": "the same: peak memory, MB",
        "errors": "the same: errors",
    },
    "rush": {
        "first_content": "256 streams started together: first content p50, ms",
        "first_content_p99": "the same: p99, ms",
        "delay_p99": "the same: delay per token p99, ms",
        "errors": "the same: errors",
    },
    "languages": {
        "messages_call_of_chat": "Messages: CPU per call, relative to chat",
        "messages_prose_of_chat": "the same: per token of 8 streams",
        "messages_slow_of_chat": "the same: per token of 256 slow streams",
        "responses_call_of_chat": "Responses: CPU per call, relative to chat",
        "responses_prose_of_chat": "the same: per token of 8 streams",
        "responses_slow_of_chat": "the same: per token of 256 slow streams",
        "ollama_call_of_chat": "Ollama: CPU per call, relative to chat",
        "ollama_prose_of_chat": "the same: per token of 8 streams",
        "ollama_slow_of_chat": "the same: per token of 256 slow streams",
    },
    "large": {"p50": "625 kB request: p50, ms"},
    "start": {"ready_seconds": "start to first answer, s", "idle_mb": "idle memory, MB"},
    "arguments": {
        "total": "10,000-token argument: total, ms",
        "growth": "twice the tokens: ratio of the times",
    },
    "healthy": {
        "first_content_p50": "healthy replies: first content added, worst kind p50, ms",
        "first_content_p99": "the same: p99, ms",
        "first_argument_p50": "the same: first argument byte, beyond holding, p50, ms",
        "first_argument_held_p50": "the same: held tokens, p50",
        "delay_p50": "the same: delay added per delta, p50, ms",
        "delay_p99": "the same: p99, ms",
        "held_p50": "the same: held tokens per delta, p50",
        "held_p99": "the same: p99",
        "late_p50": "the same: delay after release, p50, ms",
        "late_p99": "the same: p99, ms",
        "generations": "the same: generations per answer",
        "changed": "the same: changed",
        "prompts": "the same: prompts changed but for `respond`",
    },
}


# The rows of the short table.
BRIEF: dict[str, tuple[str, ...]] = {
    "call": ("p50", "requests_per_second"),
    "prose-respond": ("first_content",),
    "streams": ("cpu_us_per_token",),
    "burst": ("tokens_per_second",),
    "slow": ("delay_p50", "delay_p99"),
    "large": ("p50",),
}

_REMARKS = {
    "bare": "a lower bound, not a usable proxy: a FastAPI route in front of aiohttp that parses "
    "the JSON and serializes it again; the version is that of aiohttp",
    "forge": "requests complete responses and sends each as one event, so its burst is one "
    "event, and its CPU per token that of a response",
}


def markdown(results: Results) -> str:
    """Return the origin of the results, the table, the goals and the notes."""
    parts = (_origin(results), _comparison(results), _goals(results), _notes(results))
    return "\n".join(filter(None, parts))


def brief(results: Results) -> str:
    """Return the origin of the results, and the most important rows."""
    rows = {
        name: {figure: ROWS[name][figure] for figure in figures} for name, figures in BRIEF.items()
    }
    return f"{_origin(results)}\n{_comparison(results, rows)}"


def figures_of(results: Results) -> dict[str, str]:
    """Return the tables of these results by the names of their marks on pages."""
    figures: dict[str, str] = {}
    if results.rounds.keys() != {healthy.SCENARIO}:
        figures |= {"all": markdown(results), "brief": brief(results)}
    if healthy.SCENARIO in results.rounds:
        figures |= {"healthy": healthy.timings(results), "harm": healthy.harm(results)}
    return figures


def _origin(results: Results) -> str:
    rounds = max(
        (len(rounds) for candidates in results.rounds.values() for rounds in candidates.values()),
        default=0,
    )
    size = "short" if results.is_quick else "full"
    kind = f"medians of {rounds} {size} rounds" if rounds != 1 else f"one {size} round"
    kind += " (`--quick`)" if results.is_quick else ""
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    compared = f"Compared with {versions}.\n" if versions else ""
    return f"Measured on {results.date}: {results.machine}; {kind}.\n{compared}"


def _comparison(results: Results, shown: dict[str, dict[str, str]] = ROWS) -> str:
    candidates, table = results.candidates(), list[list[str]]()
    for scenario, rows in shown.items():
        for figure, label in rows.items() if scenario in results.rounds else ():
            values = [results.figure(scenario, candidate, figure) for candidate in candidates]
            if any(value is not None for value in values):
                table.append([label, *map(_number, values)])
    return markdown_table(["", *candidates], table)


def _goals(results: Results) -> str:
    rows = [
        (f"`{goal.scenario}`", goal.what, _bound(goal), *_verdict(goal, results))
        for goal in GOALS
        if goal.scenario in results.rounds
    ]
    return markdown_table(("scenario", "", "goal", "measured", "met"), rows) if rows else ""


def _verdict(goal: Goal, results: Results) -> tuple[str, str]:
    value = goal.read(results)
    if value is None:
        return "-", "not measured"
    return f"{_number(value)}{goal.unit}", "yes" if goal.is_met(value) else "**no**"


def _bound(goal: Goal) -> str:
    return f"{'>=' if goal.is_least else '<='} {_number(goal.bound)}{goal.unit}"


def _notes(results: Results) -> str:
    measured = results.candidates()
    notes = [f"{name}: {note}" for name, note in _REMARKS.items() if name in measured]
    notes += [f"{name}: {reason}" for name, reason in results.absent.items()]
    for scenario, problems_of in results.problems.items():
        notes += [
            f"{name} in `{scenario}`: {problems[0]}" for name, problems in problems_of.items()
        ]
    return "".join(f"- {note}\n" for note in notes)


def _number(value: float | None) -> str:
    """Format a number with three significant digits."""
    if value is None:
        return "-"
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
