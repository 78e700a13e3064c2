"""`python -m benchmarks.dashboard`: what the dashboard costs a chat, with and without watchers.

Temper runs with the page switched off (twice: the two tell how much is noise), and with it; the
latter is measured without a watcher and with one. All run at the same time and are asked in turn,
so that they share the weather, and what counts is the CPU time of each for the same requests.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from benchmarks.load.candidates import REPOSITORY, Launch
from benchmarks.load.client import Target
from benchmarks.load.processes import free_port, pinned
from benchmarks.load.replies import Behaviour
from benchmarks.load.subjects import Subject, launched, mock_backend
from benchmarks.load.workloads import Workload

OFF, AGAIN, ON, WATCHED = "off", "off, again", "on, nobody watches", "on, one watches"
_AT_ONCE = 16
_WATCH = b"GET /ui/api/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the ratios; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--requests", type=int, default=800, help="of each round")
    chosen = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(pinned(0))
        url = stack.enter_context(mock_backend(folder))
        subjects = {
            name: stack.enter_context(_temper(url, folder / f"{name}.log", is_on=name == ON))
            for name in (OFF, AGAIN, ON)
        }
        subjects[WATCHED] = subjects[ON]
        rounds = asyncio.run(_measured(subjects, chosen.rounds, chosen.requests))
    ratios = shares(rounds)
    for name, ratio in ratios.items():
        used = statistics.median(one[name] for one in rounds)
        print(f"{name:<20} {used * 1e6:7.1f} us of CPU a request   {ratio - 1:+.1%}")  # noqa: T201
    return int(ratios[WATCHED] > 1.03 + abs(ratios[AGAIN] - 1))


def shares(rounds: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return what each has used beside the page switched off: the median of all rounds."""
    return {name: statistics.median(one[name] / one[OFF] for one in rounds) for name in rounds[0]}


def _temper(url: str, log: Path, *, is_on: bool) -> contextlib.AbstractContextManager[Subject]:
    port = free_port()
    serve = ("-m", "proxy", "serve", "--backend-url", url, "--port", str(port))
    environment = {"TEMPER_UI__ENABLED": str(is_on).lower(), "PYTHONHASHSEED": "0"}
    launch = Launch((sys.executable, *serve), environment=environment, folder=REPOSITORY)
    return launched(launch, port, log, core=1)


async def _measured(
    subjects: dict[str, Subject], rounds: int, requests: int
) -> list[dict[str, float]]:
    found: list[dict[str, float]] = []
    for number in range(rounds + 1):
        seconds = {}
        for name in _turned([*subjects], number):
            watching = _watching(subjects[name].target) if name == WATCHED else _nobody()
            async with watching:
                seconds[name] = await _seconds_each(subjects[name], requests)
        if number:  # the first one only warms up
            found.append({name: seconds[name] for name in subjects})
    return found


def _turned(names: list[str], number: int) -> list[str]:
    """Let another one begin each time."""
    at = number % len(names)
    return names[at:] + names[:at]


async def _seconds_each(subject: Subject, requests: int) -> float:
    """Return the CPU seconds that a request takes."""
    workload = Workload(Behaviour("call"), is_streamed=False)
    before = subject.usage()
    await asyncio.gather(
        *(_ask(subject.target, workload, requests // _AT_ONCE) for _ in range(_AT_ONCE))
    )
    after = subject.usage()
    if before is None or after is None:
        raise SystemExit("the CPU time of a process cannot be read here")
    return (after.cpu_seconds - before.cpu_seconds) / (requests // _AT_ONCE * _AT_ONCE)


async def _ask(target: Target, workload: Workload, requests: int) -> None:
    connection = await target.connect()
    try:
        for _ in range(requests):
            answer = await connection.send(target.request(workload.body))
            if problem := workload.problem(answer):
                raise SystemExit(f"an answer is not right: {problem}")
    finally:
        connection.close()


@contextlib.asynccontextmanager
async def _watching(target: Target) -> AsyncIterator[None]:
    """Read the feed, and throw it away."""
    host, _, port = target.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(_WATCH)
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head:
        raise SystemExit(f"there is no feed: {head!r}")
    reading = asyncio.create_task(reader.read(-1))
    try:
        yield
    finally:
        reading.cancel()
        writer.close()


@contextlib.asynccontextmanager
async def _nobody() -> AsyncIterator[None]:
    yield


if __name__ == "__main__":
    sys.exit(main())
