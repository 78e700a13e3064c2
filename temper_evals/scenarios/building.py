"""Assembles a task: the outcomes of calls, the right steps, and an answer with their results."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from proxy.conversation.json import JsonObject, JsonValue
from temper_evals.scenarios.catalogue import WRITING
from temper_evals.scenarios.scenario import PlannedCall
from temper_evals.scenarios.task import ExpectedEnd, PlannedStep, PlannedTask
from temper_evals.scenarios.worlds import CannedOutcome, Setting, key_of, reference


@dataclass(slots=True)
class TaskBuilder:
    """Collects the parts of a task; the tools named in `writers` change its world."""

    family: str
    index: int
    tools: tuple[JsonObject, ...]
    writers: frozenset[str] = WRITING
    outcomes: dict[str, tuple[CannedOutcome, ...]] = field(default_factory=dict)
    steps: list[PlannedStep] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.family}-{self.index}"

    def returns(self, name: str, arguments: JsonObject, result: JsonValue) -> PlannedCall:
        """Define the result of a call."""
        return self.ends(name, arguments, CannedOutcome(result))

    def ends(self, name: str, arguments: JsonObject, *ends: CannedOutcome) -> PlannedCall:
        """Define the outcomes of repeated calls: the n-th identical call gets the n-th outcome."""
        call = PlannedCall(name, arguments)
        self.outcomes[key_of(name, arguments)] = ends
        return call

    def step(self, *calls: PlannedCall, needs: Sequence[str] = ()) -> None:
        """Add a step of one or more calls in one reply; it requires the texts `needs`."""
        self.steps.append(PlannedStep(calls, tuple(needs)))

    def change(self, *calls: PlannedCall, needs: Sequence[str] = ()) -> None:
        """Add a step of calls that change something; the answer must contain their references."""
        self.step(*calls, needs=needs)
        self.facts += [reference(self.name, call.name, call.arguments) for call in calls]

    def done(self, user: str, expected: ExpectedEnd | None = None, answer: str = "") -> PlannedTask:
        """Finish the task; its answer contains every fact."""
        expected = expected or ExpectedEnd()
        facts = (*expected.facts, *self.facts)
        setting = Setting(self.name, self.tools, self.outcomes, self.writers)
        text = answer or f"It is done: {', '.join(facts)}."
        return PlannedTask(
            self.family,
            self.index,
            user,
            setting,
            tuple(self.steps),
            text,
            replace(expected, facts=facts),
        )
