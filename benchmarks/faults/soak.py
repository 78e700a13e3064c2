"""The soak: groups of clients send requests to Temper, then everything left open is checked."""

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import uvloop

from benchmarks.faults.backend import SLOTS
from benchmarks.faults.clients import Clients, Patience
from benchmarks.faults.demands import problem_of
from benchmarks.faults.findings import Findings, Lost
from benchmarks.faults.flatness import Sample
from benchmarks.faults.ledger import Ledger
from benchmarks.faults.material import Fault, Plan
from benchmarks.faults.mixture import ONE_OF_EACH, draw
from benchmarks.faults.stage import DEADLINES, STALL_SECONDS, Stage, staged

PrintLine: TypeAlias = Callable[[str], None]

_GROUP = 3 * SLOTS  # requests sent at once: more than there are slots, so some must queue
_SAMPLE_SECONDS = 2.0
_SAMPLES_TOLD = 15  # between two lines of progress
# far above Temper's deadline_seconds: a client that gives up has found a hang
_PATIENCE = Patience(answer=40.0, stall=STALL_SECONDS)


@dataclass(frozen=True, slots=True)
class Effort:
    """The number of requests, spread evenly over `seconds`, or `only` these numbers.

    The first `warmup` requests are sent before descriptors are counted. After `rest` seconds idle
    connections have been closed.
    """

    requests: int = 12_000
    seconds: float = 600.0
    seed: int = 1
    only: tuple[int, ...] = ()
    warmup: int = ONE_OF_EACH
    rest: float = 8.0

    @property
    def command(self) -> str:
        numbers = f" --only {' '.join(map(str, self.only))}" if self.only else ""
        much = f"--requests {self.requests} --seconds {self.seconds:g} --seed {self.seed}"
        return f"python -m benchmarks faults {much}{numbers}"


@dataclass(frozen=True, slots=True)
class _Rest:
    """Open connections to the backend and descriptors of Temper while no request runs."""

    connections: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class _Past:
    """A finished request: its end, and the generations that it may have cost."""

    fault: str
    over: float
    attempts: int
    is_chat: bool


@dataclass(slots=True)
class _Run:
    """A run under way; `past` are the requests that are over."""

    stage: Stage
    effort: Effort
    findings: Findings
    print_line: PrintLine
    past: dict[int, _Past] = field(default_factory=dict)

    async def go(self) -> None:
        """Send all requests, then check the state of both servers."""
        effort, findings = self.effort, self.findings
        numbers = effort.only or range(effort.requests)
        # one request of each fault opens every kind of descriptor before the first count
        warmup = 0 if effort.only else min(effort.warmup, effort.requests)
        pause = effort.seconds / max(1, len(numbers))
        await self._send(numbers[:warmup], pause)
        before = await self._rest()
        sampling = asyncio.create_task(self._sample())
        begun = time.monotonic()
        await self._send(numbers[warmup:], pause)
        findings.seconds = time.monotonic() - begun + warmup * pause
        sampling.cancel()
        await self._check_servers()
        self._compare_rests(before, await self._rest())
        used = self.stage.usage()
        findings.cpu_seconds = used.cpu_seconds if used is not None else 0.0

    async def _rest(self) -> _Rest:
        """Wait until idle connections have been closed."""
        await asyncio.sleep(self.effort.rest)
        left = await self.stage.aftermath()
        used = self.stage.usage()
        return _Rest(left.ledger.connections, used.descriptors if used is not None else 0)

    def _compare_rests(self, before: _Rest, after: _Rest) -> None:
        self.findings.at_rest = (before.descriptors, after.descriptors)
        if after.descriptors > before.descriptors:
            problem = f"{before.descriptors} descriptors before, {after.descriptors} after"
            self.findings.problems.append(problem)
        if after.connections > before.connections:
            problem = f"{before.connections} connections before, {after.connections} after"
            self.findings.problems.append(problem)

    async def _send(self, numbers: Sequence[int], pause: float) -> None:
        """Send requests in groups, whether those before them are over or not."""
        clients = Clients(self.stage.url, _PATIENCE)
        begun = time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                for index, number in enumerate(numbers):
                    if index % _GROUP == 0:
                        await asyncio.sleep(begun + index * pause - time.monotonic())
                    fault, plan = draw(self.effort.seed, number)
                    group.create_task(self._send_one(clients, number, fault, plan))
        finally:
            await clients.close()

    async def _send_one(self, clients: Clients, number: int, fault: Fault, plan: Plan) -> None:
        sent = await clients.send(number, plan)
        demand = plan.demand
        self.past[number] = _Past(fault.name, sent.over, demand.attempts, plan.request.is_chat)
        self.findings.note(fault.name, sent.seen.kind)
        if problem := problem_of(demand, sent.seen):
            self._lose(number, problem)

    def _lose(self, number: int, problem: str) -> None:
        fault = self.past[number].fault
        self.findings.lost.append(Lost(number, fault, problem))
        self.print_line(f"LOST {number} (seed {self.effort.seed}), {fault}: {problem}")

    async def _sample(self) -> None:
        begun = time.monotonic()
        while True:
            if (used := self.stage.usage()) is not None:
                second = time.monotonic() - begun
                sample = Sample(second, used.memory_mb, used.descriptors)
                self.findings.samples.append(sample)
                if len(self.findings.samples) % _SAMPLES_TOLD == 0:
                    self._print_progress(sample)
            await asyncio.sleep(_SAMPLE_SECONDS)

    def _print_progress(self, sample: Sample) -> None:
        findings = self.findings
        self.print_line(
            f"{sample.second:5.0f} s: {findings.requests} requests, {len(findings.lost)} lost, "
            f"{sample.memory_mb:.1f} MB, {sample.descriptors} descriptors"
        )

    async def _check_servers(self) -> None:
        """Compare the clients' view with Temper's metrics and log and the backend's ledger."""
        left = await self.stage.aftermath()
        problems, playing = self.findings.problems, left.ledger.playing
        if left.under_way or playing:
            problems.append(f"not over: {left.under_way:g} requests, {playing} generations")
        # a repeated idempotency key counts once
        chats = sum(request.is_chat for request in self.past.values())
        if left.counted != chats:
            problems.append(f"{chats} requests were sent, {left.counted:g} were counted")
        problems += [f"in the log: {line}" for line in self.stage.log_errors()]
        self._compare(left.ledger)

    def _compare(self, ledger: Ledger) -> None:
        """Find generations that outlived their clients, and superfluous generations."""
        for number, request in sorted(self.past.items()):
            self.findings.generations += len(ledger.made(number))
            if (outlived := ledger.outlived(number, request.over)) > 0:
                self.findings.outlived.append(outlived)
            for problem in ledger.problems(number, request.over, request.attempts):
                self._lose(number, problem)


def run(effort: Effort, findings: Findings, print_line: PrintLine) -> None:
    """Run everything and note it in `findings`; raises NotStarted."""
    findings.settings = DEADLINES.rstrip()
    findings.command = effort.command
    with tempfile.TemporaryDirectory() as folder, staged(Path(folder), effort.seed) as stage:
        running = _Run(stage, effort, findings, print_line)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(running.go())
