import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from msgspec import structs

from proxy.errors import InvalidConfiguration
from proxy.guardrails.model_quirks import Quirks
from proxy.profiles.known_model import Overrides, identify_model
from proxy.profiles.profile import Matching, Profile
from proxy.profiles.recognition import Evidence
from temper_evals.records import RunRecord
from temper_evals.scenarios.scenario import Scenario
from temper_evals.scenarios.suite import suite
from temper_evals.tuning import (
    CANDIDATES,
    Candidate,
    Tuning,
    Values,
    Verdict,
    candidates_for,
    describe,
    earned_by,
    environment_of,
    halves,
)
from tests.benchmarks.evals.test_thresholds import RUN

CASES, OTHERS = halves(suite("quick", ("single", "chain")))
HELPS = Candidate("helps", {"guardrails": {"a": 1}})
MORE = Candidate("more", {"guardrails": {"b": "two"}}, unless="helps")
Rights = Callable[[str, int], bool]


@dataclass
class FakeModel:
    """A fake model: its settings and the number of a run decide whether the run is right."""

    is_right: Rights
    ending: str = "answered"
    generations: int = 1
    base: int = 1
    tokens: dict[str, int] = field(default_factory=dict)
    requests: list[tuple[str, str, int]] = field(default_factory=list)
    hangs_at: int | None = None  # the run with this number never ends, if a setting is tried
    canceled: int = 0

    @asynccontextmanager
    async def open(self, values: Values) -> AsyncGenerator["FakeRunner", None]:
        yield FakeRunner(self, describe(values))


@dataclass
class FakeRunner:
    model: FakeModel
    settings: str
    count: int = 0

    async def run(self, scenario: Scenario, seed: int) -> RunRecord:
        self.count += 1
        self.model.requests.append((self.settings, scenario.name, seed))
        if self.count == self.model.hangs_at and self.settings != "defaults":
            try:
                await asyncio.Event().wait()
            finally:
                self.model.canceled += 1
        is_right = self.model.is_right(self.settings, self.count)
        return structs.replace(
            RUN,
            right=is_right,
            ending=self.model.ending,
            requests=1,
            generations=self.model.base if self.settings == "defaults" else self.model.generations,
            generated=self.model.tokens.get(self.settings, 100),
        )


async def verdicts(
    is_right: Rights, *candidates: Candidate, base: Values | None = None, seconds: float = 60.0
) -> list[Verdict]:
    seen: list[Verdict] = []
    model = FakeModel(is_right)
    tuning = Tuning(
        model.open,
        CASES,
        seconds,
        base or {},
        30,
        candidates or (HELPS, MORE),
        on_progress=seen.append,
        clock=lambda: 0.0,
    )
    await tuning.run()
    assert all(verdict.is_over for verdict in tuning.verdicts)
    assert {id(verdict) for verdict in tuning.verdicts} == {id(verdict) for verdict in seen}
    return tuning.verdicts


def helped_by(*settings: str) -> Rights:
    """Return a function: odd runs are right only with all of these settings, even runs always."""
    return lambda changes, count: count % 2 == 0 or all(setting in changes for setting in settings)


async def test_a_helpful_setting_is_on_and_applies_while_later_candidates_are_tried() -> None:
    first, second = await verdicts(helped_by("a=1"), HELPS, MORE)
    assert (first.is_on, second.is_on) == (True, False)
    assert first.sentence() == "helps: 7 helped, 0 harmed of 13: on"
    assert second.sentence().endswith("off (changes almost nothing)")
    assert earned_by([first, second]) == {"guardrails": {"a": 1}}


async def test_a_setting_is_off_after_three_harmed_pairs_and_its_extension_is_not_tried() -> None:
    first, second = await verdicts(lambda changes, _: "a=1" not in changes)
    assert first.sentence() == "helps: 0 helped, 3 harmed of 3: off"
    assert second.sentence() == "more: not tried: off"
    assert second.document()["decision"] == "not tried"
    assert earned_by([first, second]) == {}


async def test_the_verdict_on_an_undecided_setting_says_how_many_cases_are_missing() -> None:
    (only,) = await verdicts(lambda changes, count: (count % 9 == 0) is ("a=1" in changes), HELPS)
    assert not only.is_on or only.test.helped > only.test.harmed
    few = Verdict(HELPS)
    for _ in range(20):
        few.test.add(before=True, after=True)
    few.test.add(before=False, after=True)
    assert "undecided, off: about" in few.sentence()
    assert few.document()["missing"] == few.test.missing


async def test_a_helpful_setting_that_doubles_the_generations_is_off() -> None:
    model = FakeModel(helped_by("a=1"), generations=2)
    tuning = Tuning(model.open, CASES, 60.0, {}, 30, (HELPS, MORE))
    await tuning.run()
    first, second = tuning.verdicts
    assert first.sentence() == "helps: 7 helped, 0 harmed of 13: off (2.00 generations per request)"
    assert (first.is_on, second.was_tried) == (False, False)
    assert first.document()["generations_per_request"] == 2.0
    assert first.document()["decision"] == "off"


async def test_a_setting_may_need_as_many_generations_as_the_defaults_do() -> None:
    model = FakeModel(helped_by("a=1"), generations=2, base=2)
    tuning = Tuning(model.open, CASES, 60.0, {}, 30, (HELPS,))
    await tuning.run()
    assert tuning.verdicts[0].is_on


async def test_a_setting_that_doubles_the_generations_without_effect_ends_after_60_pairs() -> None:
    model = FakeModel(helped_by("nothing"), generations=2)
    tuning = Tuning(model.open, CASES, 60.0, {}, 30, (HELPS,))
    await tuning.run()
    assert tuning.verdicts[0].test.pairs == 60
    assert tuning.verdicts[0].sentence().endswith("off (2.00 generations per request)")


async def test_a_configured_setting_is_not_tried_and_applies_to_all_runs() -> None:
    assert await verdicts(helped_by(), HELPS, base={"guardrails": {"a": 3}}) == []
    model = FakeModel(helped_by("b=two"))
    await Tuning(model.open, CASES, 60.0, {"guardrails": {"a": 3}}, 9, (MORE,)).run()
    assert {settings for settings, *_ in model.requests} == {"a=3", "a=3,b=two"}


async def test_no_setting_is_tried_in_0_seconds() -> None:
    assert [verdict.was_tried for verdict in await verdicts(helped_by("a=1"), seconds=0)] == [
        False,
        False,
    ]


async def test_a_run_that_hangs_is_canceled_at_the_end_of_the_time() -> None:
    model = FakeModel(lambda _found, _count: True, hangs_at=3)
    steps: list[str] = []
    tuning = Tuning(model.open, CASES, 1.0, {}, 30, (HELPS,), on_step=steps.append)
    await tuning.run()
    (only,) = tuning.verdicts
    # the second batch has three cases; with the setting, its second case hangs and two finish
    assert only.sentence().startswith("helps: 0 helped, 0 harmed of 3: undecided, off: about ")
    assert (only.lacks_time, model.canceled) == (True, 1)
    assert steps[:2] == ["without helps", "with helps"]
    missing = tuning.estimate_missing_seconds()
    assert missing is not None
    assert missing > 1.0


async def test_estimate_missing_seconds_returns_none_if_no_case_was_finished() -> None:
    model = FakeModel(lambda _found, _count: True, hangs_at=1)
    tuning = Tuning(model.open, CASES, 0.05, {}, 30, (HELPS,))
    await tuning.run()
    (only,) = tuning.verdicts
    assert only.sentence() == "helps: no finished case: off"
    assert tuning.estimate_missing_seconds() is None


async def test_a_timeout_error_of_a_run_is_not_mistaken_for_the_end_of_the_time() -> None:
    def impatient(_found: str, _count: int) -> bool:
        raise TimeoutError("of a library")

    with pytest.raises(TimeoutError, match="of a library"):
        await Tuning(FakeModel(impatient).open, CASES, 60.0).run()


async def test_tuning_lacks_time_only_if_time_was_too_short_to_try_a_setting() -> None:
    first, second = await verdicts(lambda changes, _: "a=1" not in changes)
    assert (first.lacks_time, second.lacks_time) == (False, False)
    assert [verdict.lacks_time for verdict in await verdicts(helped_by("a=1"), seconds=0)] == [
        True,
        True,
    ]


async def test_runs_with_and_without_a_setting_have_the_same_cases_and_seeds() -> None:
    model = FakeModel(lambda _found, _count: True)
    await Tuning(model.open, CASES, 60.0, {}, 2, (HELPS,)).run()
    without = [request[1:] for request in model.requests if request[0] == "defaults"]
    assert without == [request[1:] for request in model.requests if request[0] == "a=1"]
    assert len(without) == len({*without}) == 2 * len(CASES)


async def test_tuning_raises_invalid_configuration_if_every_request_fails() -> None:
    model = FakeModel(lambda _found, _count: False, ending="failed")
    with pytest.raises(InvalidConfiguration, match="every request failed"):
        await Tuning(model.open, CASES, 60.0).run()


def test_the_halves_of_the_cases_are_disjoint_and_have_cases_of_every_family() -> None:
    names = [{case.name for case in half} for half in (CASES, OTHERS)]
    assert names[0].isdisjoint(names[1])
    assert (
        {case.family for case in CASES} == {case.family for case in OTHERS} == {"single", "chain"}
    )
    assert [case.family for case in CASES[:2]] == ["chain", "single"]


def test_settings_are_returned_as_environment_variables() -> None:
    values: Values = {"guardrails": {"close_out": "always", "close_out_tries": 2}}
    assert environment_of(values) == {
        "TEMPER_GUARDRAILS__CLOSE_OUT": "always",
        "TEMPER_GUARDRAILS__CLOSE_OUT_TRIES": "2",
    }
    assert describe({}) == "defaults"


EFFORTS = tuple(
    Candidate(f"effort {effort}", {"profile": {"effort": effort}}, is_effort=True)
    for effort in ("low", "medium", "high")
)


async def verdicts_of_efforts(
    is_right: Rights, tokens: dict[str, int], seeds: int = 60
) -> tuple[list[str], Values]:
    model = FakeModel(
        is_right, tokens={f"effort={effort}": count for effort, count in tokens.items()}
    )
    tuning = Tuning(model.open, CASES, 60.0, {}, seeds, EFFORTS, clock=lambda: 0.0)
    await tuning.run()
    return [verdict.sentence() for verdict in tuning.verdicts], earned_by(tuning.verdicts)


async def test_no_other_effort_is_tried_if_the_cheapest_effort_is_on() -> None:
    sentences, earned = await verdicts_of_efforts(lambda *_: True, {"low": 40, "medium": 70})
    assert sentences == [
        "effort low: 0 helped, 0 harmed of 149: on (40% of the tokens)",
        "effort medium: not tried: off",
        "effort high: not tried: off",
    ]
    assert earned == {"profile": {"effort": "low"}}


async def test_the_next_effort_is_tried_after_an_effort_that_harms() -> None:
    sentences, earned = await verdicts_of_efforts(
        lambda changes, count: "low" not in changes or count % 2 == 0, {"low": 40, "medium": 70}
    )
    assert sentences[0] == "effort low: 0 helped, 5 harmed of 9: off"
    assert sentences[1].endswith("on (70% of the tokens)")
    assert earned == {"profile": {"effort": "medium"}}


async def test_an_effort_that_saves_few_tokens_is_on_only_if_it_helps() -> None:
    same, _ = await verdicts_of_efforts(lambda *_: True, {"low": 95})
    assert same[0].endswith("off (changes almost nothing)")
    helped, earned = await verdicts_of_efforts(helped_by("high"), {"high": 140})
    assert helped[2] == "effort high: 7 helped, 0 harmed of 13: on (140% of the tokens)"
    assert earned == {"profile": {"effort": "high"}}


async def test_an_effort_that_helps_at_too_many_tokens_is_off() -> None:
    sentences, earned = await verdicts_of_efforts(helped_by("high"), {"high": 200})
    assert sentences[2] == "effort high: 7 helped, 0 harmed of 13: off (200% of the tokens)"
    assert earned == {}


async def test_the_verdict_on_an_undecided_effort_says_how_many_cases_are_missing() -> None:
    sentences, earned = await verdicts_of_efforts(lambda *_: True, {"low": 40}, seeds=1)
    assert "effort low: 0 helped, 0 harmed of" in sentences[0]
    assert "undecided, off: about" in sentences[0]
    assert earned == {}


def candidates(quirks: Quirks, overrides: Overrides | None = None) -> list[str]:
    profile = Profile("m", "M", quirks, Matching(("m*",)), fallback_convention="json")
    known = identify_model("m1", Evidence(("m1",)), (profile,), overrides or Overrides())
    return [candidate.name for candidate in candidates_for(known)]


def test_the_candidates_depend_on_convention_and_efforts_of_the_profile() -> None:
    usual = [candidate.name for candidate in CANDIDATES]
    tools = "tools in the prompt, as json"
    assert candidates(Quirks()) == [tools, *usual]
    assert candidates(Quirks(convention="hermes")) == usual
    thinks = Quirks(convention="hermes", efforts=("high", "low"))
    assert candidates(thinks) == ["effort low", "effort high", *usual]
    assert candidates(thinks, Overrides(thinking=False)) == usual
