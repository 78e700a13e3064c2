"""Writes docs/evidence.md of the records of a run, and of nothing else."""

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.evals.thresholds import Evidence, Promise, evidence_of, promises
from temper_evals.arms import DIRECT, TEMPER
from temper_evals.records import RunRecord, read_protocol, read_runs
from temper_evals.report.table import HEADINGS, points, rows
from temper_evals.results import ArmResult, compare_runs, results_of
from temper_evals.scenarios.suite import FAMILIES, HELD_OUT
from temper_evals.statistics import RESAMPLES, holm

_HEAD = """# Evidence: does Temper help, at what cost, with what harm?

<!-- written by `python -m benchmarks evidence`; a change by hand is lost -->

The same plain agent loop runs the same tasks with the same random numbers: directly at a model
(`direct`), through Temper (`temper`: its defaults), and through other proxies as their
documentation recommends. The model is **simulated**: it errs at rates that others published
([how](guides/evaluating.md), sources in `config/evals/profiles`). So this page shows what follows
*if* a model fails like that. It does not show that a particular model gets better.

"""
_LIMITS = """
## What this does not show

- Nothing here is a claim about a named model: `temper eval --model FILE` asks yours.
- Intervals are about this suite, whose families are a fixed list. The author of most families knows
  Temper's guardrails; the author of the held-out ones ([above](#held-out)) does not.
- Real errors cluster by model and template, simulated ones do not. Rates come from few models.
- Tools of the suite refuse what their schema forbids; some real ones are more lenient.
- Times are from a busy machine with two cores and a model that takes no time: they compare arms.
  They are no benchmark ([performance](performance.md) is one).
- A bound on harm needs many runs that were right before. "Not shown" means that no harm was seen,
  but in too few runs.
"""


def page(folder: Path, versions: Mapping[str, str]) -> str:
    """Return the page of the records in a folder."""
    parts = {one.name: [*read_runs(one)] for one in sorted(folder.iterdir()) if one.is_dir()}
    evidence = evidence_of({name: runs for name, runs in parts.items() if runs})
    protocol = read_protocol(folder / next(iter(evidence.parts)))
    told = ", ".join(f"{name} {one}" for name, one in versions.items())
    total = sum(map(len, parts.values()))
    made = (
        f"Protocol `{protocol['hash']}` (scenarios, rates and loop), Temper {protocol['temper']}, "
        f"{told}, Python {platform.python_version()}; {total} runs.\n"
    )
    return "".join(
        (
            _HEAD,
            made,
            _promises(promises(evidence)),
            _table("Every arm", evidence.results.get("main", ())),
            _families(evidence),
            _held_out(evidence),
            _table("Controls: what must show nothing", evidence.results.get("controls", ())),
            _table("Traps", evidence.results.get("traps", ())),
            _table("Where nothing is to be called", evidence.results.get("restraint", ())),
            _left_out(evidence),
            _grid(evidence),
            _harms(evidence.parts),
            _LIMITS,
        )
    )


def _lines(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in cells)]) + "\n"


def _promises(found: Sequence[Promise]) -> str:
    cells = [(one.endpoint, one.threshold, one.measured, one.outcome.value) for one in found]
    text = "\n## Promises and results\n\nThe thresholds were fixed before the runs.\n\n"
    return text + _lines(("endpoint", "threshold", "measured", ""), cells)


def _table(title: str, results: Sequence[ArmResult]) -> str:
    return f"\n## {title}\n\n{_lines(HEADINGS, rows(results))}" if results else ""


def _families(evidence: Evidence) -> str:
    """Show right runs by family of the arms that matter most."""
    shown = [
        one
        for one in evidence.results.get("main", ())
        if one.arm in (DIRECT, TEMPER, "temper-respond", "forge", "forge-respond", "ceiling")
    ]
    families = list(dict.fromkeys(name for one in shown for name in one.families))
    cells = [
        (one.bed, one.arm, *(_share(one.families.get(name)) for name in families)) for one in shown
    ]
    return f"\n## By family\n\n{_lines(('bed', 'arm', *families), cells)}" if shown else ""


def _share(counted: tuple[int, int] | None) -> str:
    return "" if counted is None else f"{counted[0]}/{counted[1]}"


def _held_out(evidence: Evidence) -> str:
    """Show the families of the second author beside all others."""
    runs = evidence.parts.get("main", ())
    theirs = results_of(one for one in runs if one.family in HELD_OUT)
    others = {
        (one.bed, one.arm): one for one in results_of(one for one in runs if one.family in FAMILIES)
    }
    cells = [
        (one.bed, one.arm, *_short(one), *_short(others[one.bed, one.arm]))
        for one in theirs
        if (one.bed, one.arm) in others
    ]
    if not cells:
        return ""
    columns = ("right", "lift (95 %)", "gap closed", "harmed")
    headings = ("bed", "arm", *(f"{one}, held out" for one in columns), *columns)
    text = (
        f"\n## Held out\n\nThe families {', '.join(HELD_OUT)}, and how broken calls look in them,\n"
        "are by a second author who has not read how Temper repairs, and were used only for this\n"
        "page. The other columns have all other families.\n\n"
    )
    return text + _lines(headings, cells)


def _short(one: ArmResult) -> tuple[str, ...]:
    return (
        f"{one.right}/{one.runs}",
        "" if one.against is None else points(one.against.lift),
        "" if one.gap is None else f"{100 * one.gap.estimate:.0f} %",
        "" if one.against is None else str(one.against.harmed),
    )


def _left_out(evidence: Evidence) -> str:
    """Show what each part is worth, with p values corrected by Holm."""
    whole = evidence.runs("without", "p-small", TEMPER)
    arms = [one for one in evidence.results.get("without", ()) if "-without-" in one.arm]
    if not whole or not arms:
        return ""
    compared = {
        one.arm: compare_runs(whole, evidence.runs("without", "p-small", one.arm), RESAMPLES)
        for one in arms
    }
    corrected = holm({name: one.p for name, one in compared.items()})
    cells = [
        (name, points(one.lift), str(one.helped), str(one.harmed), f"{corrected[name]:.3f}")
        for name, one in compared.items()
    ]
    headings = ("p-small", "against all parts (95 %)", "better", "worse", "p (Holm)")
    text = "\n## What each part is worth\n\n"
    return text + _lines(headings, cells)


def _grid(evidence: Evidence) -> str:
    """Show the lift in each cell of the grid."""
    cells = [
        (one.bed, points(one.against.lift), str(one.against.helped), str(one.against.harmed))
        for one in evidence.results.get("grid", ())
        if one.arm == TEMPER and one.against is not None
    ]
    if not cells:
        return ""
    text = (
        "\n## The grid\n\nRates, correction and constrained errors at the low, middle and high end "
        "of what is published.\n\n"
    )
    return text + _lines(("cell", "temper - direct (95 %)", "helped", "harmed"), sorted(cells))


def _harms(parts: Mapping[str, Sequence[RunRecord]]) -> str:
    """List every run that Temper's defaults harmed."""
    found: list[str] = []
    for name, runs in parts.items():
        direct = {(one.bed, one.pair): one for one in runs if one.arm == DIRECT}
        for one in runs:
            before = direct.get((one.bed, one.pair))
            if one.arm == TEMPER and not one.right and before is not None and before.right:
                found.append(f"- {name}, {one.bed}, {one.scenario}/{one.seed}: {one.why}")
    listed = "\n".join(found) if found else "None in any part."
    return f"\n## Every harm of the defaults\n\n{listed}\n"
