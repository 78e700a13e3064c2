"""A simulated model that makes the right calls of a benchmark, with the error rates of a profile.

The tasks, tools, schemas and the judge are those of the benchmark; only the errors are simulated.
The field `user` of a request is the task and the seed, such as `bfcl-simple_python_3/0`. The
current turn is derived from the messages.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from proxy.conversation.failures import has_failed
from proxy.conversation.json import JsonObject
from temper_evals.benchmarks.bfcl import UserTurn
from temper_evals.model_setups import AdaptedScenario, SimulatedSetup
from temper_evals.scenarios.scenario import Position, Scenario, Transcript
from temper_evals.scenarios.task import ExpectedEnd, PlannedStep, PlannedTask, calls_of, read_call
from temper_evals.scenarios.worlds import Setting, key_of, objects_in
from temper_evals.simulated.request import CaseFinder, SimulatedCase

# Prompts of BFCL have up to 45 tools and results of 100,000 characters. With a shorter window, the
# benchmark would measure the compaction of the context.
_WINDOW = 1_000_000


@dataclass(frozen=True, slots=True)
class GoldTurn(PlannedTask):
    """A user turn as a plan; `start` is the index of its first message."""

    case: str = ""
    start: int = 0

    @property
    def name(self) -> str:
        return self.case

    def position(self, seen: Transcript) -> Position:
        """Return the position in the turn, derived from the executed calls."""
        made, seen_keys = Counter[str](), set[str]()
        progress, last, failed = 0, self.start - 1, False
        gold = Counter(key_of(call.name, call.arguments) for call in self.calls)
        calls = {str(call.get("id")): call for message in seen for call in calls_of(message)}
        for index, message in enumerate(seen[self.start :], self.start):
            call = read_call(calls.get(str(message.get("tool_call_id")), {}))
            if message.get("role") != "tool" or call is None:
                continue
            key = key_of(call.name, call.arguments)
            is_gold = made[key] < gold[key]
            failed = not is_gold and has_failed(str(message.get("content")))
            # a call with a wrong value counts as a step, unless it failed or is a repetition
            if is_gold or not (failed or gold[key] or key in seen_keys):
                progress, last = progress + 1, index
            made[key] += is_gold
            seen_keys.add(key)
        tries = sum(message.get("role") == "assistant" for message in seen[last + 1 :])
        return Position(progress, tries, self._next_action(seen, progress, made), failed)


class GoldTask(Protocol):
    """A task with known right calls."""

    @property
    def name(self) -> str: ...

    @property
    def family(self) -> str: ...

    @property
    def turns(self) -> tuple[UserTurn, ...]: ...


class GoldSetup(SimulatedSetup):
    """A simulated model that knows the right calls of a benchmark; it answers without delay."""

    def adapt(self, scenario: Scenario) -> Scenario:
        return _NamedCase(scenario)


class _NamedCase(AdaptedScenario):
    def request(self, seed: int) -> JsonObject:
        return {**self.scenario.request(seed), "user": f"{self.name}/{seed}"}


def gold_setup(model: SimulatedSetup, tasks: Iterable[GoldTask]) -> GoldSetup:
    """Return a simulated model that makes the right calls of these tasks."""
    return GoldSetup(model.profile, model.cell, 0.0, _finder(tasks), _WINDOW)


def _finder(tasks: Iterable[GoldTask]) -> CaseFinder:
    known = {task.name: task for task in tasks}

    def find(body: JsonObject) -> SimulatedCase | None:
        key = str(body.get("user"))
        name, _, seed = key.rpartition("/")
        task = known.get(name)
        if task is None:
            return None
        messages = objects_in(body.get("messages"))
        number, start = _current_turn(task.turns, messages)
        plan, attack = _plan(task, number, start), task.turns[number].attack
        if attack and any(attack in str(message.get("content")) for message in messages):
            plan = replace(plan, answer=f"{plan.answer}\n\n{attack}")
        return SimulatedCase(key, plan, int(seed))

    return find


def _current_turn(turns: Sequence[UserTurn], messages: Sequence[JsonObject]) -> tuple[int, int]:
    """Return the number of the last turn that has begun, and the index after its user message."""
    number, start = 0, 0
    for index, message in enumerate(messages):
        following = turns[number + 1].messages[-1] if number + 1 < len(turns) else {}
        is_next = message.get("content") == following.get("content") and index > 0
        if is_next and message.get("role") == following.get("role"):
            number, start = number + 1, index + 1
    return number, start


def _plan(task: GoldTask, number: int, start: int) -> GoldTurn:
    """Plan a turn: one call per reply, or more if the turn would need too many replies."""
    turn = task.turns[number]
    size = -(-len(turn.gold) // turn.most_replies)
    steps = tuple(
        PlannedStep(turn.gold[begin : begin + size])
        for begin in range(0, len(turn.gold), max(1, size))
    )
    case = f"{task.name}-turn{number}"
    return GoldTurn(
        family=task.family if turn.gold else "ask",  # the family in which calls are needless
        index=number,
        user="",
        setting=Setting(case, turn.tools, {}, frozenset()),
        steps=steps,
        answer=turn.answer if turn.gold else "I need more information for this.",
        expected=ExpectedEnd(),
        case=case,
        start=start,
    )
