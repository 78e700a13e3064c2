"""Kill under load: engines and workers are killed while clients send requests.

`temper serve --workers 3` uses three mock engines. One process at a time is killed with SIGKILL. If
it is an engine, this program starts it again immediately. If it is a worker, its parent replaces
it. Each client sends one request after another on a connection that stays open.

If a worker is killed, its accepted connections are reset. Like other HTTP clients, a client then
sends its request a second time on another connection, unless a byte of the response had arrived.
The request is lost if the second attempt gets neither an answer nor a 503 with Retry-After. If the
response had begun, it may end with an error event, or with the end of the connection.

Of a response that is not streamed, the client receives nothing before the generation ends. If the
engine dies before, Temper sends the request to another engine, once. If the second engine dies as
well, Temper responds with 502. These 502 responses are counted separately.
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import msgspec
import uvloop

from benchmarks import pages
from benchmarks.faults.flatness import Sample, of_descriptors, of_memory
from benchmarks.faults.soak import PrintLine
from benchmarks.faults.stage import Stage, address_of, running
from benchmarks.load import results
from benchmarks.load.client import Answer, BrokenOff, Connection, Target
from benchmarks.load.processes import free_port, usage_of
from benchmarks.load.replies import Behavior
from benchmarks.load.results import Machine
from benchmarks.load.workloads import Workload

COUNT = 3  # engines, and workers
_PATIENCE_SECONDS = 90.0  # above the longest delay before a worker is replaced
_SAMPLE_SECONDS = 0.5
_POLL_SECONDS = 0.05
_MOST_SHOWN = 20
_TOKENS = 20
# Temper's message if the engine had received the request; a refused connection has another message
_DIED = b"closed the connection unexpectedly"
_REPLY = Behavior("prose", tokens=_TOKENS, delay_ms=5)
_WORKLOADS = [
    Workload(_REPLY, messages=2, tools=tools, is_streamed=is_streamed)
    for tools in (0, 3)
    for is_streamed in (True, False)
]


class End(Enum):
    """The end of a request; the value is the row of the table."""

    ANSWER = "right answers"
    SECOND_ANSWER = "right answers after one reconnect"
    REFUSED = "503 with Retry-After"
    ERROR_EVENT = "begun, then ended with an error event"
    BROKE = "begun, then broken off"
    FAILED = "whole responses whose engine died while it generated: 502"
    LOST = "not begun, and lost"


@dataclass(frozen=True, slots=True)
class Effort:
    """The duration of a run, the `pause` between kills (both in seconds), and the clients."""

    seconds: float = 120.0
    pause: float = 2.0
    clients: int = 64
    seed: int = 1

    @property
    def command(self) -> str:
        numbers = f"--pause {self.pause:g} --clients {self.clients} --seed {self.seed}"
        return f"python -m benchmarks kill --seconds {self.seconds:g} {numbers}"


class Kills(msgspec.Struct):
    """The results of one run.

    `samples` are the resource samples of Temper's processes at times when all workers ran, and
    `parent_samples` those of the workers' parent. `longest` is the duration of the slowest request
    in seconds.
    """

    date: str
    machine: Machine
    command: str
    seconds: float = 0.0
    engines: int = 0
    workers: int = 0
    ends: dict[str, int] = {}
    losses: list[str] = []
    problems: list[str] = []
    longest: float = 0.0
    samples: list[Sample] = []
    parent_samples: list[Sample] = []

    @property
    def requests(self) -> int:
        return sum(self.ends.values())

    def note(self, end: End) -> None:
        """Count a finished request."""
        self.ends[end.value] = self.ends.get(end.value, 0) + 1


class _Connection(Connection):
    """A connection that also records an error object and a Retry-After header."""

    has_error = has_retry_after = False

    def on_message_begin(self) -> None:
        self.has_error = self.has_retry_after = False

    def on_header(self, name: bytes, _value: bytes) -> None:
        self.has_retry_after |= name.lower() == b"retry-after"

    def on_body(self, body: bytes) -> None:
        """Look for an error object; it is never split, because it is written as one event."""
        self.has_error |= b'"error":' in body
        super().on_body(body)


class _Engine:
    """A mock engine in a separate process."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        self.url = address_of(port)
        self._module = ("benchmarks", "mock", "--port", str(port))
        self._log = folder / f"engine-{port}.log"
        self._running = ExitStack()
        self._start()

    def restart(self) -> None:
        """Kill the engine and start it again; returns when it answers requests."""
        self._process.kill()
        self.close()
        self._start()

    def close(self) -> None:
        self._running.close()

    def _start(self) -> None:
        program = running(self._module, self._log, f"{self.url}/health")
        self._process = self._running.enter_context(program)


@dataclass(slots=True)
class _Run:
    """A run: the kills, the samples and the clients."""

    temper: Stage
    engines: Sequence[_Engine]
    effort: Effort
    kills: Kills
    print_line: PrintLine

    async def go(self) -> None:
        """Kill processes while clients send requests."""
        effort, begun = self.effort, time.monotonic()
        until = begun + effort.seconds
        target = Target(self.temper.url)
        requests = [(target.request(workload.body), workload) for workload in _WORKLOADS]
        async with asyncio.TaskGroup() as group:
            group.create_task(self._kill(until))
            group.create_task(self._sample(until))
            for number in range(effort.clients):
                client = _Client(target, self.kills, requests[number % len(requests)])
                group.create_task(client.work(until))
        self.kills.seconds = time.monotonic() - begun
        self.kills.problems += [f"in the log: {line}" for line in self.temper.log_errors()]

    async def _kill(self, until: float) -> None:
        choices = random.Random(self.effort.seed)  # noqa: S311 - a repeatable order
        while (due := time.monotonic() + self.effort.pause) < until:
            await asyncio.sleep(self.effort.pause)
            workers = workers_of(self.temper.group)
            victim = choices.randrange(2 * COUNT)
            # If no worker is found, an engine is killed: all workers may be waiting for their
            # replacement, or the system may have no /proc to find workers.
            if victim < COUNT or not workers:
                self.kills.engines += 1
                await asyncio.to_thread(self.engines[victim % COUNT].restart)
            else:
                self.kills.workers += 1
                os.kill(workers[victim % len(workers)], signal.SIGKILL)
            self._print_progress(due)

    def _print_progress(self, due: float) -> None:
        kills = self.kills
        delay = time.monotonic() - due
        self.print_line(
            f"{kills.engines} engines and {kills.workers} workers killed, {kills.requests} "
            f"requests, {len(kills.losses)} lost; the process was back after {delay:.1f} s"
        )

    async def _sample(self, until: float) -> None:
        begun = time.monotonic()
        while (now := time.monotonic()) < until:
            group = self.temper.group
            used, parent = self.temper.usage(), usage_of(group)
            if used is not None and parent is not None and len(workers_of(group)) == COUNT:
                second = now - begun
                self.kills.samples.append(Sample(second, used.memory_mb, used.descriptors))
                self.kills.parent_samples.append(
                    Sample(second, parent.memory_mb, parent.descriptors)
                )
            await asyncio.sleep(_SAMPLE_SECONDS)


@dataclass(slots=True)
class _Client:
    """A client that sends one request repeatedly."""

    target: Target
    kills: Kills
    request: tuple[bytes, Workload]
    _connection: _Connection | None = None

    async def work(self, until: float) -> None:
        """Send one request after another until the time is over."""
        try:
            while (begun := time.monotonic()) < until:
                end, problem = await self._send_at_most_twice()
                self.kills.note(end)
                self.kills.longest = max(self.kills.longest, time.monotonic() - begun)
                if end is End.LOST:
                    self.kills.losses.append(problem)
        finally:
            self._disconnect()

    async def _send_at_most_twice(self) -> tuple[End, str]:
        end, problem = await self._send()
        if end is not None:
            return end, problem
        end, again = await self._send()
        if end is None:
            return End.LOST, f"{problem}, then {again}"
        return (End.SECOND_ANSWER if end is End.ANSWER else end), again

    async def _send(self) -> tuple[End | None, str]:
        """Send the request; the end is None if the connection was lost before the first byte."""
        raw, workload = self.request
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                if self._connection is None or not self._connection.is_open:
                    self._disconnect()  # the next error must not refer to the old connection
                    self._connection = await self.target.connect_as(_Connection)
                answer = await self._connection.send(raw)
        except TimeoutError:
            self._disconnect()
            return End.LOST, f"no end after {_PATIENCE_SECONDS:g} s"
        except (BrokenOff, OSError) as error:
            has_begun = self._connection is not None and self._connection.has_begun
            self._disconnect()
            return (End.BROKE if has_begun else None), str(error)
        return _end_of(answer, self._connection, workload)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _end_of(answer: Answer, connection: _Connection, workload: Workload) -> tuple[End, str]:
    problem = workload.problem(answer)
    if not problem and len(answer.delays) != _TOKENS:
        problem = f"{len(answer.delays)} of {_TOKENS} tokens arrived"
    if not problem:
        return End.ANSWER, ""
    if answer.status == 503 and connection.has_retry_after:
        return End.REFUSED, ""
    if answer.status == 200 and workload.is_streamed and connection.has_error:
        return End.ERROR_EVENT, ""
    if answer.status == 502 and not workload.is_streamed and _DIED in answer.beginning:
        return End.FAILED, ""
    return End.LOST, problem


def workers_of(parent: int) -> list[int]:
    """Return the process ids of Temper's running workers; [] if the system is not Linux."""
    try:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    except OSError:
        return []
    return [int(child) for child in children if _is_worker(child)]


def _is_worker(process: str) -> bool:
    # multiprocessing also starts a process that tracks semaphores
    try:
        return b"spawn_main" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False


def measure(effort: Effort, kills: Kills, print_line: PrintLine) -> None:
    """Make a run and record its results in `kills`; raises NotStarted."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, url = Path(name), address_of(free_port())
        engines = [stack.enter_context(closing(_Engine(folder))) for _ in range(COUNT)]
        settings, log = folder / "temper.toml", folder / "temper.log"
        urls = ", ".join(f'"{engine.url}"' for engine in engines)
        settings.write_text(f"[backend]\nurls = [{urls}]\n", encoding="utf-8")
        port = url.rpartition(":")[2]
        serve = ("proxy", "serve", "--config", str(settings), "--port", port)
        temper = (*serve, "--workers", str(COUNT), "--json")
        process = stack.enter_context(running(temper, log, f"{url}/healthz"))
        run = _Run(Stage(url, "", process.pid, log), engines, effort, kills, print_line)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run.go())


def section(kills: Kills) -> str:
    """Return the command and the results as Markdown."""
    rows = [
        f"requests | {kills.requests:,} in {kills.seconds:.0f} s",
        f"killed | {kills.engines} engines, {kills.workers} workers",
        *(f"{end.value} | {kills.ends.get(end.value, 0):,}" for end in End),
        f"slowest request, s | {kills.longest:.1f}",
        *_growth("Temper with all workers", kills.samples),
        *_growth("the workers' parent", kills.parent_samples),
    ]
    problems = [f"- {problem}" for problem in kills.problems + kills.losses][:_MOST_SHOWN]
    head = (
        f"    {kills.command} --page docs/reliability.md",
        "",
        f"Run on {kills.date}: {kills.machine}.",
        "",
    )
    table = ("| | |", "|---|---|", *(f"| {row} |" for row in rows))
    return "\n".join((*head, *table, *([""] if problems else []), *problems)) + "\n"


def _growth(title: str, samples: Sequence[Sample]) -> Iterator[str]:
    memory, descriptors = of_memory(samples), of_descriptors(samples)
    if memory is not None and descriptors is not None:
        yield (
            f"{title}, MB: second fifth, last fifth | "
            f"{memory.second_fifth:.1f}, {memory.last_fifth:.1f}"
        )
        open_before, open_after = descriptors.second_fifth, descriptors.last_fifth
        yield f"{title}, descriptors | {open_before:.0f}, {open_after:.0f}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    defaults = Effort()
    parser.add_argument("--seconds", type=float, default=defaults.seconds)
    parser.add_argument("--pause", type=float, default=defaults.pause, help="seconds between kills")
    parser.add_argument("--clients", type=int, default=defaults.clients)
    parser.add_argument("--seed", type=int, default=defaults.seed, help="of the order of kills")
    parser.add_argument("--output", type=Path, help="write all figures to this file")
    parser.add_argument("--page", type=Path, help="update the figures of this page")
    parser.add_argument("--date", default=results.today())
    parser.set_defaults(command=run)


def run(chosen: argparse.Namespace) -> int:
    """Run the command; the exit code is 1 if a request was lost."""
    effort = Effort(chosen.seconds, chosen.pause, chosen.clients, chosen.seed)
    kills = Kills(chosen.date, results.this_machine(), effort.command)
    measure(effort, kills, _print_line)
    if chosen.output is not None:
        chosen.output.write_bytes(msgspec.json.format(msgspec.json.encode(kills)) + b"\n")
    text = section(kills)
    if chosen.page is not None:
        page = pages.renew(chosen.page.read_text("utf-8"), {"kill": text})
        chosen.page.write_text(page, encoding="utf-8")
    sys.stdout.write(text)
    return 1 if kills.losses or kills.problems else 0


def _print_line(line: str) -> None:
    sys.stderr.write(f"{line}\n")
