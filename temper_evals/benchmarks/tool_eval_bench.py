"""tool-eval-bench: its package runs and judges the 97 scenarios, without a model as the judge.

The package sends the requests and runs the tools. A run is right if the package judges it a pass; a
partial pass counts as wrong. The simulated model does not know the scenarios: it calls tools with
invented arguments, so only the difference between the arms means anything.
"""

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import NoReturn

from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import InvalidConfiguration
from temper_evals.arms import Arm
from temper_evals.benchmarks.gold_model import GoldTurn
from temper_evals.benchmarks.packages import import_package
from temper_evals.loop import Ending, ModelTarget
from temper_evals.model_setups import ModelSetup, SimulatedSetup
from temper_evals.records import Records, RunRecord
from temper_evals.runs import AT_ONCE, ArmProgress, EvaluationPlan
from temper_evals.scenarios.invention import invent_arguments
from temper_evals.scenarios.scenario import Judgment, PlannedCall, Transcript, World
from temper_evals.scenarios.task import ExpectedEnd, PlannedStep
from temper_evals.scenarios.worlds import Setting, function_of, objects_in, tool_name
from temper_evals.simulated.draws import draws_of
from temper_evals.simulated.request import SimulatedCase

_WINDOW = 1_000_000
_SECONDS = 900.0
_MOST_CALLS = 2  # per simulated user turn
_MOST_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class BenchScenario:
    """A scenario of the package, which only the package can run."""

    id: str
    category: str

    limit = 8

    @property
    def family(self) -> str:
        return f"tool-eval-bench:{self.category}"

    @property
    def name(self) -> str:
        return self.id

    def request(self, seed: int) -> JsonObject:
        return {"messages": [], "seed": seed}

    def first_fields(self) -> JsonObject:
        return {}

    def world(self) -> NoReturn:
        raise NotImplementedError(self.id)

    def judge(self, end: World, transcript: Transcript) -> Judgment:
        raise NotImplementedError(self.id)


@cache
def load(category: str = "", most: int | None = None) -> tuple[BenchScenario, ...]:
    """Return up to `most` scenarios of each category, or of one `category` from A to P.

    Raises InvalidConfiguration.
    """
    scenarios: dict[str, list[BenchScenario]] = {}
    for each in _module("evals.scenarios").ALL_SCENARIOS_WITH_HARDMODE:
        letter = str(each.category.value)
        scenarios.setdefault(letter, []).append(BenchScenario(str(each.id), letter))
    if category and category not in scenarios:
        known = ", ".join(scenarios)
        raise InvalidConfiguration("--benchmark", f"no category {category!r}; known: {known}")
    chosen = [category] if category else [*scenarios]
    return tuple(each for letter in chosen for each in scenarios[letter][:most])


async def make_runs(plan: EvaluationPlan, records: Records) -> None:
    """Let the package make all runs that the records lack."""
    logging.getLogger("tool_eval_bench").setLevel(logging.ERROR)  # it logs each request
    for bed in plan.beds:
        for arm in plan.arms:
            for seed in plan.seeds:
                await _ArmRuns(plan, records, bed, arm, seed).make()


@dataclass(frozen=True, slots=True)
class _ArmRuns:
    plan: EvaluationPlan
    records: Records
    bed: ModelSetup
    arm: Arm
    seed: int

    async def make(self) -> None:
        key = self.bed.name, self.arm.name
        names = {scenario.name for scenario in self.plan.scenarios}
        wanted = {name for name in names if not self.records.has((*key, name, self.seed))}
        if not wanted:
            return
        known = _module("evals.scenarios").ALL_SCENARIOS_WITH_HARDMODE
        self._report()
        async with (
            self.bed.open(is_ceiling=self.arm.is_ceiling) as backend,
            self.arm.opening(backend) as target,
        ):
            await _module("api").run_benchmark(
                model=target.model,
                base_url=target.url,
                api_key=_key_of(target),
                scenarios=[scenario for scenario in known if scenario.id in wanted],
                seed=self.seed,
                concurrency=AT_ONCE,
                timeout_seconds=_SECONDS,
                persist=False,
                probe_engine=False,
                on_scenario_result=self._add,
            )

    async def _add(self, scenario: object, result: object, _index: int, _count: int) -> None:
        letter = str(vars(scenario)["category"].value)
        key = self.bed.name, self.arm.name, self.seed
        self.records.add(_record(key, letter, vars(result)))
        self._report()

    def _report(self) -> None:
        key = self.bed.name, self.arm.name
        made = [run for run in self.records.runs if (run.bed, run.arm) == key]
        right = sum(run.right for run in made)
        self.plan.on_progress(ArmProgress(*key, len(made), self.plan.size, right))


def _key_of(target: ModelTarget) -> str | None:
    return target.headers.get("authorization", "").removeprefix("Bearer ") or None


def _record(key: tuple[str, str, int], letter: str, result: dict[str, object]) -> RunRecord:
    bed, arm, seed = key
    status, summary = str(getattr(result["status"], "value", "")), str(result["summary"])
    calls = result["tool_calls_made"]
    is_right, has_failed = status == "pass", result["failure_kind"] in _infrastructure()
    digest = hashlib.blake2b(f"{status} {summary} {calls}".encode(), digest_size=8)
    return RunRecord(
        bed,
        arm,
        str(result["scenario_id"]),
        seed,
        f"tool-eval-bench:{letter}",
        right=is_right,
        ending=(Ending.FAILED if has_failed else Ending.ANSWERED).value,
        digest=digest.hexdigest(),
        why="" if is_right else f"{status}: {summary}"[:_MOST_CHARACTERS],
        requests=_number(result["turn_count"]),
        generations=_number(result["turn_count"]),
        prompt=_number(result["prompt_tokens"]),
        generated=_number(result["completion_tokens"]),
        seconds=round(float(str(result["duration_seconds"])), 4),
    )


def _infrastructure() -> frozenset[object]:
    return frozenset(_module("domain.scenarios").INFRASTRUCTURE_FAILURE_KINDS)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _module(name: str) -> ModuleType:
    return import_package(f"tool_eval_bench.{name}", "tool-eval-bench")


def inventing_setup(model: SimulatedSetup) -> SimulatedSetup:
    """Return a simulated model that calls tools with invented arguments, then answers."""
    return SimulatedSetup(model.profile, model.cell, 0.0, _find_case, _WINDOW)


def _find_case(body: JsonObject) -> SimulatedCase | None:
    """Plan the user turn of a request from its text and its tools."""
    messages = objects_in(body.get("messages"))
    users = [index for index, message in enumerate(messages) if message.get("role") == "user"]
    start = users[-1] + 1 if users else 0
    text = str(messages[start - 1].get("content")) if users else ""
    tools = tuple(objects_in(body.get("tools")))
    case = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    turn = GoldTurn(
        family="tool-eval-bench",
        index=0,
        user="",
        setting=Setting(case, tools, {}, frozenset()),
        steps=tuple(PlannedStep((call,)) for call in _invented(case, tools)),
        answer=f"That is all for {case}.",
        expected=ExpectedEnd(),
        case=case,
        start=start,
    )
    return SimulatedCase(case, turn, 0)


def _invented(case: str, tools: Sequence[JsonObject]) -> list[PlannedCall]:
    draw = draws_of(case)
    calls: list[PlannedCall] = []
    for tool in draw.sample(tools, min(len(tools), draw.randint(0, _MOST_CALLS))):
        schema: JsonValue = function_of(tool).get("parameters")
        arguments = invent_arguments(schema if isinstance(schema, dict) else {}, draw)
        calls.append(PlannedCall(tool_name(tool), arguments))
    return calls
