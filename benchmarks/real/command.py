"""`python -m benchmarks real`: runs the bed with real models and prints the table."""

import argparse
import asyncio
import importlib.util
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.load import peers
from benchmarks.real.arms import ARMS, REQUEST_SECONDS, OpenArm, Workplace, recorded_generations
from benchmarks.real.bed import Task, ToolSet
from benchmarks.real.judging import JudgedRun, identical_calls, judge_run
from benchmarks.real.shop import SHOP
from benchmarks.real.table import ArmReport, markdown
from benchmarks.real.travel import TRAVEL
from benchmarks.real.workspace import WORKSPACE
from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.errors import TemperError

if TYPE_CHECKING:
    from benchmarks.real.loop import Sampling

TOOL_SETS = (SHOP, WORKSPACE, TRAVEL)
TASKS: dict[int, tuple[ToolSet, Task]] = dict(
    enumerate(((tools, task) for tools in TOOL_SETS for task in tools.tasks), 1)
)
_NAMES = frozenset(name for tools in TOOL_SETS for name in tools.names)
_DEFAULT_ARMS = ("direct", "temper")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, nargs="+", required=True, help="GGUF files")
    parser.add_argument(
        "--only", nargs="+", choices=ARMS, default=_DEFAULT_ARMS, help="default: direct temper"
    )
    parser.add_argument("--tasks", type=_numbers, default=[*TASKS], help="such as 1,5; default all")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each task; default 1")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--json", type=Path, metavar="OUT", help="write all transcripts here")
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
    """Run the command; returns the exit code."""
    if importlib.util.find_spec("openai") is None:
        sys.stderr.write("The OpenAI SDK is missing: pip install -e '.[embedded,dev]'\n")
        return 2
    if absent := [path for path in chosen.model if not path.is_file()]:
        sys.stderr.write(f"No such file: {absent[0]}. docs/guides/real-models.md names models.\n")
        return 2
    reports: list[ArmReport] = []
    try:
        asyncio.run(_measure(chosen, reports))
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted: the table has the tasks that were completed.\n")
    except TemperError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"\n{markdown(reports)}")
    return 0


async def _measure(chosen: argparse.Namespace, reports: list[ArmReport]) -> None:
    workplace = Workplace(chosen.peers.resolve())
    for model in chosen.model:
        for arm in chosen.only:
            if reason := workplace.missing(arm):
                sys.stderr.write(f"{arm}: skipped: {reason}\n")
                continue
            async with workplace.open(arm, model) as opened:
                reports.append(ArmReport(model.stem, arm))
                async for report in _run_arm(chosen, arm, opened):
                    reports[-1] = report
                    _save(chosen.json, reports)


def _save(path: Path | None, reports: Sequence[ArmReport]) -> None:
    documents: list[JsonValue] = [report.document() for report in reports]
    if path is not None:
        path.write_bytes(json.dump(documents))


async def _run_arm(
    chosen: argparse.Namespace, arm: str, opened: OpenArm
) -> AsyncGenerator[ArmReport, None]:
    """Yield a report after each task: an arm takes minutes to hours and may be interrupted."""
    from benchmarks.real.loop import Sampling

    before = await opened.tokens()
    judged: list[JudgedRun] = []
    for seed in range(1, chosen.seeds + 1):
        for number in chosen.tasks:
            task_run = await _run_task(number, opened, Sampling(chosen.temperature, seed))
            judged.append(task_run)
            sys.stderr.write(_line(arm, task_run))
            yield ArmReport(
                opened.target.model,
                arm,
                tuple(judged),
                tuple(TASKS[run.run.number][1].kind for run in judged),
                await opened.tokens() - before,
                _generations(arm, judged),
                _identical(arm, opened, judged),
            )


async def _run_task(number: int, opened: OpenArm, sampling: "Sampling") -> JudgedRun:
    from openai import AsyncOpenAI

    from benchmarks.real.loop import Loop

    tools, task = TASKS[number]
    async with AsyncOpenAI(
        base_url=f"{opened.target.url}/v1",
        api_key=opened.api_key,
        timeout=REQUEST_SECONDS,
        max_retries=0,
    ) as client:
        run = await Loop(client, opened.target.model, sampling).run_task(number, task, tools)
    return judge_run(run, task, tools)


def _line(arm: str, judged: JudgedRun) -> str:
    run = judged.run
    word = "right" if judged.right else "WRONG"
    calls = ", ".join(call.key for call in run.calls)
    last = run.replies[-1].text if run.replies else ""
    why = run.problem or str(judged.verdict)
    head = f"{arm} {run.number:2d} {word} {run.seconds:6.1f} s {len(run.replies)} requests"
    return f"{head} | {why} | {calls} | {last[:160]!r}\n"


def _generations(arm: str, judged: Sequence[JudgedRun]) -> int | None:
    replies = [reply for run in judged for reply in run.run.replies]
    if arm == "direct":
        return len(replies)
    counted = [reply.attempts for reply in replies if reply.attempts is not None]
    return sum(counted) if len(counted) == len(replies) else None


def _identical(arm: str, opened: OpenArm, judged: Sequence[JudgedRun]) -> int | None:
    """Return the most copies of a call in one generation; None if generations are not visible."""
    if opened.recording is not None:
        generations = [*recorded_generations(opened.recording)]
    elif arm == "direct":
        texts = [reply.text for run in judged for reply in run.run.replies]
        generations = [[["text", text]] for text in texts]
    else:
        return None
    return max((identical_calls(pieces, _NAMES) for pieces in generations), default=0)
