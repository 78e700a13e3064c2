"""`python -m benchmarks.dashboard`: what the dashboard costs a chat, with and without watchers.

Temper runs with the page switched off (twice: the two tell how much is noise), and with it; the
latter is measured without a watcher and with one, who has seen the state already. All run at the
same time and are asked in turn; and all are started several times, because two processes of the
same program differ by some percent for as long as they live. What counts is the CPU time of each
for the same requests: it leaves out what the watcher, the client and the backend take, which run in
other processes on another core. The time on the clock is told as well; it has all of them in it.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from benchmarks.load.client import Target
from benchmarks.load.processes import pinned
from benchmarks.load.replies import Behaviour
from benchmarks.load.subjects import Subject, mock_backend, serve_temper
from benchmarks.load.workloads import Workload

OFF, AGAIN, ON, WATCHED = "off", "off, again", "on, nobody watches", "on, one watches"
_AT_ONCE = 16
_LARGEST = 4_000_000  # bytes of an event
_MOST_COSTS = 1.03  # of one watcher
_WATCH = b"GET /ui/api/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the ratios; 1 if a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard", description=__doc__)
    parser.add_argument("--starts", type=int, default=5, help="of all servers")
    parser.add_argument("--rounds", type=int, default=7, help="behind each start")
    parser.add_argument("--requests", type=int, default=800, help="of each round")
    chosen = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(pinned(0))
        url = stack.enter_context(mock_backend(folder))
        starts = [_started(url, folder, chosen) for _ in range(chosen.starts)]
    for name in starts[0][0]:
        print(_line(starts, name))  # noqa: T201
    noise = max(abs(one - 1) for one in shares(starts, AGAIN, OFF, _used))
    watched = statistics.median(shares(starts, WATCHED, ON, _used))
    off = f"two that are off differ by {noise:.1%}"
    print(f"one watcher costs {watched - 1:+.1%} of CPU time; {off}")  # noqa: T201
    return int(watched > _MOST_COSTS + noise)


def _started(url: str, folder: Path, chosen: argparse.Namespace) -> "Rounds":
    """Start all servers anew and measure them."""
    with contextlib.ExitStack() as stack:
        subjects = {
            name: stack.enter_context(serve(url, folder / f"{name}.log", is_on=name == ON))
            for name in (OFF, AGAIN, ON)
        }
        subjects[WATCHED] = subjects[ON]
        return asyncio.run(_measured(subjects, chosen.rounds, chosen.requests))


@dataclass(frozen=True, slots=True)
class Spent:
    """What a request took, in seconds: of the CPU, by Temper alone, and on the clock, by all."""

    used: float
    passed: float


Rounds: TypeAlias = Sequence[dict[str, Spent]]


def _used(spent: Spent) -> float:
    return spent.used


def _passed(spent: Spent) -> float:
    return spent.passed


def shares(
    starts: Sequence[Rounds], name: str, other: str, of: Callable[[Spent], float]
) -> list[float]:
    """Return what one has taken beside another after each start: the median of its rounds."""
    return [
        statistics.median(of(one[name]) / of(one[other]) for one in rounds) for rounds in starts
    ]


def _line(starts: Sequence[Rounds], name: str) -> str:
    used = statistics.median(one[name].used for rounds in starts for one in rounds) * 1e6
    each = sorted(one - 1 for one in shares(starts, name, OFF, _used))
    speed = statistics.median(1 / one - 1 for one in shares(starts, name, OFF, _passed))
    return (
        f"{name:<20} {used:7.1f} us of CPU a request {statistics.median(each):+6.1%} "
        f"({each[0]:+.1%} to {each[-1]:+.1%})   throughput {speed:+6.1%}"
    )


def serve(url: str, log: Path, *, is_on: bool) -> contextlib.AbstractContextManager[Subject]:
    """Run Temper with the dashboard, or without."""
    environment = {"TEMPER_UI__ENABLED": str(is_on).lower(), "PYTHONHASHSEED": "0"}
    return serve_temper(url, log, environment)


async def _measured(
    subjects: dict[str, Subject], rounds: int, requests: int
) -> list[dict[str, Spent]]:
    found: list[dict[str, Spent]] = []
    for number in range(rounds + 1):
        spent = {}
        for name in _turned([*subjects], number):
            watching = _watching(subjects[name].target) if name == WATCHED else _nobody()
            async with watching:
                spent[name] = await ask_each(subjects[name], requests)
        if number:  # the first one only warms up
            found.append({name: spent[name] for name in subjects})
    return found


def _turned(names: list[str], number: int) -> list[str]:
    """Let another one begin each time."""
    at = number % len(names)
    return names[at:] + names[:at]


async def ask_each(subject: Subject, requests: int) -> Spent:
    """Return what a request takes."""
    workload = Workload(Behaviour("call"), is_streamed=False)
    before, begun = subject.usage(), time.monotonic()
    await asyncio.gather(
        *(_ask(subject.target, workload, requests // _AT_ONCE) for _ in range(_AT_ONCE))
    )
    after, passed = subject.usage(), time.monotonic() - begun
    if before is None or after is None:
        raise SystemExit("the CPU time of a process cannot be read here")
    number = requests // _AT_ONCE * _AT_ONCE
    return Spent((after.cpu_seconds - before.cpu_seconds) / number, passed / number)


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
    """Read the feed, and throw it away; the state has come before the block begins."""
    host, _, port = target.url.removeprefix("http://").rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=_LARGEST)
    writer.write(_WATCH)
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head:
        raise SystemExit(f"there is no feed: {head!r}")
    await reader.readuntil(b"\n\n")
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
