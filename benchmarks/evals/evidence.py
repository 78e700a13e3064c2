"""Writes the simulated part of docs/evidence.md from the records of a run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.evals.goals import ROW_HEADINGS, goals, reply_goals, rows_beside_forge
from benchmarks.evals.publishing import COMMITS, REPLIES, TUNING
from benchmarks.evals.thresholds import Evidence, Promise, evidence_of, promises
from proxy.conversation import json
from temper_evals.arms import AGAIN, CEILING, DIRECT, TEMPER
from temper_evals.evaluation import choice_of
from temper_evals.records import PROTOCOL, RunRecord, read_protocol, read_runs
from temper_evals.reply_bed import ReplyCounts, count_replies, load_replies
from temper_evals.report.markdown import markdown_table
from temper_evals.report.table import HEADINGS, points, rows
from temper_evals.report.terminal import reply_cells
from temper_evals.results import ArmResult, compare_runs, results_of
from temper_evals.scenarios.suite import FAMILIES, HELD_OUT
from temper_evals.statistics import RESAMPLES, holm

_REAL = """# Evidence: does Temper help, at what cost, with what harm?

## Real models

[Method](guides/real-models.md#the-closed-loop)

<!-- figures: real -->

<!-- end of figures -->
"""
_SIMULATED = "\n## Simulated models\n"
_HEAD = f"""{_SIMULATED}

<!-- written by `python -m benchmarks evidence`; a change by hand is lost -->

The model in the rest of this page is **simulated**: it makes errors at rates that others published
([method](guides/evaluating.md), sources in `config/evals/profiles`). The page shows the effect of
Temper *if* a model fails and reacts like that, not that a particular model gets better. Measure
your model with `temper eval` and `temper tune`.

The same plain agent loop runs the same tasks with the same random numbers in several arms:
directly at the model (`direct`), through Temper with its defaults (`temper`, and the control
`temper-again`), with the settings that `temper tune` found on other random numbers
(`temper-tuned`), and through other proxies as their documentation recommends; `forge-respond` is
forge with the `respond` tool. A *bed* is a simulated model, named after its profile.

"""
_LIMITS = """
## What this does not show

- The page makes no claim about a named model: measure yours with `temper eval --model FILE`.
- Intervals apply to this suite, whose families are a fixed list. The author of most families knows
  Temper's guardrails; the author of the held-out families ([above](#held-out)) does not.
- Real errors cluster by model and template; simulated errors do not. The rates come from few
  models.
- The tools of the suite refuse arguments that violate their schema; some real tools are more
  lenient.
- Times were measured on a shared machine with a model that takes no time. They compare arms and are
  not a benchmark (see [performance](performance.md)).
- A bound on harm needs many runs that were right before. "Not shown" means that no harm occurred in
  too few runs.
"""
_HARMS = """A harm is a run that is right directly and wrong with Temper.
[Decision 27](decisions/0027-close-out-check.md) lists the causes that were found in such runs, and
the changes. The remaining causes are: a needless call written as text, which is right without a
proxy only because it is not parsed; a needless call that a retry corrected into a valid one; a call
that a tool's result quotes and whose values the user names; and different random numbers after a
reply that was retried or repaired.

"""
_SMALL_MODELS = "Small models that repeat calls and echo results"
_ORIGIN = (
    "The goals were fixed in the design before any run. This table was made when three beds had\n"
    "been run.\n\n"
)


def page(folder: Path, versions: Mapping[str, str], before: str = "") -> str:
    """Return the page; the part about real models is copied from `before`, the current page."""
    folders = [path for path in sorted(folder.iterdir()) if path.is_dir() and path.name != REPLIES]
    parts = {folder.name: [*read_runs(folder)] for folder in folders}
    verdicts = _tuned(folder)
    evidence = evidence_of({name: runs for name, runs in parts.items() if runs}, verdicts)
    first = "main" if "main" in evidence.parts else next(iter(evidence.parts))
    protocol = read_protocol(folder / first)
    commits = folder / COMMITS
    commit = (
        ", ".join(commits.read_text("utf-8").split("\n")).strip(", ") if commits.exists() else ""
    )
    proxy_versions = ", ".join(f"{name} {version}" for name, version in versions.items())
    total = sum(map(len, parts.values()))
    made = (
        f"Protocol `{protocol['hash']}` (scenarios, rates and loop), guardrails and nudges "
        f"`{protocol.get('guardrails', 'unknown')}`, commit `{commit or 'unknown'}`, "
        f"Temper {protocol['temper']}, "
        f"{proxy_versions}, Python {protocol.get('python')}; {total} runs. Seeds of each part: "
        f"{_seeds(evidence.parts)}. The page aims at five of `main` on six beds (`--size full`).\n"
    )
    return "".join(
        (
            before.partition(_SIMULATED)[0] or _REAL,
            _HEAD,
            made,
            _compared_with_forge(evidence),
            _goals(evidence),
            _tuning(verdicts),
            _promises(evidence),
            _every_arm(evidence.results.get("main", ())),
            _held_out(evidence),
            _table("Models that act again after a retry", evidence.results.get("over-acting", ())),
            _table(_SMALL_MODELS, evidence.results.get("small-models", ())),
            _table("Traps", evidence.results.get("traps", ())),
            _table("Tasks without a due call", evidence.results.get("restraint", ())),
            _without_parts(evidence),
            _answer_tool(folder, evidence),
            _grid(folder, evidence),
            _replies(folder),
            _harms(evidence.parts),
            _LIMITS,
        )
    )


def _seeds(parts: Mapping[str, Sequence[RunRecord]]) -> str:
    parts_seeds: list[str] = []
    for name, runs in parts.items():
        seeds: dict[str, set[int]] = {}
        for run in runs:
            seeds.setdefault(run.arm, set()).add(run.seed)
        arms = {arm: len(numbers) for arm, numbers in seeds.items()}
        most = max(arms.values())
        fewer = [f"{arm} {count}" for arm, count in arms.items() if count < most]
        parts_seeds.append(f"{name} {most}" + (f" ({', '.join(fewer)})" if fewer else ""))
    return ", ".join(parts_seeds)


def _replies(folder: Path) -> str:
    """Return the section on recorded replies of real models; "" if the folder has no such part."""
    part = folder / REPLIES
    if not (part / PROTOCOL).exists():
        return ""
    choice = choice_of(part, {})
    assert choice.replies is not None  # noqa: S101 - `python -m benchmarks replies` made it
    counts = count_replies(read_runs(part), load_replies(choice.replies, choice.most))
    totals = {key: counted for key, counted in counts.items() if key[1] == "all"}
    columns = ("n", "right", "95 %", "own", "lost", "asked", "wrong", "needless", "again", "failed")
    cells = [
        (arm, category, *reply_cells(counted)) for (arm, _, category), counted in totals.items()
    ]
    protocol = read_protocol(part)
    models = len({bed for _, bed, _ in counts} - {"all"})
    text = (
        f"\n## Replies of real models\n\nUp to {choice.most} recorded replies of each of {models} "
        "models and each category, played by a scripted backend\n([columns]"
        "(guides/evaluating.md#recorded-replies)). There is no closed loop. The possible answers\n"
        "to a few questions have changed since; these count as wrong in every arm. Guardrails "
        f"and nudges `{protocol.get('guardrails')}`.\n\n"
    )
    return text + markdown_table(("arm", "category", *columns), cells) + _reply_goals(totals)


def _reply_goals(counts: Mapping[tuple[str, str, str], ReplyCounts]) -> str:
    promises = [
        promise
        for (arm, _, category), counted in counts.items()
        if arm == TEMPER
        for promise in reply_goals(category, counted)
    ]
    return "\n" + markdown_table(_COLUMNS, _cells(promises))


def _tuned(folder: Path) -> dict[str, list[str]]:
    files = sorted((folder / TUNING).glob("*.json"))
    documents = {file.stem: json.parse(file.read_bytes()) for file in files}
    verdicts = {
        bed: document.get("verdicts")
        for bed, document in documents.items()
        if isinstance(document, dict)
    }
    return {
        bed: [*map(str, listed)] for bed, listed in verdicts.items() if isinstance(listed, list)
    }


def _compared_with_forge(evidence: Evidence) -> str:
    cells = rows_beside_forge(evidence)
    text = (
        "\n## Temper and forge\n\nShares of right runs in percent. A harmed run is right without a "
        "proxy and wrong with it.\n\n"
    )
    return text + markdown_table(ROW_HEADINGS, cells) if cells else ""


def _goals(evidence: Evidence) -> str:
    promises = goals(evidence)
    text = "\n## Goals and results\n\n" + _ORIGIN
    return text + _by_bed(promises, evidence.beds("main")) if promises else ""


def _tuning(verdicts: Mapping[str, Sequence[str]]) -> str:
    """Return the section on what tuning decided; its seeds are not those of the runs."""
    settings = dict.fromkeys(
        verdict.partition(": ")[0] for listed in verdicts.values() for verdict in listed
    )
    by_setting = {bed: dict(each.split(": ", 1) for each in verdicts[bed]) for bed in verdicts}
    cells = [
        (bed, *(decided.get(setting, "") for setting in settings))
        for bed, decided in by_setting.items()
    ]
    text = "\n## What `temper tune` decided\n\n"
    return text + markdown_table(("bed", *settings), cells) if cells else ""


_COLUMNS = ("endpoint", "threshold", "measured", "")


def _cells(promises: Sequence[Promise]) -> list[tuple[str, ...]]:
    return [
        (promise.endpoint, promise.threshold, promise.measured, promise.outcome.value)
        for promise in promises
    ]


def _by_bed(promises: Sequence[Promise], beds: Sequence[str]) -> str:
    """Return a table with a row per measured value and a column per model setup (bed).

    A second table has the promises that are not about a single bed.
    """
    by_endpoint: dict[tuple[str, str], dict[str, str]] = {}
    others: list[Promise] = []
    for promise in promises:
        bed, colon, endpoint = promise.endpoint.replace(", ", ": ", 1).partition(": ")
        if colon and bed in beds:
            cell = f"{promise.measured}: {promise.outcome.value}"
            by_endpoint.setdefault((endpoint, promise.threshold), {})[bed] = cell
        else:
            others.append(promise)
    cells = [(*key, *(row.get(bed, "") for bed in beds)) for key, row in by_endpoint.items()]
    tables = [markdown_table(("endpoint", "threshold", *beds), cells)] if cells else []
    return "\n".join((*tables, *([markdown_table(_COLUMNS, _cells(others))] if others else ())))


def _promises(evidence: Evidence) -> str:
    text = (
        "\n## Promises of the first edition\n\nThe thresholds are unchanged and older than the "
        "rates of today's simulated model; more traps are\nneeded than then.\n\n"
    )
    return text + _by_bed(promises(evidence), evidence.beds("main"))


def _every_arm(results: Sequence[ArmResult]) -> str:
    """Return the table of all arms, except the ceiling (it has a column) and `temper-again`."""
    cells = [row for row in rows(results) if row[1] not in (AGAIN, CEILING)]
    return f"\n## Every arm\n\n{markdown_table(HEADINGS, cells)}" if cells else ""


def _table(title: str, results: Sequence[ArmResult]) -> str:
    return f"\n## {title}\n\n{markdown_table(HEADINGS, rows(results))}" if results else ""


def _held_out(evidence: Evidence) -> str:
    """Return the section that compares the held-out families of tasks with all others."""
    runs = evidence.parts.get("main", ())
    runs = [run for run in runs if run.arm not in (AGAIN, CEILING)]
    held_out = results_of(run for run in runs if run.family in HELD_OUT)
    others = {
        (result.bed, result.arm): result
        for result in results_of(run for run in runs if run.family in FAMILIES)
    }
    cells = [
        (result.bed, result.arm, *_short(result), *_short(others[result.bed, result.arm]))
        for result in held_out
        if (result.bed, result.arm) in others
    ]
    if not cells:
        return ""
    columns = ("right", "lift (95 %)", "harmed")
    headings = ("bed", "arm", *(f"{column}, held out" for column in columns), *columns)
    text = (
        f"\n## Held out\n\nThe families {', '.join(HELD_OUT)} and their broken calls\n"
        "are by a second author who has not read how Temper repairs. They were used only for this\n"
        "page. The other columns contain all other families.\n\n"
    )
    return text + markdown_table(headings, cells)


def _short(result: ArmResult) -> tuple[str, ...]:
    return (
        f"{result.right}/{result.runs}",
        "" if result.against is None else points(result.against.lift),
        "" if result.against is None else str(result.against.harmed),
    )


def _without_parts(evidence: Evidence) -> str:
    """Return the section on Temper without each part, with p-values corrected by Holm's method."""
    defaults = evidence.runs("without", "p-small", TEMPER)
    arms = [
        result
        for result in evidence.results.get("without", ())
        if result.arm not in (DIRECT, TEMPER)
    ]
    if not defaults or not arms:
        return ""
    compared = {
        arm.arm: compare_runs(defaults, evidence.runs("without", "p-small", arm.arm), RESAMPLES)
        for arm in arms
    }
    corrected = holm({name: paired.p for name, paired in compared.items()})
    cells = [
        (
            name,
            points(paired.lift),
            str(paired.helped),
            str(paired.harmed),
            f"{corrected[name]:.3f}",
        )
        for name, paired in compared.items()
    ]
    headings = ("p-small", "against all parts (95 %)", "better", "worse", "p (Holm)")
    text = "\n## The effect of each part\n\n"
    return text + markdown_table(headings, cells)


def _answer_tool(folder: Path, evidence: Evidence) -> str:
    """Return the section on the answer tool `respond`.

    The tool prevents a different share of needless calls in each of the models.
    """
    results = evidence.results.get("answer-tool", ())
    if not results:
        return ""
    text = (
        "\n## Models that an answer tool restrains\n\nThe rate at which such a tool "
        "prevents a needless call is an assumption (0.4 for `p-small`), so it is varied.\n"
        "Five seeds of the quick "
        f"tasks. {_code_of(folder, 'answer-tool')}\n\n"
    )
    return text + markdown_table(HEADINGS, rows(results))


def _code_of(folder: Path, part: str) -> str:
    return f"Guardrails and nudges `{read_protocol(folder / part).get('guardrails')}`."


def _grid(folder: Path, evidence: Evidence) -> str:
    """Return the section on the grid: the lift for each variation of the simulated model (cell)."""
    cells = [
        (
            result.bed,
            points(result.against.lift),
            str(result.against.helped),
            str(result.against.harmed),
        )
        for result in evidence.results.get("grid", ())
        if result.arm == TEMPER and result.against is not None
    ]
    if not cells:
        return ""
    pairs = max(result.runs for result in evidence.results["grid"])
    text = (
        "\n## The grid\n\nRates, correction and constrained errors at the low, middle and high end "
        "of the published values, and each\nreaction varied separately. One seed of the quick "
        f"tasks, {pairs} pairs per cell. {_code_of(folder, 'grid')}\n\n"
    )
    return text + markdown_table(
        ("cell", "temper - direct (95 %)", "helped", "harmed"), sorted(cells)
    )


def _harms(parts: Mapping[str, Sequence[RunRecord]]) -> str:
    """Return the section on the runs that Temper's defaults harmed, by part and kind of failure."""
    counts: Counter[tuple[str, str]] = Counter()
    for name, runs in parts.items():
        direct = {(run.bed, run.pair): run for run in runs if run.arm == DIRECT}
        for run in runs:
            before = direct.get((run.bed, run.pair))
            if run.arm == TEMPER and not run.right and before is not None and before.right:
                counts[name, run.why.partition(":")[0]] += 1
    cells = [(name, kind, str(count)) for (name, kind), count in sorted(counts.items())]
    table = markdown_table(("part", "failure", "runs"), cells) if cells else "None in any part.\n"
    return f"\n## Runs that the defaults harmed\n\n{_HARMS}{table}"
