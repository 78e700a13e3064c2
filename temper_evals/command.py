"""`temper eval`: reads the flags, makes the runs with `evaluation`, and prints the results."""

import asyncio
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click
from click.core import ParameterSource

from proxy.cli.commands import print_json
from proxy.cli.output import echo
from proxy.cli.running import FAILED, run
from proxy.cli.safe_console import SafeConsole
from proxy.cli.status_line import StatusLine, format_seconds, open_status_line
from proxy.cli.usage import Group
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import InvalidConfiguration
from proxy.observability.sentences import visible

if TYPE_CHECKING:
    from temper_evals.evaluation import EvaluationChoice
    from temper_evals.records import RunRecord
    from temper_evals.reply_bed import ReplyCounts
    from temper_evals.runs import ArmProgress

# These options affect only the output, so a resumed evaluation may change them.
_ALLOWED_WITH_RESUME = frozenset({"resume", "as_json", "groups", "card"})
_FOLDER = click.Path(path_type=Path, file_okay=False)
_WIDTH = 100  # columns of the output to a file or a pipe
_BY = click.option(
    "--by",
    "groups",
    type=click.Choice(["family", "failure"]),
    multiple=True,
    help="Show right runs by family, or wrong runs by cause.",
)
_CARD = click.option(
    "--card",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the counts to this new file, to send them in; it has no texts.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


class _Shown(TypedDict):
    """The values of the flags --by and --json."""

    groups: tuple[str, ...]
    as_json: bool


class _GroupWithLists(Group):
    """The command group `temper eval`, whose help ends with lists of the arms and the profiles."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # imported here, because only the help needs these modules
        from temper_evals.arms import PARTS, usual_arms
        from temper_evals.simulated.profiles import profile_names

        arms = [name for name in usual_arms() if "-without-" not in name and "-only-" not in name]
        more = (
            f"temper-without-X (X: {', '.join(PARTS)})",
            f"temper-only-X (X: {', '.join(PARTS)})",
        )
        for title, names in (("Arms", (*arms, *more)), ("Profiles", profile_names())):
            with formatter.section(title):
                formatter.write_text(", ".join(names))


@click.group(name="eval", cls=_GroupWithLists, invoke_without_command=True)
@click.option(
    "--suite",
    default="quick",
    show_default=True,
    help="quick: 60 tasks; full: 25 of each family; or a category of BFCL, such as bfcl:multiple.",
)
@click.option(
    "--benchmark",
    default="",
    help="A benchmark of other authors instead of a suite: bfcl, bfcl:multi_turn, gold, tau2.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How often each task is run, each time with another random seed.",
)
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    help="A simulated model, such as p-small or mismatch; default: n-8b.",
)
@click.option("--grid", "has_grid", is_flag=True, help="Every cell of the grid of error rates.")
@click.option(
    "--family", "families", multiple=True, help="A family of tasks, such as chain; default: all."
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    help="Only tasks with this tag, such as errors; --list shows all tags.",
)
@click.option("--task", "tasks", multiple=True, help="A task by its name, such as chain-0.")
@click.option("--list", "lists", is_flag=True, help="List the tasks with their tags; run nothing.")
@click.option("--untuned", is_flag=True, help="Only tasks that `temper tune` never uses.")
@click.option("--arms", help="Arms to compare, separated by commas, such as direct,temper.")
@click.option("--without", multiple=True, help="Add an arm without this part of Temper.")
@click.option(
    "--model",
    "models",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A GGUF file to start a server for.",
)
@click.option(
    "--backend-url",
    "backend_urls",
    multiple=True,
    help="A running server, such as http://127.0.0.1:8080.",
)
@click.option(
    "--backend-model", multiple=True, help="A model to use, if the server has several; all in turn."
)
@click.option("--ollama", multiple=True, help="A model of the local Ollama.")
@click.option("--scenarios", type=_FOLDER, help="A folder with your scenarios in TOML.")
@click.option("--forge-checkout", type=_FOLDER, help="Run forge's scenarios from this checkout.")
@click.option("--bfcl", type=_FOLDER, help="Data of BFCL; default: that of bfcl-eval.")
@click.option("--replies", type=_FOLDER, help="A folder of recorded replies to play.")
@click.option(
    "--most", type=click.IntRange(1), help="Limit of recorded replies or tasks per category."
)
@click.option("--output", type=_FOLDER, help="Folder for records; default: a temporary one.")
@click.option("--resume", type=_FOLDER, help="Continue the evaluation in this folder.")
@click.option(
    "--pace",
    type=float,
    default=0.02,
    show_default=True,
    help="Seconds to wait per second of a simulated model; 0 does not wait.",
)
@click.option(
    "--keep-all", "keeps_all", is_flag=True, help="Keep the transcripts of good runs, too."
)
@_BY
@_CARD
@_JSON
@click.pass_context
def evaluation(
    context: click.Context,
    /,
    *,
    arms: str | None,
    output: Path | None,
    resume: Path | None,
    groups: tuple[str, ...],
    as_json: bool,
    **flags: object,
) -> None:
    """Measure how much Temper helps, at what cost, and with what harm.

    Without a model of yours, a simulated model is measured that makes errors at published rates.
    """
    from temper_evals.evaluation import check_extra, check_folder, choice_of

    check_extra()
    if context.invoked_subcommand is not None:
        return
    if resume is not None:
        _check_resumed(context)
    named = tuple(name.strip() for name in (arms or "").split(",") if name.strip())
    choice = choice_of(resume, {**flags, "arms": named})
    if flags["lists"]:
        _list_tasks(choice, as_json=as_json)
        return
    folder = resume or output or Path(tempfile.mkdtemp(prefix="temper-eval-"))
    check_folder(folder, choice)
    card = flags["card"]
    if isinstance(card, Path):
        _check_card(card, choice)
    runs = _measure(choice, folder, is_quiet=as_json)
    _show(runs, folder, groups, as_json=as_json)
    if isinstance(card, Path):
        _write_card(card, folder)


def _check_card(file: Path, choice: "EvaluationChoice") -> None:
    """Raise InvalidConfiguration if the card of these runs cannot be made or written.

    Called before the runs, which may take hours.
    """
    from temper_evals.cards.card import check_new_file
    from temper_evals.cards.making import check_choice

    check_choice(choice)
    check_new_file(file)


def _write_card(file: Path, folder: Path) -> None:
    """Make a card from the records in `folder`, write it to `file`, and print its values."""
    from temper_evals.cards.card import write_card
    from temper_evals.cards.making import card_of
    from temper_evals.cards.published import FOLDER, describe

    card = card_of(folder)
    write_card(card, file)
    lines = (
        f"The card: {file}. It contains these values, and no texts, paths, addresses or keys:",
        *(f"  {line}" for line in describe(card)),
        "If the name of the model may be published, you can send the card in: add it to the",
        f"repository as {FOLDER}/{card.file_name}",
    )
    for line in lines:
        echo(line, err=True)


def _list_tasks(choice: "EvaluationChoice", *, as_json: bool) -> None:
    from temper_evals.evaluation import scenarios_of
    from temper_evals.tags import tags_of

    tags_by_task = {scenario.name: tags_of(scenario) for scenario in scenarios_of(choice)}
    if as_json:
        tasks: list[JsonValue] = [
            {"name": name, "tags": [*tags]} for name, tags in tags_by_task.items()
        ]
        print_json({"tasks": tasks})
    for name, tags in () if as_json else tags_by_task.items():
        echo(f"{name:<16} {', '.join(tags)}")


def _check_resumed(context: click.Context) -> None:
    """Refuse other options with --resume: a resumed evaluation keeps its original options."""
    other_options = [
        param.opts[0]
        for param in context.command.params
        if param.name not in _ALLOWED_WITH_RESUME
        and context.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
    ]
    if other_options:
        problem = f"keeps the original options: remove {', '.join(other_options)}"
        raise InvalidConfiguration("--resume", problem)


@evaluation.command()
@click.argument("folder", type=_FOLDER)
@click.option("--html", type=click.Path(path_type=Path), help="Write the page to this file.")
@click.option(
    "--progress",
    "output_format",
    flag_value="progress",
    help="Show only the number of missing runs.",
)
@click.option(
    "--markdown", "output_format", flag_value="markdown", help="Print the table as Markdown."
)
@click.option(
    "--price",
    type=(float, float),
    help="Price of a million tokens of prompts and of replies; adds a column to the Markdown.",
)
@_BY
@_CARD
@_JSON
def report(
    folder: Path,
    html: Path | None,
    *,
    price: tuple[float, float] | None,
    card: Path | None,
    output_format: str | None,
    **shown: Unpack[_Shown],
) -> None:
    """Show the results in a folder, as text or as a page."""
    from temper_evals.evaluation import missing_runs
    from temper_evals.records import read_protocol, read_runs

    protocol, runs = read_protocol(folder), [*read_runs(folder)]
    if output_format == "progress":
        for arm, count in missing_runs(protocol, runs).items():
            echo(f"{arm}: {count} runs missing")
        return
    # imported here: matplotlib takes longer to import than the whole text report
    if html is not None:
        from temper_evals.report.page import write_page

        write_page(html, folder, protocol, runs)
        echo(f"The page: {html}", err=True)
    if card is not None:
        _write_card(card, folder)
    if output_format == "markdown":
        from temper_evals.report.table import Price, markdown
        from temper_evals.results import results_of

        table = markdown(results_of(runs), None if price is None else Price(*price))
        echo(table, nl=False, has_lines=True)
        return
    _show(runs, folder, shown["groups"], as_json=shown["as_json"])


@evaluation.command()
@click.argument("file", type=click.Path(path_type=Path))
@_JSON
def traffic(file: Path, *, as_json: bool) -> None:
    """Show the effect of each rule on recorded traffic.

    FILE is the file of the setting recording.path. Every recorded exchange is judged again,
    offline, without each part of the guardrails and with each value of close_out.
    """
    from temper_evals.traffic import try_rules

    effects = try_rules(file)
    if as_json:
        print_json({"rules": [effect.document() for effect in effects]})
    for effect in () if as_json else effects:
        for line in effect.sentences():
            echo(line)


@evaluation.command()
@click.argument("before", type=_FOLDER)
@click.argument("after", type=_FOLDER)
@_JSON
def compare(before: Path, after: Path, *, as_json: bool) -> None:
    """Compare two evaluations; 1 if an arm became worse."""
    from temper_evals.report.comparison import compare_folders

    changes = compare_folders(before, after)
    if as_json:
        print_json({"arms": [change.document() for change in changes]})
    for change in () if as_json else changes:
        echo(change.sentence())
    sys.exit(FAILED if any(change.is_worse for change in changes) else 0)


@evaluation.command()
@click.argument("folder", type=_FOLDER)
@_JSON
def cards(folder: Path, *, as_json: bool) -> None:
    """Check the result cards in a folder; 1 if one is invalid or has become worse.

    Each card is compared with the previous card of the same model, engine, hardware and tasks. The
    file acknowledged.toml in the folder names the worse rows that are accepted, with the reasons.
    """
    from temper_evals.cards.published import check_folder, table

    published = check_folder(folder)
    if as_json:
        print_json(published.document())
    else:
        echo(table(published.cards), nl=False, has_lines=True)
        for problem in published.problems:
            echo(problem, err=True)
    sys.exit(FAILED if published.problems else 0)


def _measure(choice: "EvaluationChoice", folder: Path, *, is_quiet: bool) -> list["RunRecord"]:
    """Run the tasks. On a terminal, show the current run, and print a line for each finished arm.

    Ctrl-C prints the command that resumes the evaluation, and ends the process.
    """
    from temper_evals.evaluation import evaluate
    from temper_evals.records import read_runs
    from temper_evals.runs import RunsInProgress

    in_progress = RunsInProgress()

    async def work() -> bool:
        with open_status_line(is_wanted=not is_quiet) as status:
            display = _ProgressDisplay(status, in_progress.describe, is_quiet=is_quiet)
            status.begin("starting")
            try:
                await evaluate(
                    choice, folder, display.show, on_step=status.begin, in_progress=in_progress
                )
            except asyncio.CancelledError:
                status.end()
                _print_resume_command(choice, folder)
                return False
            return True

    run(work())
    return [*read_runs(folder)]


def _print_resume_command(choice: "EvaluationChoice", folder: Path) -> None:
    """Print the command that resumes a stopped evaluation.

    The protocol is written before the first run, so a folder without a protocol has no run to
    continue.
    """
    from temper_evals.evaluation import count_planned_runs
    from temper_evals.records import PROTOCOL, read_runs

    if not (folder / PROTOCOL).exists():
        echo("Stopped before the first run.", err=True)
        return
    runs = f"{len([*read_runs(folder)])} of {count_planned_runs(choice)} runs"
    command = f"temper eval --resume {shlex.quote(str(folder))}"
    echo(f"Stopped after {runs}. Continue with: {command}", err=True)


def _count_replies(
    folder: Path, runs: list["RunRecord"]
) -> dict[tuple[str, str, str], "ReplyCounts"]:
    """Count the results of recorded replies by arm, model and category.

    Empty if the evaluation in the folder did not use recorded replies.
    """
    from temper_evals.evaluation import choice_of
    from temper_evals.reply_bed import count_replies, load_replies

    choice = choice_of(folder, {})
    return count_replies(runs, load_replies(choice.replies, choice.most)) if choice.replies else {}


class _ProgressDisplay:
    """Shows the current runs of an arm in the status line, and prints a line for a finished arm.

    `describe` returns the text about the current runs.
    """

    def __init__(self, status: StatusLine, describe: Callable[[], str], *, is_quiet: bool) -> None:
        self._status, self._describe, self._is_quiet = status, describe, is_quiet
        self._arm: ArmProgress | None = None
        self._done_before = 0  # runs of this arm that were finished before a resume
        self._began = time.monotonic()

    def show(self, arm: "ArmProgress") -> None:
        """Show the progress of an arm; called when the arm begins, and after each of its runs."""
        before = self._arm
        if before is None or (before.bed, before.arm) != (arm.bed, arm.arm):
            self._began, self._done_before = time.monotonic(), arm.done
            self._status.begin(self._text)
        self._arm = arm
        if arm.done == arm.of and not self._is_quiet:
            self._status.clear()
            took = format_seconds(time.monotonic() - self._began)
            line = f"{arm.bed} {arm.arm}: {arm.of} runs, {arm.right} right, {took}"
            echo(line, err=True)

    def _text(self) -> str:
        arm = self._arm
        assert arm is not None  # noqa: S101 - the first call of `show` sets it
        counts = f"{arm.arm} {arm.done} of {arm.of}"
        made = arm.done - self._done_before
        if made and arm.done < arm.of:
            seconds = (time.monotonic() - self._began) / made * (arm.of - arm.done)
            counts += f", {arm.right} right, about {format_seconds(seconds)} left"
        # the name of the model comes last, because a narrow terminal cuts off the end
        return f"{counts}: {self._describe() or 'starting'}; {arm.bed}"


def _show(
    runs: list["RunRecord"], folder: Path, groups: Sequence[str] = (), *, as_json: bool
) -> None:
    """Print the verdicts and the tables: help, harm, cost and ceiling of each arm."""
    from temper_evals.records import read_protocol
    from temper_evals.report.table import document, failures, wrong_ends
    from temper_evals.report.terminal import show, show_by, show_categories, show_replies
    from temper_evals.results import results_of

    results, failed = results_of(runs), failures(runs)
    counts = _count_replies(folder, runs)
    if as_json:
        arms: list[JsonValue] = [*map(document, results)]
        result: JsonObject = {"folder": str(folder), "arms": arms, "failures": [*failed]}
        replies: list[JsonValue] = [
            {"arm": arm, "bed": bed, "category": category, **counted.document()}
            for (arm, bed, category), counted in counts.items()
        ]
        print_json({**result, "replies": replies} if counts else result)
        return
    console = SafeConsole(width=None if sys.stdout.isatty() else _WIDTH)
    benchmark = str(read_protocol(folder).get("benchmark", ""))
    if counts:
        show_replies(console, counts)
    elif not benchmark.startswith("gold"):
        show(console, results, runs)
    if benchmark:
        show_categories(console, runs)
    for group in groups:
        show_by(console, group, results, runs)
    for line in (*failed, *wrong_ends(runs)):
        console.print(visible(line))
    echo(f"Records: {folder}")
    echo(f"A page: temper eval report {folder} --html page.html")
