"""The soak test: sends healthy and faulty requests to Temper for minutes, and looks for leaks.

A leak is memory, a descriptor, a connection or a request that remains after the clients' requests.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import uvloop

from benchmarks.faults.backend import SLOTS
from benchmarks.faults.clients import Clients, TimeLimits
from benchmarks.faults.demands import problem_of
from benchmarks.faults.findings import Findings, Lost
from benchmarks.faults.flatness import Sample
from benchmarks.faults.ledger import Ledger
from benchmarks.faults.material import Fault, Plan
from benchmarks.faults.mixture import ONE_OF_EACH, draw
from benchmarks.faults.stage import DEADLINES, STALL_SECONDS, Stage, staged

PrintLine: TypeAlias = Callable[[str], None]

_GROUP = 3 * SLOTS  # concurrent requests; three times the slots, so that some requests must queue
_SAMPLE_SECONDS = 2.0
_SAMPLES_PER_LINE = 15  # of progress
# far above Temper's deadline_seconds, so if a client times out, the server hangs
_TIME_LIMITS = TimeLimits(answer=40.0, stall=STALL_SECONDS)


@dataclass(frozen=True, slots=True)
class Effort:
    """The requests to send: `requests` evenly over `seconds`, or only those with numbers in `only`.

    The descriptors are counted after the first `warmup` requests, and again at the end. Before each
    count, the clients pause for `rest` seconds, in which idle connections are closed.
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
        limits = f"--requests {self.requests} --seconds {self.seconds:g} --seed {self.seed}"
        return f"python -m benchmarks faults {limits}{numbers}"


@dataclass(frozen=True, slots=True)
class _IdleState:
    """The connections to the backend and the descriptors of Temper while no request runs."""

    connections: int
    descriptors: int


@dataclass(frozen=True, slots=True)
class _Finished:
    """A finished request: the time of its end, and the permitted number of generations."""

    fault: str
    over: float
    attempts: int
    is_chat: bool


@dataclass(slots=True)
class _Run:
    """A run; `finished` has the finished requests by number."""

    stage: Stage
    effort: Effort
    findings: Findings
    print_line: PrintLine
    finished: dict[int, _Finished] = field(default_factory=dict)

    async def go(self) -> None:
        """Send all requests, then check the state of both servers."""
        effort, findings = self.effort, self.findings
        numbers = effort.only or range(effort.requests)
        # before the first count, requests of each fault open descriptors of every kind
        warmup = 0 if effort.only else min(effort.warmup, effort.requests)
        pause = effort.seconds / max(1, len(numbers))
        await self._send(numbers[:warmup], pause)
        before = await self._wait_until_idle()
        sampling = asyncio.create_task(self._sample())
        begun = time.monotonic()
        await self._send(numbers[warmup:], pause)
        findings.seconds = time.monotonic() - begun + warmup * pause
        sampling.cancel()
        await self._check_servers()
        self._compare_idle_states(before, await self._wait_until_idle())
        used = self.stage.usage()
        findings.cpu_seconds = used.cpu_seconds if used is not None else 0.0

    async def _wait_until_idle(self) -> _IdleState:
        """Wait until idle connections have been closed; returns what is still open."""
        await asyncio.sleep(self.effort.rest)
        aftermath = await self.stage.aftermath()
        used = self.stage.usage()
        return _IdleState(aftermath.ledger.connections, used.descriptors if used is not None else 0)

    def _compare_idle_states(self, before: _IdleState, after: _IdleState) -> None:
        self.findings.at_rest = (before.descriptors, after.descriptors)
        if after.descriptors > before.descriptors:
            problem = f"{before.descriptors} descriptors before, {after.descriptors} after"
            self.findings.problems.append(problem)
        if after.connections > before.connections:
            problem = f"{before.connections} connections before, {after.connections} after"
            self.findings.problems.append(problem)

    async def _send(self, numbers: Sequence[int], pause: float) -> None:
        """Send requests in groups; a group does not wait for the end of earlier groups."""
        clients = Clients(self.stage.url, _TIME_LIMITS)
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
        self.finished[number] = _Finished(
            fault.name, sent.over, demand.attempts, plan.request.is_chat
        )
        self.findings.note(fault.name, sent.received.kind)
        if problem := problem_of(demand, sent.received):
            self._lose(number, problem)

    def _lose(self, number: int, problem: str) -> None:
        fault = self.finished[number].fault
        self.findings.lost.append(Lost(number, fault, problem))
        self.print_line(f"LOST {number} (seed {self.effort.seed}), {fault}: {problem}")

    async def _sample(self) -> None:
        begun = time.monotonic()
        while True:
            if (used := self.stage.usage()) is not None:
                second = time.monotonic() - begun
                sample = Sample(second, used.memory_mb, used.descriptors)
                self.findings.samples.append(sample)
                if len(self.findings.samples) % _SAMPLES_PER_LINE == 0:
                    self._print_progress(sample)
            await asyncio.sleep(_SAMPLE_SECONDS)

    def _print_progress(self, sample: Sample) -> None:
        findings = self.findings
        self.print_line(
            f"{sample.second:5.0f} s: {findings.requests} requests, {len(findings.lost)} lost, "
            f"{sample.memory_mb:.1f} MB, {sample.descriptors} descriptors"
        )

    async def _check_servers(self) -> None:
        """Compare the clients' counts with Temper's metrics and log, and the backend's ledger."""
        aftermath = await self.stage.aftermath()
        problems, playing = self.findings.problems, aftermath.ledger.playing
        if aftermath.running or playing:
            problems.append(f"not ended: {aftermath.running:g} requests, {playing} generations")
        # a repeated idempotency key counts once
        chats = sum(request.is_chat for request in self.finished.values())
        if aftermath.total != chats:
            problems.append(f"{chats} requests were sent, {aftermath.total:g} were counted")
        problems += [f"in the log: {line}" for line in self.stage.log_errors()]
        self._compare(aftermath.ledger)

    def _compare(self, ledger: Ledger) -> None:
        """Find generations that outlived their request, and those above the permitted number."""
        for number, request in sorted(self.finished.items()):
            self.findings.generations += len(ledger.generations_of(number))
            if (outlived := ledger.outlived(number, request.over)) > 0:
                self.findings.outlived.append(outlived)
            for problem in ledger.problems(number, request.over, request.attempts):
                self._lose(number, problem)


def run(effort: Effort, findings: Findings, print_line: PrintLine) -> None:
    """Make a run and record its results in `findings`; raises NotStarted."""
    findings.settings = DEADLINES.rstrip()
    findings.command = effort.command
    with tempfile.TemporaryDirectory() as folder, staged(Path(folder), effort.seed) as stage:
        running = _Run(stage, effort, findings, print_line)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(running.go())
