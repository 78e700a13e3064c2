"""The results for healthy replies as Markdown: added time, and changed replies."""

from collections.abc import Iterator

from benchmarks.healthy.replies import KINDS, RESPONDING
from benchmarks.healthy.tally import POLICIES, WAYS, counted_name, timed_name
from benchmarks.load.candidates import TEMPER
from benchmarks.load.results import Results
from temper_evals.report.markdown import markdown_table

SCENARIO = "healthy"
_COLUMNS = {
    "first content": ("first_content_p50", "first_content_p99"),
    "first argument byte": ("first_argument_p50", "first_argument_p99"),
    "tokens held before it": ("first_argument_held_p50", "first_argument_held_p99"),
    "each delta": ("delay_p50", "delay_p99"),
    "tokens held before each delta": ("held_p50", "held_p99"),
    "delay after release": ("late_p50", "late_p99"),
    "complete response": ("total_p50", "total_p99"),
}
_REMARKS = (
    f"- {RESPONDING}: from a model that uses the tool whenever it is available.",
    "- `respond` and `require` are for models that need them. With `respond`, prose is retried "
    "once; with `require`, it is not accepted as an answer. In both cases the retry prompts for a "
    "call, and the model makes one.",
)


def timings(results: Results) -> str:
    """Return the table of the time that Temper added to each kind of reply."""
    rows: list[list[str]] = []
    for kind in KINDS:
        for way in WAYS:
            name = kind if way == "streamed" else f"{kind}, not streamed"
            added = [
                "{} / {}".format(*(_ms(results, kind, way, figure) for figure in pair))
                for pair in _COLUMNS.values()
            ]
            rows.append([name, *map(_as_cell, added), *_counts(results, kind, way)])
    table = markdown_table(["", *_COLUMNS, "generations", "changed"], rows)
    return f"{_origin(results)}\n\n{table}"


def harm(results: Results) -> str:
    """Return the table of changed and retried replies for each text policy."""
    rows = [[kind, *(_harmed(results, policy, kind) for policy in POLICIES)] for kind in KINDS]
    table = markdown_table(["", *(f"`{policy}`" for policy in POLICIES)], rows)
    return "\n".join([_origin(results), "", table, *_REMARKS]) + "\n"


def _harmed(results: Results, policy: str, kind: str) -> str:
    changed, again, replies = (
        _figure(results, counted_name(policy, kind, name))
        for name in ("changed", "again", "replies")
    )
    if changed is None or again is None or replies is None:
        return "-"
    extra = f", {again:.0f} retried" if again else ""
    return f"{changed:.0f} of {replies:.0f}{extra}"


def _counts(results: Results, kind: str, way: str) -> Iterator[str]:
    generations = _figure(results, timed_name(kind, way, "generations"))
    changed = _figure(results, timed_name(kind, way, "changed"))
    replies = _figure(results, "replies")
    yield "-" if generations is None else f"{generations:.2f}"
    yield "-" if changed is None or replies is None else f"{changed:.0f} of {replies:.0f}"


def _ms(results: Results, kind: str, way: str, figure: str) -> str:
    value = _figure(results, timed_name(kind, way, figure))
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def _as_cell(percentiles: str) -> str:
    return "-" if percentiles == "- / -" else percentiles


def _figure(results: Results, name: str) -> float | None:
    return results.figure(SCENARIO, TEMPER, name)


def _origin(results: Results) -> str:
    size = " (`--quick`)" if results.is_quick else ""
    return f"Measured on {results.date}{size}: {results.machine}."
