"""The procedure of `temper tune`: tries each setting on the same cases with and without it.

Candidates are tried one after another, the cheapest first. The same cases are run with the settings
that earlier candidates have earned, and with these settings plus the candidate. The comparison ends
when the sequential test decides, or when the candidate's share of the time is over. A helpful
setting stays off if it costs too many generations. A reasoning effort that saves tokens is earned
if it is not worse, even if it does not help. Only the lowest earned effort is used.

The cases are one half of the suite. Tuning never uses the other half, so that reports can measure
the tuned settings on other cases.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Protocol, TypeAlias

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.dialects.openai_chat.thinking import RANKS
from proxy.errors import InvalidConfiguration
from proxy.profiles.known_model import KnownModel
from temper_evals.loop import AgentLoop, Ending, ModelTarget
from temper_evals.model_setups import ModelSetup
from temper_evals.records import Records, RunRecord
from temper_evals.runs import AT_ONCE, CaseRunner, RunsInProgress, make_client
from temper_evals.scenarios.scenario import Scenario
from temper_evals.sequential import Decision, SequentialTest
from temper_evals.temper_server import temper_in_front

# Consecutive failures before the first finished case. Without this limit, a server that refuses
# every request would use up all minutes.
_FIRST_FAILURES = 6
# Limit of generations per request with all earned settings. A setting that adds less than CHEAP is
# not rejected, even if the model exceeds the limit without the setting.
MOST_GENERATIONS, CHEAP = 1.45, 0.1
# An effort saves tokens if it generates at most this share of the tokens without the effort.
SAVING = 0.9
_PRICED = 60  # after this number of cases, the cost is certain enough to reject a setting

# Settings by section and name, as in temper.toml.
Values = Mapping[str, Mapping[str, JsonValue]]
# The first seed of tuning; reports on tuned settings use other seeds.
FIRST_SEED = 1_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A setting to try; it is skipped if the candidate with the name `unless` was harmful.

    An effort is earned if it saves tokens and is not worse; later efforts are then skipped.
    """

    name: str
    values: Values
    unless: str = ""
    is_effort: bool = False


_ALWAYS: Mapping[str, JsonValue] = {"close_out": "always"}
CANDIDATES = (
    Candidate("respond", {"guardrails": {"text_policy": "respond"}}),
    Candidate("close_out always", {"guardrails": _ALWAYS}),
    Candidate(
        "close_out always, two tries",
        {"guardrails": {**_ALWAYS, "close_out_tries": 2}},
        unless="close_out always",
    ),
)


def candidates_for(known: KnownModel) -> tuple[Candidate, ...]:
    """Return the candidates for a model; the candidates of its profile come first.

    Efforts are known only for models with a profile. Tools in the prompt are no candidate if the
    engine has no support for tools, because Temper then describes them in the prompt anyway.
    """
    profile, candidates = known.recognition.profile, list[Candidate]()
    if known.overrides.thinking is not False:
        for effort in sorted(known.quirks.efforts, key=RANKS.__getitem__):
            candidates.append(
                Candidate(f"effort {effort}", {"profile": {"effort": effort}}, is_effort=True)
            )
    if not known.quirks.convention:
        convention = profile.fallback_convention
        values: Values = {"profile": {"tools_in_prompt": convention}}
        candidates.append(Candidate(f"tools in the prompt, as {convention}", values))
    return (*candidates, *CANDIDATES)


@dataclass(slots=True)
class Price:
    """The runs of the same cases without a setting (`before`) and with it (`after`)."""

    before: list[RunRecord] = field(default_factory=list)
    after: list[RunRecord] = field(default_factory=list)

    @property
    def generations_per_request(self) -> float:
        return _generations_per_request(self.after)

    @property
    def share_of_tokens(self) -> float:
        """The generated tokens with the setting, divided by those without it."""
        before, after = (sum(run.generated for run in runs) for runs in (self.before, self.after))
        return after / before if before else 1.0

    @property
    def is_too_high(self) -> bool:
        limit = max(MOST_GENERATIONS, CHEAP + _generations_per_request(self.before))
        return self.generations_per_request > limit


@dataclass(slots=True)
class Verdict:
    """The result of a comparison so far; it is final if it `is_over`.

    `was_tried` is False if there was no time or no reason to try the candidate. It `lacks_time` if
    more minutes would have led to more cases.
    """

    candidate: Candidate
    test: SequentialTest = field(default_factory=SequentialTest)
    price: Price = field(default_factory=Price)
    was_tried: bool = True
    lacks_time: bool = False
    is_over: bool = False

    @property
    def decision(self) -> Decision:
        """The decision of the test, unless the price is too high."""
        tested, is_priced = self._decision_before_price, len(self.price.after) >= _PRICED
        if tested is Decision.OFF or not self.price.is_too_high:
            return tested
        return Decision.OFF if tested is Decision.ON or is_priced else tested

    @property
    def _saves(self) -> bool:
        return self.candidate.is_effort and self.price.share_of_tokens <= SAVING

    @property
    def _decision_before_price(self) -> Decision:
        """The decision without the limit of generations.

        An effort that saves tokens is on if it is not worse. An effort that needs many more tokens
        is off even if it helps.
        """
        if self._saves:
            return _DECISIONS_ON_SAVINGS[self.test.loses]
        is_expensive = self.candidate.is_effort and self.price.share_of_tokens > MOST_GENERATIONS
        decision = self.test.decision
        return Decision.OFF if is_expensive and decision is Decision.ON else decision

    @property
    def missing(self) -> int:
        """The estimated number of further cases until a decision, at least 1."""
        return self.test.missing_for_loss if self._saves else self.test.missing

    @property
    def is_on(self) -> bool:
        return self.decision is Decision.ON

    @property
    def is_harmful(self) -> bool:
        """True if the candidate was rejected although it changes the results of some cases."""
        return self.decision is Decision.OFF and not self.test.is_rare

    def sentence(self) -> str:
        name, test = self.candidate.name, self.test
        if not self.was_tried:
            return f"{name}: not tried: off"
        if not test.pairs:
            return f"{name}: no finished case: off"
        counted = f"{name}: {test.helped} helped, {test.harmed} harmed of {test.pairs}"
        match self.decision:
            case Decision.ON:
                return f"{counted}: on{self._tokens}"
            case Decision.OFF:
                return f"{counted}: off{self._reason}"
            case _:
                return f"{counted}: undecided, off: about {self.missing} more cases"

    @property
    def _tokens(self) -> str:
        share = self.price.share_of_tokens
        return f" ({share:.0%} of the tokens)" if self.candidate.is_effort else ""

    @property
    def _reason(self) -> str:
        if self._decision_before_price is not Decision.OFF:
            return f" ({self.price.generations_per_request:.2f} generations per request)"
        if self.test.decision is Decision.ON:
            return self._tokens
        return " (changes almost nothing)" if self.test.is_rare else ""

    def document(self) -> JsonObject:
        test = self.test
        return {
            "name": self.candidate.name,
            "decision": self.decision.value if self.was_tried else "not tried",
            "cases": test.pairs,
            "helped": test.helped,
            "harmed": test.harmed,
            "generations_per_request": round(self.price.generations_per_request, 2),
            "share_of_tokens": round(self.price.share_of_tokens, 2),
            "missing": self.missing if self.decision is Decision.UNDECIDED else 0,
        }


# `SequentialTest.loses` -> the decision on an effort that saves tokens
_DECISIONS_ON_SAVINGS = {True: Decision.OFF, False: Decision.ON, None: Decision.UNDECIDED}


class Runner(Protocol):
    """Runs cases with certain settings."""

    async def run(self, scenario: Scenario, seed: int) -> RunRecord:
        """Return the record of a case; the case is run only if it has no record yet."""


# Opens a runner with these settings; leaving the block closes it.
OpenRunner: TypeAlias = Callable[[Values], AbstractAsyncContextManager[Runner]]


@dataclass(frozen=True, slots=True)
class TemperRunners:
    """Starts a Temper with given settings, in front of the same model each time."""

    target: ModelTarget
    bed: ModelSetup
    records: Records
    in_progress: RunsInProgress = field(default_factory=RunsInProgress)

    @asynccontextmanager
    async def open(self, values: Values) -> AsyncGenerator[Runner, None]:
        environment = environment_of(values)
        if key := key_of(self.target):  # Temper also needs it to identify the model
            environment["TEMPER_BACKEND__API_KEY"] = key
        async with temper_in_front(self.target, environment) as temper, make_client() as client:
            loop, name = AgentLoop(client, temper), describe(values)
            runner = CaseRunner(self.records, self.bed, name, loop, in_progress=self.in_progress)
            yield CachedRunner(runner)


@dataclass(frozen=True, slots=True)
class CachedRunner:
    """Runs a case only if there is no record of it."""

    runner: CaseRunner

    async def run(self, scenario: Scenario, seed: int) -> RunRecord:
        key = self.runner.bed.name, self.runner.arm, scenario.name, seed
        record = self.runner.records.find(key)
        return record or await self.runner.run(scenario, seed)


@dataclass(slots=True)
class Tuning:
    """Tries candidates on a model; `verdicts` has the decisions so far.

    `base` are the operator's settings; a candidate that would change one of them is skipped. After
    `seconds`, running generations are canceled, and their runs do not count. `on_step` receives
    "with" or "without" and the name of the candidate.
    """

    open_runner: OpenRunner
    scenarios: Sequence[Scenario]
    seconds: float
    base: Values = field(default_factory=dict)
    most_seeds: int | None = None
    candidates: Sequence[Candidate] = CANDIDATES
    on_progress: Callable[[Verdict], None] = field(default=lambda _verdict: None)
    on_step: Callable[[str], object] = field(default=lambda _step: None)
    clock: Callable[[], float] = time.monotonic
    verdicts: list[Verdict] = field(default_factory=list)
    _failed: int = 0
    _compared_seconds: float = 0.0

    async def run(self) -> None:
        """Try every candidate; a cancellation keeps the decisions so far."""
        end = self.clock() + self.seconds
        waiting = [
            candidate for candidate in self.candidates if not _overlap(candidate.values, self.base)
        ]
        for index, candidate in enumerate(waiting):
            verdict = Verdict(candidate)
            self.verdicts.append(verdict)
            harmful = {verdict.candidate.name for verdict in self.verdicts if verdict.is_harmful}
            seconds_left = end - self.clock()
            has_effort = candidate.is_effort and any(
                verdict.is_on for verdict in self.verdicts if verdict.candidate.is_effort
            )
            is_useful = not has_effort and candidate.unless not in harmful
            verdict.was_tried = seconds_left > 0 and is_useful
            if verdict.was_tried:
                await self._compare_within(seconds_left / (len(waiting) - index), verdict)
            elif is_useful:
                verdict.lacks_time = True
            verdict.is_over = True
            self.on_progress(verdict)

    def estimate_missing_seconds(self) -> float | None:
        """Estimate the seconds until every verdict is decided; None if no case was finished."""
        pairs = sum(verdict.test.pairs for verdict in self.verdicts)
        missing = sum(verdict.missing for verdict in self.verdicts if verdict.lacks_time)
        return self._compared_seconds / pairs * missing if pairs else None

    async def _compare_within(self, seconds: float, verdict: Verdict) -> None:
        """Compare until a decision, or until the time is over, even during a generation."""
        began, limit = self.clock(), asyncio.timeout(seconds)
        try:
            async with limit:
                await self._compare(verdict)
        except TimeoutError:
            if not limit.expired():
                raise
            verdict.lacks_time = verdict.decision is Decision.UNDECIDED
        finally:
            self._compared_seconds += self.clock() - began

    async def _compare(self, verdict: Verdict) -> None:
        before = merge_settings(self.base, earned_by(self.verdicts))
        after = merge_settings(before, verdict.candidate.values)
        name = verdict.candidate.name
        async with self.open_runner(before) as first, self.open_runner(after) as second:
            for batch in _batches(self._cases()):
                old: dict[int, RunRecord] = {}
                new: dict[int, RunRecord] = {}
                try:
                    self.on_step(f"without {name}")
                    await _run_all(first, batch, old)
                    self.on_step(f"with {name}")
                    await _run_all(second, batch, new)
                finally:  # count the finished pairs even if the time limit cancels the batch
                    for number in sorted(old.keys() & new.keys()):
                        if verdict.decision is Decision.UNDECIDED:
                            self._count(verdict, old[number], new[number])
                if verdict.decision is not Decision.UNDECIDED:
                    return
                self.on_progress(verdict)

    def _cases(self) -> Iterator[tuple[Scenario, int]]:
        seeds = count() if self.most_seeds is None else range(self.most_seeds)
        for seed in seeds:
            for scenario in self.scenarios:
                yield scenario, FIRST_SEED + seed

    def _count(self, verdict: Verdict, before: RunRecord, after: RunRecord) -> None:
        """Count a pair of finished runs.

        Raises InvalidConfiguration if `_FIRST_FAILURES` pairs failed before the first good pair.
        """
        failed = [run for run in (before, after) if run.ending == Ending.FAILED.value]
        if not failed:
            verdict.test.add(before=before.right, after=after.right)
            verdict.price.before.append(before)
            verdict.price.after.append(after)
            return
        self._failed += 1
        if not verdict.test.pairs and self._failed >= _FIRST_FAILURES:
            raise InvalidConfiguration("temper tune", f"every request failed: {failed[0].why}")


def _generations_per_request(runs: Sequence[RunRecord]) -> float:
    return sum(run.generations for run in runs) / max(1, sum(run.requests for run in runs))


async def _run_all(
    runner: Runner, batch: Sequence[tuple[Scenario, int]], finished: dict[int, RunRecord]
) -> None:
    """Run cases concurrently; a finished case is kept even if others fail."""

    async def run(number: int, case: tuple[Scenario, int]) -> None:
        finished[number] = await runner.run(*case)

    await asyncio.gather(*(run(number, case) for number, case in enumerate(batch)))


def earned_by(verdicts: Iterable[Verdict]) -> dict[str, dict[str, JsonValue]]:
    """Return the settings that are on so far."""
    return merge_settings(*(verdict.candidate.values for verdict in verdicts if verdict.is_on))


def halves(scenarios: Iterable[Scenario]) -> tuple[list[Scenario], list[Scenario]]:
    """Return the half for tuning and the half for reports: even and odd instances of each family.

    The order is `branch-0, chain-0, ..., branch-2`, so that the first cases are of all families.
    """
    ordered = sorted(scenarios, key=lambda scenario: (_number(scenario), scenario.family))
    return (
        [scenario for scenario in ordered if _number(scenario) % 2 == 0],
        [scenario for scenario in ordered if _number(scenario) % 2],
    )


def merge_settings(*layers: Values) -> dict[str, dict[str, JsonValue]]:
    """Merge settings; a value in a later layer replaces the value in an earlier layer."""
    layers_merged: dict[str, dict[str, JsonValue]] = {}
    for layer in layers:
        _merge_into(layers_merged, layer)
    return layers_merged


def environment_of(values: Values) -> dict[str, str]:
    """Return settings as environment variables of `temper serve`."""
    return {
        f"TEMPER_{section}__{name}".upper(): value
        if isinstance(value, str)
        else json.dump_text(value)
        for section, settings in values.items()
        for name, value in settings.items()
    }


def key_of(target: ModelTarget) -> str:
    """Return the API key of a server; "" if it needs none."""
    return target.headers.get("authorization", "").removeprefix("Bearer ")


def describe(values: Values) -> str:
    """Return a short name of settings for records; `defaults` if empty."""
    pairs = (f"{name}={value}" for settings in values.values() for name, value in settings.items())
    return ",".join(pairs) or "defaults"


def _merge_into(merged_values: dict[str, dict[str, JsonValue]], values: Values) -> None:
    for section, settings in values.items():
        merged_values.setdefault(section, {}).update(settings)


def _overlap(values: Values, other: Values) -> bool:
    return any(settings.keys() & other.get(name, {}).keys() for name, settings in values.items())


def _batches(cases: Iterator[tuple[Scenario, int]]) -> Iterator[list[tuple[Scenario, int]]]:
    """Yield cases in batches; the first has one case, so that a slow model finishes a pair soon."""
    size = 1
    while batch := [*islice(cases, size)]:
        yield batch
        size = AT_ONCE


def _number(scenario: Scenario) -> int:
    return int(scenario.name.rpartition("-")[2])
