import re
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from proxy.conversation.json import JsonObject
from temper_evals.arms import choose_arms
from temper_evals.loop import AgentLoop, ScenarioRun
from temper_evals.model_setups import SimulatedSetup
from temper_evals.records import Records, RunRecord, read_transcript
from temper_evals.runs import (
    ArmProgress,
    CaseRunner,
    EvaluationPlan,
    RunsInProgress,
    make_client,
    make_runs,
    usage_from_replies,
    wasted_calls,
)
from temper_evals.scenarios.suite import suite

FAMILIES = ("single", "none", "failing")
PROTOCOL: JsonObject = {"hash": "h"}
ARMS = ("direct", "direct-urged", "ceiling")


def plan_of(profile: str, *, keeps_all: bool = False) -> EvaluationPlan:
    scenarios = suite("quick", FAMILIES)
    bed = SimulatedSetup(profile, pace=0.0)
    return EvaluationPlan([bed], choose_arms(ARMS), scenarios, [0, 1], keeps_all)


async def make(folder: Path, plan: EvaluationPlan) -> list[RunRecord]:
    records = Records(folder, PROTOCOL)
    try:
        await make_runs(plan, records)
    finally:
        records.close()
    return records.runs


def reproducible_part(runs: list[RunRecord]) -> list[RunRecord]:
    """Sort the runs, and set values to 0 that depend on this machine or on the prompt cache."""
    comparable = (
        structs.replace(run, seconds=0, text_seconds=[], call_seconds=[], cached=0, model_seconds=0)
        for run in runs
    )
    return sorted(comparable, key=lambda run: run.key)


@pytest.mark.deep
async def test_runs_whose_records_were_lost_are_repeated_with_equal_results(tmp_path: Path) -> None:
    plan = plan_of("p-small")
    runs = await make(tmp_path, plan)
    assert len({run.key for run in runs}) == len(runs) == len(ARMS) * plan.size
    assert all(run.generations == run.requests for run in runs)
    path = tmp_path / "runs.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-20]) + lines[-20][:30])
    repeated = await make(tmp_path, plan)
    assert reproducible_part(repeated) == reproducible_part(runs)


@pytest.mark.deep
async def test_a_model_without_flaws_is_always_right_and_its_progress_is_reported(
    tmp_path: Path,
) -> None:
    reported: list[ArmProgress] = []
    descriptions: list[str] = []

    def report(progress: ArmProgress) -> None:
        reported.append(progress)
        descriptions.append(plan.in_progress.describe())

    plan = plan_of("healthy")
    runs = await make(tmp_path, replace(plan, on_progress=report))
    assert [run for run in runs if not run.right] == []
    digests = {arm: [run.digest for run in runs if run.arm == arm] for arm in ARMS}
    assert sorted(digests["direct"]) == sorted(digests["ceiling"])
    assert [progress.done for progress in reported if progress.arm == "direct"] == [
        *range(plan.size + 1)
    ]
    assert reported[-1].right == reported[-1].of
    current = r"\w+-\d+( and 1 more)? \(\d+ s\).*"
    assert any(re.fullmatch(current, description) for description in descriptions)
    assert plan.in_progress.describe() == ""


@pytest.mark.deep
@pytest.mark.parametrize("keeps_all", [False, True])
async def test_only_transcripts_of_wrong_runs_are_stored_unless_keeps_all_is_set(
    tmp_path: Path, keeps_all: bool
) -> None:
    runs = await make(tmp_path, plan_of("p-small", keeps_all=keeps_all))
    stored = [run for run in runs if read_transcript(tmp_path, run)]
    wrong = [run for run in runs if not run.right]
    assert wrong
    assert len(stored) == len(runs if keeps_all else wrong)


def test_describe_returns_the_oldest_run_in_progress_with_its_time_and_tokens() -> None:
    now = [10.0]
    runs = RunsInProgress(clock=lambda: now[0])
    assert runs.describe() == ""
    with runs.follow("single-1") as first, runs.follow("single-1"), runs.follow("chain-2"):
        now[0] += 42
        assert runs.describe() == "single-1 and 2 more (42 s)"
        first.requests, first.usages, first.chunks = 3, [{"completion_tokens": 100}, {}], 30
        assert runs.describe() == "single-1 and 2 more (42 s), request 3, 130 tokens"
    assert runs.describe() == ""


def test_usage_from_replies_adds_up_the_reported_tokens() -> None:
    usage: JsonObject = {
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 6},
    }
    spent = usage_from_replies(ScenarioRun(requests=2, attempts=3, usages=[usage, {}]))
    assert (spent.generations, spent.prompt, spent.generated, spent.cached) == (3, 10, 4, 6)


def test_calls_with_an_error_and_repeated_calls_count_as_wasted() -> None:
    def called(name: str, result: str) -> list[JsonObject]:
        call: JsonObject = {"id": "a", "function": {"name": name, "arguments": "{}"}}
        return [
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": result},
        ]

    transcript = [*called("look", "12"), *called("find", '{"error": "no"}'), *called("look", "12")]
    assert wasted_calls(transcript) == 2
    assert (
        wasted_calls(transcript[:2]) == wasted_calls([{"role": "assistant", "content": "12"}]) == 0
    )


async def test_the_same_case_has_equal_generations_and_flaws_in_two_arms(
    tmp_path: Path,
) -> None:
    scenario, setup = suite("quick", ("single",))[0], SimulatedSetup("p-small", pace=0.0)
    records = Records(tmp_path, PROTOCOL)
    async with setup.open(is_ceiling=False) as target, make_client() as client:
        loop = AgentLoop(client, target)
        first, again = [
            await CaseRunner(records, setup, arm, loop).run(scenario, 0) for arm in ("one", "two")
        ]
    records.close()
    assert (first.generations, first.flaws) == (again.generations, again.flaws)
    assert first.generations == first.requests
