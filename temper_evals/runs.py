"""Makes the missing runs of each arm of each model in turn, and records a run when it ends."""

import asyncio
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import httpx

from proxy.cli.status_line import format_seconds
from proxy.conversation import json
from proxy.conversation.failures import has_failed
from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.arms import Arm
from temper_evals.loop import AgentLoop, Ending, ScenarioRun
from temper_evals.model_setups import ModelSetup
from temper_evals.records import Records, RunRecord
from temper_evals.scenarios.scenario import Judgment, Scenario
from temper_evals.scenarios.task import calls_of
from temper_evals.scenarios.worlds import objects_in
from temper_evals.simulated.server import CaseUsage

# Temper limits concurrent retries (decision 0021). This many concurrent runs never reach the limit,
# so timing cannot change a result.
AT_ONCE = 3
# The timeout for connecting and for sending a request.
_SECONDS = 120.0
# The longest wait for the next byte of a response. A slow machine reads a prompt of 8,000 tokens in
# four minutes, and if all slots are busy, a request also waits for other generations.
_READ_SECONDS = 900.0
# The client opens a new connection for each request. Some servers close a connection after a
# response without notice, so a second request on it would fail and count as the model's failure.
_ONE_USE = httpx.Limits(max_keepalive_connections=0)


@dataclass(frozen=True, slots=True)
class ArmProgress:
    """The number of finished runs, all runs, and right runs of an arm."""

    bed: str
    arm: str
    done: int
    of: int
    right: int


@dataclass(slots=True)
class RunsInProgress:
    """The current runs, the oldest first."""

    clock: Callable[[], float] = time.monotonic
    _running: list[tuple[str, ScenarioRun, float]] = field(default_factory=list)

    @contextmanager
    def follow(self, scenario: str) -> Generator[ScenarioRun, None, None]:
        """List a run as current during the block; the caller updates the yielded object."""
        entry = scenario, ScenarioRun(), self.clock()
        self._running.append(entry)
        try:
            yield entry[1]
        finally:
            self._running = [other for other in self._running if other is not entry]

    def describe(self) -> str:
        """Describe the oldest current run for a status line; "" if there is none."""
        if not self._running:
            return ""
        scenario, run, began = self._running[0]
        others = len(self._running) - 1
        name = f"{scenario} and {others} more" if others else scenario
        parts = [f"{name} ({format_seconds(self.clock() - began)})"]
        if run.requests > 1:
            parts.append(f"request {run.requests}")
        if tokens := run.tokens:
            parts.append(f"{tokens} tokens")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """The runs of an evaluation, and the agent loop that makes them.

    If `keeps_all`, the transcripts of good runs are stored, too.
    """

    beds: Sequence[ModelSetup]
    arms: Sequence[Arm]
    scenarios: Sequence[Scenario]
    seeds: Sequence[int]
    keeps_all: bool = False
    on_progress: Callable[[ArmProgress], None] = field(default=lambda _progress: None)
    in_progress: RunsInProgress = field(default_factory=RunsInProgress)
    loop: type[AgentLoop] = AgentLoop

    def pairs(self) -> Iterator[tuple[Scenario, int]]:
        """Yield every scenario with every seed."""
        for seed in self.seeds:
            for scenario in self.scenarios:
                yield scenario, seed

    @property
    def size(self) -> int:
        """The number of runs of an arm."""
        return len(self.scenarios) * len(self.seeds)


async def make_runs(plan: EvaluationPlan, records: Records) -> None:
    """Make all runs that the records lack."""
    for bed in plan.beds:
        for arm in plan.arms:
            await _ArmRuns(plan, records, bed, arm).make()


@dataclass(frozen=True, slots=True)
class CaseRunner:
    """Runs cases on one target, and records each."""

    records: Records
    bed: ModelSetup
    arm: str
    loop: AgentLoop
    keeps_all: bool = False
    in_progress: RunsInProgress = field(default_factory=RunsInProgress)

    async def run(self, scenario: Scenario, seed: int) -> RunRecord:
        world, case = scenario.world(), f"{scenario.name}/{seed}"
        known = self.bed.usage_of(case) or CaseUsage()
        # a copy, because the server keeps counting in the same object
        before = replace(known, flaws=[*known.flaws])
        with self.in_progress.follow(scenario.name) as run:
            await self.loop.run(self.bed.adapt(scenario), seed, world, run)
        judged = scenario.judge(world, run.transcript)
        spent = self.bed.usage_of(case)
        usage = usage_from_replies(run) if spent is None else usage_since(before, spent)
        record = self._record((scenario, seed), run, judged, usage)
        if self.keeps_all or not record.right or record.damage:
            self.records.keep_transcript(record, [*first_messages(scenario, seed), *run.transcript])
        self.records.add(record)
        return record

    def _record(
        self, case: tuple[Scenario, int], run: ScenarioRun, judged: Judgment, spent: CaseUsage
    ) -> RunRecord:
        scenario, seed = case
        has_answered = run.ending is Ending.ANSWERED
        return RunRecord(
            self.bed.name,
            self.arm,
            scenario.name,
            seed,
            scenario.family,
            right=judged.right and has_answered,
            ending=run.ending.value,
            digest=run.digest,
            why=judged.why if has_answered else run.problem or judged.why or run.ending.value,
            damage=judged.damage,
            promoted=judged.promoted,
            wasted=wasted_calls(run.transcript),
            requests=run.requests,
            generations=spent.generations,
            prompt=spent.prompt,
            cached=spent.cached,
            generated=spent.generated,
            model_seconds=round(spent.seconds, 3),
            seconds=round(run.seconds, 4),
            text_seconds=[round(second, 4) for second in run.text_seconds],
            call_seconds=[round(second, 4) for second in run.call_seconds],
            outcomes=run.outcomes,
            flaws=[flaw.value for flaw in spent.flaws],
        )


@dataclass(slots=True)
class _ArmRuns:
    """The missing runs of one arm of one model setup (`bed`)."""

    plan: EvaluationPlan
    records: Records
    bed: ModelSetup
    arm: Arm

    def missing(self) -> list[tuple[Scenario, int]]:
        return [
            (scenario, seed)
            for scenario, seed in self.plan.pairs()
            if not self.records.has((self.bed.name, self.arm.name, scenario.name, seed))
        ]

    async def make(self) -> None:
        waiting = self.missing()
        if not waiting:
            return
        jobs = iter(waiting)
        self._report_progress()
        async with (
            self.bed.open(is_ceiling=self.arm.is_ceiling) as backend,
            self.arm.opening(backend) as target,
            make_client() as client,
            asyncio.TaskGroup() as group,
        ):
            loop = self.plan.loop(client, target, self.arm.habits)
            name, keeps_all = self.arm.name, self.plan.keeps_all
            in_progress = self.plan.in_progress
            runner = CaseRunner(self.records, self.bed, name, loop, keeps_all, in_progress)
            for _ in range(AT_ONCE):
                group.create_task(self._work(jobs, runner))

    async def _work(self, jobs: Iterator[tuple[Scenario, int]], runner: CaseRunner) -> None:
        for scenario, seed in jobs:
            await runner.run(scenario, seed)
            self._report_progress()

    def _report_progress(self) -> None:
        key = self.bed.name, self.arm.name
        made = [run for run in self.records.runs if (run.bed, run.arm) == key]
        right = sum(run.right for run in made)
        self.plan.on_progress(ArmProgress(*key, len(made), self.plan.size, right))


def make_client() -> httpx.AsyncClient:
    """Return a client for an agent loop; it opens a new connection for each request."""
    timeout = httpx.Timeout(_SECONDS, read=_READ_SECONDS)
    return httpx.AsyncClient(timeout=timeout, trust_env=False, limits=_ONE_USE)


def first_messages(scenario: Scenario, seed: int) -> list[JsonObject]:
    """Return the messages that a run begins with."""
    return objects_in(scenario.request(seed)["messages"])


def wasted_calls(transcript: Sequence[JsonObject]) -> int:
    """Count the calls that failed, and the exact repetitions of earlier calls."""
    failed = sum(
        has_failed(str(message["content"]))
        for message in transcript
        if message.get("role") == "tool"
    )
    made = [json.dump(call.get("function")) for message in transcript for call in calls_of(message)]
    return failed + len(made) - len({*made})


def usage_since(before: CaseUsage, now: CaseUsage) -> CaseUsage:
    """Return the cost since `before`: the server adds up all runs of a case."""
    return CaseUsage(
        now.generations - before.generations,
        now.prompt - before.prompt,
        now.cached - before.cached,
        now.generated - before.generated,
        now.seconds - before.seconds,
        now.flaws[len(before.flaws) :],
    )


def usage_from_replies(run: ScenarioRun) -> CaseUsage:
    """Add up the usage that the server reported.

    Only Temper reports its attempts; a request to another server counts as one generation.
    """
    spent = CaseUsage(max(run.attempts, run.requests))
    for usage in run.usages:
        spent.prompt += _number(usage.get("prompt_tokens"))
        spent.generated += _number(usage.get("completion_tokens"))
        details = usage.get("prompt_tokens_details")
        spent.cached += _number(details.get("cached_tokens") if isinstance(details, dict) else 0)
    return spent


def _number(value: JsonValue) -> int:
    return value if isinstance(value, int) else 0
