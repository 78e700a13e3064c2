"""Scenarios that the tiny model can be asked: its own tasks, with values that it never saw.

They are as hard for it as everyday tasks are for a large model. Greedy, so that arms differ by
what is between the loop and the model, and by nothing else.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import InvalidConfiguration
from temper_evals.scenarios.scenario import Judgement, PlannedCall, Transcript, World
from temper_evals.scenarios.task import last_words
from temper_evals.scenarios.worlds import CannedOutcome, CannedWorld, Setting, key_of
from temper_evals.tiny_model.tasks import BUSY, FAMILIES, TaskDraw, TinyTask, offer_tools

SIZES = {"quick": 12, "full": 40}
_MOST_TOKENS = 120
_EXTRA_REPLIES = 5


def greedy_request(
    user: str, tools: Sequence[JsonValue], most_tokens: int, seed: int
) -> JsonObject:
    """Return the members of a request; a seed changes nothing at this temperature."""
    return {
        "messages": [{"role": "user", "content": user}],
        "tools": [*tools],
        "temperature": 0,
        "max_tokens": most_tokens,
        "seed": seed,
    }


@dataclass(frozen=True, slots=True)
class TinyScenario:
    """A task of the tiny model as a scenario."""

    name: str
    task: TinyTask

    @property
    def family(self) -> str:
        return self.task.family

    @property
    def limit(self) -> int:
        """How many replies a run may take: three times the right ones, and five."""
        return 3 * (len(self.task.calls) + 1) + _EXTRA_REPLIES

    def request(self, seed: int) -> JsonObject:
        """Return the members of every request."""
        return greedy_request(self.task.user, offer_tools(self.task), _MOST_TOKENS, seed)

    def first_fields(self) -> JsonObject:
        return {}

    def world(self) -> CannedWorld:
        """Make the world as it is before the run: it knows the calls that are due."""
        busy = CannedOutcome(BUSY, fails=True)
        outcomes = {
            key_of(one.name, one.arguments): (
                (busy, CannedOutcome(one.result))
                if one.fails_once
                else (CannedOutcome(one.result),)
            )
            for one in self.task.calls
        }
        tools = tuple(one.describe() for one in self.task.tools)
        return CannedWorld(Setting(self.name, tools, outcomes, frozenset()))

    def judge(self, end: World, said: Transcript) -> Judgement:
        """Judge a run by the calls it made, and by the last result in its answer."""
        assert isinstance(end, CannedWorld)  # noqa: S101 - made above
        due = {key_of(one.name, one.arguments) for one in self.task.calls}
        made = [key_of(one.name, one.arguments) for one in end.calls]
        changes = Counter(key_of(one.name, one.arguments) for one in self._changes(end))
        extra = [one for one in changes if one not in due]
        why = self._objection(made, due, extra) or self._objection_to_words(said)
        return Judgement(right=not why, why=why, damage=sum(changes[one] for one in extra))

    def _changes(self, end: CannedWorld) -> list[PlannedCall]:
        writers = {one.name for one in self.task.tools if one.changes}
        return [one for one in end.calls if one.name in writers]

    def _objection(self, made: list[str], due: set[str], extra: list[str]) -> str:
        if made and not due:
            return f"it called {made[0]}, and nothing was to be called"
        if extra:
            return f"nobody asked for {extra[0]}"
        lacking = sorted(due - set(made))
        return f"it never came to {lacking[0]}" if lacking else ""

    def _objection_to_words(self, said: Transcript) -> str:
        answer = last_words(said)
        if not answer:
            return "it gave no answer"
        if "{" in answer:
            return "its answer is a call that nobody read"
        fact = self.task.calls[-1].result if self.task.calls else ""
        return "" if fact in answer else f"its answer lacks {fact!r}"


def tiny_suite(size: str, families: Sequence[str] = ()) -> tuple[TinyScenario, ...]:
    """Return the scenarios of a size, the same every time; raises InvalidConfiguration."""
    if size not in SIZES:
        raise InvalidConfiguration("--suite", f"there is no suite {size!r}: quick, or full")
    if unknown := [one for one in families if one not in FAMILIES]:
        known = ", ".join(FAMILIES)
        raise InvalidConfiguration("--family", f"there is no {unknown[0]!r}; known: {known}")
    chosen = families or FAMILIES
    return tuple(_scenario(family, index) for family in chosen for index in range(SIZES[size]))


def _scenario(family: str, index: int) -> TinyScenario:
    name = f"{family}-{index}"
    draw = random.Random(f"measured {name}")  # noqa: S311 - made-up tasks
    return TinyScenario(name, TaskDraw(draw, held_out=True).task(family))
