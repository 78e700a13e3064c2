"""Writes the results as one HTML page that needs no network."""

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.arms import DIRECT
from temper_evals.records import RunRecord, read_transcript
from temper_evals.report import plots
from temper_evals.report.table import HEADINGS, failures, rows
from temper_evals.results import ArmResult, results_of
from temper_evals.scenarios.suite import HELD_OUT
from temper_evals.simulated.profiles import profile_names, sources_of

_MOST_CHARACTERS = 6000


def write_page(path: Path, folder: Path, protocol: JsonObject, runs: Sequence[RunRecord]) -> None:
    path.write_text(page(folder, protocol, runs), encoding="utf-8")


def page(folder: Path, protocol: JsonObject, runs: Sequence[RunRecord]) -> str:
    environment = Environment(
        loader=PackageLoader("temper_evals.report", "."), autoescape=True, undefined=StrictUndefined
    )
    results = results_of(runs)
    families = list(dict.fromkeys(name for result in results for name in result.families))
    return environment.get_template("page.html.jinja").render(
        protocol=protocol,
        runs=len(runs),
        headings=HEADINGS,
        rows=rows(results),
        results=results,
        families=families,
        held_out=[family for family in families if family in HELD_OUT],
        failures=failures(runs),
        options=_options(protocol),
        pictures=_pictures(results),
        harms=_harms(folder, results, runs),
        sources=_sources(results),
    )


def _options(protocol: JsonObject) -> str:
    """Return the chosen suite and the number of seeds; "" if unknown."""
    choice = protocol.get("choice")
    if not isinstance(choice, dict):
        return ""
    folder = choice.get("scenarios")
    what = f"the scenarios of {folder}" if folder else f"the suite {choice.get('suite')}"
    seeds = choice.get("seeds")
    return f"{what}, {seeds} seed" + ("" if seeds == 1 else "s")


def _pictures(results: Sequence[ArmResult]) -> list[plots.ResultPicture]:
    beds = list(dict.fromkeys(result.bed for result in results))
    drawn = [plots.lifts(results), plots.help_and_harm(results)]
    for bed in beds:
        if "@" not in bed:
            drawn += [plots.forest(results, bed), plots.cost_against_success(results, bed)]
    swept = dict.fromkeys(bed.partition("@")[0] for bed in beds if "@" in bed)
    return drawn + [plots.grid_map(results, profile) for profile in swept]


def _harms(
    folder: Path, results: Sequence[ArmResult], runs: Sequence[RunRecord]
) -> list[dict[str, str]]:
    """Return each harmed run with the transcripts of both arms."""
    direct = {(run.bed, run.pair): run for run in runs if run.arm == DIRECT}
    return [
        {
            "title": f"{run.bed} {run.arm} {run.scenario}/{run.seed}",
            "why": run.why,
            "arm": run.arm,
            "direct": _messages_text(read_transcript(folder, direct[run.bed, run.pair])),
            "transcript": _messages_text(read_transcript(folder, run)),
        }
        for result in results
        if result.against is not None
        for run in result.against.harms
    ]


def _messages_text(messages: Sequence[JsonValue]) -> str:
    return "\n".join(map(json.dump_text, messages))[:_MOST_CHARACTERS]


def _sources(results: Sequence[ArmResult]) -> dict[str, dict[str, str]]:
    beds = dict.fromkeys(result.bed.partition("@")[0] for result in results)
    return {bed: sources_of(bed) for bed in beds if bed in profile_names()}
