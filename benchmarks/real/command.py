"""`python -m benchmarks real`: runs the tasks with real models and prints the tables."""

import argparse
import asyncio
import contextlib
import importlib.util
import itertools
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from benchmarks import pages
from benchmarks.evals import proxies
from benchmarks.load import peers
from benchmarks.real.arms import ARMS, REQUEST_SECONDS, ArmStarter, OpenArm
from benchmarks.real.cards import cards_of, note_model
from benchmarks.real.judging import TaskRun, identical_calls
from benchmarks.real.records import Record, Records
from benchmarks.real.table import markdown
from benchmarks.real.tasks import TASKS, TOOL_SETS
from proxy.errors import TemperError
from temper_evals.cards.card import write_card
from temper_evals.cards.published import describe

if TYPE_CHECKING:
    from benchmarks.real.loop import Sampling

Planned: TypeAlias = tuple[int, "Sampling"]  # the number of a task, and its seed

_NAMES = frozenset(name for tools in TOOL_SETS for name in tools.names)
_DEFAULT_ARMS = ("direct", "temper")
# With a model of 1.5B on two cores, a task takes 20 s. Without a limit, a model that repeats itself
# in each request would take an hour.
_TASK_SECONDS = 180.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("output", type=Path, metavar="OUT", help="folder of records; continued")
    parser.add_argument("--model", type=Path, nargs="+", default=[], help="GGUF files")
    parser.add_argument(
        "--only", nargs="+", choices=ARMS, default=_DEFAULT_ARMS, help="default: direct temper"
    )
    parser.add_argument("--tasks", type=_numbers, default=[*TASKS], help="such as 1,5; default all")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each task; default 1")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="stop after this time")
    parser.add_argument("--into", type=Path, nargs="+", default=(), help="pages to update")
    parser.add_argument(
        "--card", type=Path, metavar="DIR", help="write a result card of each model"
    )
    parser.add_argument("--peers", type=Path, default=peers.default_folder())
    parser.set_defaults(command=run)


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"not numbers with commas: {text}") from None
    if unknown := [number for number in numbers if number not in TASKS]:
        raise argparse.ArgumentTypeError(f"there are tasks 1 to {len(TASKS)}, not {unknown[0]}")
    return numbers


def run(chosen: argparse.Namespace) -> int:
    """Run the missing tasks, then show the tables; returns the exit code."""
    if importlib.util.find_spec("openai") is None:
        sys.stderr.write("The OpenAI SDK is missing: pip install -e '.[embedded,dev]'\n")
        return 2
    if absent := [path for path in chosen.model if not path.is_file()]:
        sys.stderr.write(f"No such file: {absent[0]}. docs/guides/real-models.md names models.\n")
        return 2
    try:
        records = Records(chosen.output, chosen.temperature)
        with contextlib.suppress(KeyboardInterrupt):  # the same command runs the missing tasks
            asyncio.run(_measure(chosen, records))
        _show(chosen, records)
        if chosen.card is not None:
            _write_cards(chosen.card, records)
    except TemperError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _write_cards(folder: Path, records: Records) -> None:
    for card in cards_of(records):
        path = folder / card.file_name
        write_card(card, path)
        sys.stderr.write("\n  ".join((f"The card: {path}", *describe(card))) + "\n")


def _show(chosen: argparse.Namespace, records: Records) -> None:
    text = markdown([*records], records.protocol)
    for page in chosen.into:
        page.write_text(pages.renew(page.read_text("utf-8"), {"real": text}), "utf-8")
    if not chosen.into:
        sys.stdout.write(f"\n{text}")


async def _measure(chosen: argparse.Namespace, records: Records) -> None:
    starter = ArmStarter(chosen.peers.resolve(), chosen.output.resolve() / "tuned")
    until = time.monotonic() + 60 * chosen.minutes
    if chosen.model:
        models = {model.stem: model for model in chosen.model}
        records.note_environment(models, proxies.versions(chosen.peers))
    for model, arm in itertools.product(chosen.model, chosen.only):
        planned = _missing(chosen, records, model.stem, arm)
        if planned and (reason := starter.missing(arm)):
            sys.stderr.write(f"{arm}: skipped: {reason}\n")
        elif planned and time.monotonic() < until:
            note_model(records, model)
            names, opening = (model.stem, arm), starter.open(arm, model)
            await _run_arm(opening, names, _until(until, planned), records)


def _missing(chosen: argparse.Namespace, records: Records, model: str, arm: str) -> list[Planned]:
    """Return the tasks of an arm that have no record."""
    from benchmarks.real.loop import Sampling

    done = {record.key for record in records}
    return [
        (number, Sampling(chosen.temperature, seed))
        for seed in range(1, chosen.seeds + 1)
        for number in chosen.tasks
        if (model, arm, number, seed) not in done
    ]


def _until(end: float, planned: Sequence[Planned]) -> Iterator[Planned]:
    """Yield the planned tasks until the time `end`."""
    for task in planned:
        if time.monotonic() >= end:
            sys.stderr.write("The time is over; the same command runs the missing tasks.\n")
            return
        yield task


async def _run_arm(
    opening: AbstractAsyncContextManager[OpenArm],
    names: tuple[str, str],
    planned: Iterable[Planned],
    records: Records,
) -> None:
    async with opening as running:
        records.note("server", running.engine_build)
        for number, sampling in planned:
            record = await _run_task(number, names, running, sampling)
            records.add(record)
            sys.stderr.write(_line(record))


async def _run_task(
    number: int, names: tuple[str, str], running: OpenArm, sampling: "Sampling"
) -> Record:
    from openai import AsyncOpenAI

    from benchmarks.real.loop import Loop

    tools, task = TASKS[number]
    tokens, generations = await running.tokens(), running.relay.generations
    recorded = running.count_recorded()
    async with AsyncOpenAI(
        base_url=f"{running.target.url}/v1",
        api_key=running.api_key,
        timeout=REQUEST_SECONDS,
        max_retries=0,
    ) as client:
        loop = Loop(client, running.target.model, sampling, _TASK_SECONDS)
        task_run = await loop.run_task(number, task, tools)
    return Record(
        *names,
        task_run,
        await running.tokens() - tokens,
        running.relay.generations - generations,
        _identical(names[1], running, recorded, task_run),
    )


def _line(record: Record) -> str:
    task_run, judged = record.run, record.judged
    word = "right" if judged.right else "WRONG"
    calls = ", ".join(call.key for call in task_run.calls)
    last = task_run.replies[-1].text if task_run.replies else ""
    why = task_run.problem or str(judged.verdict)
    head = f"{record.model} {record.arm} {task_run.number:2d} {word} {task_run.seconds:6.1f} s"
    counts = f"{len(task_run.replies)} requests, {record.generations} generations"
    return f"{head} {counts} | {why} | {calls} | {last[:160]!r}\n"


def _identical(arm: str, running: OpenArm, recorded: int, task_run: TaskRun) -> int | None:
    """Return the largest number of equal calls in a generation; None if the arm records none."""
    if running.recording is not None:
        generations = running.recorded_generations(recorded)
    elif arm == "direct":
        generations = [[["text", reply.text]] for reply in task_run.replies]
    else:
        return None
    return max((identical_calls(pieces, _NAMES) for pieces in generations), default=0)
