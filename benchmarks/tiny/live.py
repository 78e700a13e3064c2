"""Measures the larger model on a real llama-server: its tasks, with tools it knows and unseen ones.

The model is no part of the repository; what came of it is kept in larger.json, which `page` shows.
All runs are greedy. Transcripts tell what a nudge and a question behind an end brought.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.tiny.invented_tasks import FAMILIES, InventedCall, InventedDraw, InventedTask
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.processes.launch import LaunchPlan, find_program
from proxy.processes.llama_server import start_llama_server
from proxy.serving.tuned import guardrails_digest
from temper_evals.arms import DIRECT, TEMPER, choose_arms
from temper_evals.loop import ModelTarget
from temper_evals.model_setups import ServedSetup
from temper_evals.records import TRANSCRIPTS, Records, RunRecord, read_runs
from temper_evals.results import ArmResult, results_of
from temper_evals.runs import ArmProgress, EvaluationPlan, make_runs
from temper_evals.scenarios.scenario import Judgement, Scenario, Transcript, World
from temper_evals.scenarios.task import calls_of, last_words
from temper_evals.scenarios.worlds import CannedOutcome, CannedWorld, Setting, key_of
from temper_evals.sequential import Decision
from temper_evals.tiny_model import shipped
from temper_evals.tiny_suite import greedy_request
from temper_evals.tuning import CANDIDATES, Verdict

ARMS = (DIRECT, TEMPER, "temper-always", "temper-respond")
ALWAYS = "temper-always"
_CANDIDATE_ARMS = {"close_out always": ALWAYS, "respond": "temper-respond"}
_MOST_TOKENS, _EXTRA_REPLIES, _SLOTS = 160, 4, 4
_BEDS = {"seen": False, "unseen": True}
_PROMISES = ("I will ", "Let me ", "I am going to ", "Sure, I will ")


@dataclass(frozen=True, slots=True)
class InventedScenario:
    """An invented task as a scenario; its family says whether its tools are unseen."""

    family: str
    name: str
    task: InventedTask

    @property
    def limit(self) -> int:
        """How many replies a run may take: twice the right ones, and some."""
        tries = sum(1 + len(one.errors) for one in self.task.calls)
        return 2 * (tries + 1) + _EXTRA_REPLIES

    def request(self, seed: int) -> JsonObject:
        """Return the members of every request."""
        tools: list[JsonValue] = [one.describe() for one in self.task.tools]
        return greedy_request(self.task.user, tools, _MOST_TOKENS, seed)

    def first_fields(self) -> JsonObject:
        return {}

    def world(self) -> CannedWorld:
        """Make the world as it is before the run: it knows the calls that are due."""
        tools = tuple(one.describe() for one in self.task.tools)
        outcomes = {_key(one): _outcomes(one) for one in self.task.calls}
        return CannedWorld(Setting(self.name, tools, outcomes, frozenset()))

    def judge(self, end: World, said: Transcript) -> Judgement:
        """Judge a run by the calls it made, and by the fact in its answer."""
        assert isinstance(end, CannedWorld)  # noqa: S101 - made above
        due = {_key(one) for one in self.task.calls}
        made = Counter(key_of(one.name, one.arguments) for one in end.calls)
        writers = {one.name for one in self.task.tools if one.changes}
        changed = [key_of(one.name, one.arguments) for one in end.calls if one.name in writers]
        extra = [one for one in changed if one not in due]
        return Judgement(not (why := self._objection(due, made, extra, said)), why, len(extra))

    def _objection(
        self, due: set[str], made: Counter[str], extra: Sequence[str], said: Transcript
    ) -> str:
        if made and not due:
            return f"it called {next(iter(made))}, and nothing was to be called"
        if extra:
            return f"nobody asked for {extra[0]}"
        if lacking := sorted(due - {*made}):
            return f"it never came to {lacking[0]}"
        answer = last_words(said) or ""
        return "" if self.task.fact in answer else f"its answer lacks {self.task.fact!r}"


def _key(call: InventedCall) -> str:
    return key_of(call.tool.name, call.arguments)


def _outcomes(call: InventedCall) -> tuple[CannedOutcome, ...]:
    failures = tuple(CannedOutcome(one, fails=True) for one in call.errors)
    return (*failures, CannedOutcome(call.result)) if call.result else failures


def invented_suite(count: int) -> list[Scenario]:
    """Return so many tasks of every family, with tools of seen and of unseen domains."""
    return [*_suite(count)]


def _suite(count: int) -> Iterator[Scenario]:
    for bed, held_out in _BEDS.items():
        for family in FAMILIES:
            for number in range(count):
                name = f"{bed}-{family}-{number}"
                draw = random.Random(f"measured {name}")  # noqa: S311 - made-up tasks
                task = InventedDraw(draw, held_out).task(family)
                yield InventedScenario(f"{bed} {family}", name, task)


async def measure(model: Path, folder: Path, count: int, tell: Callable[[str], None]) -> None:
    """Make the runs that the folder lacks."""

    def show(progress: ArmProgress) -> None:
        if progress.done % 20 == 0 or progress.done == progress.of:
            tell(f"{progress.arm}: {progress.right} of {progress.done} of {progress.of}")

    launch = LaunchPlan(
        find_program(), model, shipped.WINDOW, _SLOTS, model.stem, gpu_layers=0, extra=shipped.FLAGS
    )
    suite = invented_suite(count)
    digest = f"{count} {guardrails_digest()}"
    records = Records(folder, {"hash": digest})
    async with start_llama_server(launch) as running:
        headers = {"authorization": f"Bearer {running.api_key}"}
        bed = ServedSetup(model.stem, ModelTarget(running.base_url, model.stem, headers))
        plan = EvaluationPlan(
            (bed,), choose_arms(ARMS), suite, (0,), keeps_all=True, on_progress=show
        )
        await make_runs(plan, records)
    records.close()


def figures(folder: Path) -> JsonObject:
    """Sum up the runs of a folder, and what their transcripts tell."""
    runs = [*read_runs(folder)]
    arms: list[JsonValue] = [_row(one) for one in results_of(runs)]
    rates = {**_over_acting(folder, runs), **_narration(folder, runs)}
    return {"arms": arms, "rates": rates, "tuning": [*_verdicts(runs)]}


def _verdicts(runs: Sequence[RunRecord]) -> Iterator[str]:
    """Say what `temper tune` would decide of these runs, in their order."""
    before = {one.pair: one for one in runs if one.arm == TEMPER}
    for candidate in CANDIDATES:
        verdict = Verdict(candidate)
        arm = _CANDIDATE_ARMS.get(candidate.name)
        for one in (one for one in runs if one.arm == arm and one.pair in before):
            if verdict.test.decision is Decision.UNDECIDED:
                verdict.test.add(before=before[one.pair].right, after=one.right)
        if verdict.test.pairs:
            yield verdict.sentence()


def _row(one: ArmResult) -> JsonObject:
    against = one.against
    families: JsonObject = {name: [*one.families[name]] for name in sorted(one.families)}
    return {
        "arm": one.arm,
        "runs": one.runs,
        "right": one.right,
        "helped": against.helped if against else 0,
        "harmed": against.harmed if against else 0,
        "damage": one.damage,
        "generations": round(one.cost.generations_per_request, 2),
        "families": families,
    }


def _over_acting(folder: Path, runs: Sequence[RunRecord]) -> JsonObject:
    """Count how often a call follows where a right end behind a call was asked about."""
    right = {one.pair for one in runs if one.arm == DIRECT and one.right}
    asked = acted = 0
    for run in (one for one in runs if one.arm == ALWAYS and one.pair in right):
        before, after = (_calls(folder, run, arm) for arm in (DIRECT, ALWAYS))
        asked += before > 0
        acted += after > before > 0
    return {"asked_behind_right": asked, "acted_behind_right": acted}


def _narration(folder: Path, runs: Sequence[RunRecord]) -> JsonObject:
    """Count the promises that ended a run of `direct`, and what Temper made of the same task."""
    promised = {
        one.pair
        for one in runs
        if one.arm == DIRECT and not one.right and _is_promise(_transcript(folder, one, DIRECT))
    }
    own = [one for one in runs if one.arm == TEMPER and one.pair in promised]
    called = sum(not _is_promise(_transcript(folder, one, TEMPER)) for one in own)
    return {"promised": len(own), "called": called, "kept": sum(one.right for one in own)}


def _is_promise(said: Transcript) -> bool:
    return (last_words(said) or "").startswith(_PROMISES)


def _calls(folder: Path, run: RunRecord, arm: str) -> int:
    return sum(len(calls_of(one)) for one in _transcript(folder, run, arm))


def _transcript(folder: Path, run: RunRecord, arm: str) -> list[JsonObject]:
    path = folder / TRANSCRIPTS / run.bed / arm / f"{run.scenario}-{run.seed}.jsonl"
    lines = [json.parse(line) for line in path.read_bytes().splitlines()]
    return [one for one in lines if isinstance(one, dict)]
