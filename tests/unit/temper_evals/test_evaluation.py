from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from temper_evals.cards.card import Model
from temper_evals.cards.environment import read_environments
from temper_evals.evaluation import (
    EvaluationChoice,
    arms_of,
    check_folder,
    choice_of,
    count_planned_runs,
    evaluate,
    find_running_setups,
    missing_runs,
    protocol_of,
    scenarios_of,
    simulated_setups,
)
from temper_evals.records import Records, read_protocol, read_runs
from temper_evals.runs import ArmProgress
from temper_evals.scenarios.suite import ALL_FAMILIES
from temper_evals.simulated.profiles import grid, load_profile
from temper_evals.simulated.server import SimulatedServer, serve
from tests.fakes.raw_backend import raw_backend
from tests.unit.temper_evals.test_endpoints import answering
from tests.unit.temper_evals.test_results import runs_of

SMALL = EvaluationChoice(
    families=("single",), profiles=("healthy",), arms=("direct", "ceiling"), pace=0.0
)


def ignored(_progress: ArmProgress) -> None:
    pass


def test_the_default_arms_depend_on_the_suite_and_on_the_option_without() -> None:
    assert arms_of(EvaluationChoice())[0].name == "direct"
    assert len(arms_of(EvaluationChoice(suite="full"))) > len(arms_of(EvaluationChoice()))
    assert [arm.name for arm in arms_of(EvaluationChoice(without=("nudge",)))][
        -1
    ] == "temper-without-nudge"
    assert len(scenarios_of(EvaluationChoice())) > 50


def test_the_arm_ceiling_exists_only_for_simulated_models() -> None:
    choice = EvaluationChoice(backend_urls=("http://127.0.0.1:1",))
    assert not choice.is_simulated
    assert "ceiling" not in [arm.name for arm in arms_of(choice)]
    assert "ceiling" in [arm.name for arm in arms_of(EvaluationChoice())]


def test_scenarios_of_the_user_are_refused_without_a_model_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "hello.toml").write_text('user = "hello"')
    with pytest.raises(InvalidConfiguration, match="requires a model"):
        scenarios_of(EvaluationChoice(scenarios=tmp_path))
    with pytest.raises(InvalidConfiguration, match="has no"):
        scenarios_of(EvaluationChoice(forge_checkout=tmp_path, ollama=("qwen3",)))
    choice = EvaluationChoice(scenarios=tmp_path, ollama=("qwen3",))
    assert [scenario.name for scenario in scenarios_of(choice)] == ["hello"]


def test_the_untuned_tasks_exclude_the_tasks_that_temper_tune_uses() -> None:
    all_tasks = scenarios_of(EvaluationChoice(suite="full", families=("chain",)))
    choice = EvaluationChoice(suite="full", families=("chain",), untuned=True)
    names = [scenario.name for scenario in scenarios_of(choice)]
    assert names[:3] == ["chain-1", "chain-3", "chain-5"]
    assert len(names) == len(all_tasks) // 2


def test_the_option_has_grid_gives_a_simulated_setup_for_each_combination_of_parameters() -> None:
    assert [setup.name for setup in simulated_setups(EvaluationChoice())] == ["n-8b"]
    names = [setup.name for setup in simulated_setups(EvaluationChoice(has_grid=True))]
    assert len(set(names)) == len(grid()) > 27
    with pytest.raises(InvalidConfiguration, match="unknown profile 'x'"):
        simulated_setups(EvaluationChoice(profiles=("x",)))


async def test_a_resumed_evaluation_reads_its_options_from_the_folder(tmp_path: Path) -> None:
    records = await evaluate(SMALL, tmp_path, ignored)
    assert len(records.runs) == 12
    resumed = choice_of(tmp_path, {})
    assert (resumed.families, resumed.arms, resumed.pace) == (SMALL.families, SMALL.arms, 0.0)
    again = await evaluate(resumed, tmp_path, ignored)
    assert len(again.runs) == 12
    assert missing_runs(read_protocol(tmp_path), again.runs) == {}
    assert missing_runs(read_protocol(tmp_path), again.runs[:-2]) == {"healthy ceiling": 2}
    damaged: tuple[JsonObject, ...] = ({"choice": 3}, {"arms": None, "beds": [], "pairs": "x"})
    for changed in damaged:
        protocol: JsonObject = {**read_protocol(tmp_path), **changed}
        assert missing_runs(protocol, again.runs) == {}


def test_the_full_suite_has_25_tasks_of_each_family_and_runs_each_with_every_seed() -> None:
    full = EvaluationChoice(suite="full", seeds=5)
    names = Counter(scenario.family for scenario in scenarios_of(full))
    assert names == {**dict.fromkeys(ALL_FAMILIES, 25), "long": 5}
    assert protocol_of(full)["pairs"] == 5 * sum(names.values())


@pytest.mark.deep
async def test_after_an_interruption_only_the_missing_runs_of_the_full_suite_are_made(
    tmp_path: Path,
) -> None:
    choice = EvaluationChoice(
        suite="full", seeds=2, families=("triage",), profiles=("healthy",), arms=("direct",), pace=0
    )
    await evaluate(choice, tmp_path, ignored)
    path = tmp_path / "runs.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    truncated = [*lines[:20], lines[20][:30]]
    path.write_bytes(b"".join(truncated))
    assert missing_runs(read_protocol(tmp_path), [*read_runs(tmp_path)]) == {"healthy direct": 30}
    records = await evaluate(choice_of(tmp_path, {}), tmp_path, ignored)
    cases = {(run.scenario, run.seed) for run in records.runs}
    assert cases == {(f"triage-{index}", seed) for index in range(25) for seed in range(2)}
    assert len(path.read_bytes().splitlines()) == len(cases)
    assert all(run.right for run in records.runs)


async def test_count_planned_runs_returns_the_number_of_runs_that_evaluate_makes(
    tmp_path: Path,
) -> None:
    choice = replace(SMALL, profiles=("healthy", "p-small"), seeds=2)
    assert len((await evaluate(choice, tmp_path, ignored)).runs) == count_planned_runs(choice)
    real = EvaluationChoice(families=("single",), arms=("direct",))
    assert count_planned_runs(replace(real, backend_urls=("http://a", "http://b"))) == 2 * 6
    files = replace(real, models=(Path("a.gguf"), Path("b.gguf")), ollama=("qwen3",))
    assert count_planned_runs(files) == 3 * 6


async def test_two_running_servers_are_evaluated_and_their_environments_recorded(
    tmp_path: Path,
) -> None:
    first, second = (SimulatedServer(load_profile("healthy"), 0.0) for _ in range(2))
    async with serve(first) as first_url, serve(second) as second_url:
        choice = EvaluationChoice(
            families=("none",),
            backend_urls=(first_url,),
            ollama=("simulated",),
            ollama_url=second_url,
            arms=("direct",),
        )
        records = await evaluate(choice, tmp_path, ignored)
    assert {run.bed for run in records.runs} == {first_url.partition("://")[2], "simulated"}
    environments = read_environments(tmp_path)
    assert environments.keys() == {run.bed for run in records.runs}
    for (environment,) in environments.values():
        assert environment.model == Model(name="simulated")
        assert environment.engine is not None
    assert all(run.right for run in records.runs)
    assert protocol_of(choice)["beds"] == []
    planned = {**protocol_of(choice), "pairs": 5}
    fewer = [structs.replace(run, bed="b") for run in runs_of("direct", "+")]
    assert missing_runs(planned, fewer) == {"b direct": 4}


async def test_an_unreachable_server_ends_the_evaluation_before_it_starts(tmp_path: Path) -> None:
    choice = EvaluationChoice(
        families=("none",), backend_urls=("http://127.0.0.1:9",), arms=("direct",)
    )
    with pytest.raises(InvalidConfiguration, match="no server answers"):
        await evaluate(choice, tmp_path / "out", ignored)
    assert not (tmp_path / "out").exists()


async def test_a_folder_started_with_other_options_is_refused(tmp_path: Path) -> None:
    check_folder(tmp_path, SMALL)
    # a folder without runs is accepted, even if its protocol has another number of seeds
    Records(tmp_path, protocol_of(EvaluationChoice(seeds=3))).close()
    check_folder(tmp_path, SMALL)
    await evaluate(SMALL, tmp_path, ignored)
    check_folder(tmp_path, replace(SMALL, pace=1.0, keeps_all=True))
    assert read_protocol(tmp_path) == protocol_of(SMALL)
    with pytest.raises(InvalidConfiguration, match=r"other options \(seeds, arms\)"):
        check_folder(tmp_path, replace(SMALL, seeds=2, arms=("direct",)))


def test_another_scenario_of_the_user_changes_the_protocol_hash(tmp_path: Path) -> None:
    path = tmp_path / "hello.toml"
    path.write_text('user = "hello"')
    choice = EvaluationChoice(scenarios=tmp_path, ollama=("qwen3",))
    before = protocol_of(choice)["hash"]
    assert before == protocol_of(choice)["hash"]
    assert str(before).startswith(str(protocol_of(EvaluationChoice())["hash"]))
    path.write_text('user = "good evening"')
    assert protocol_of(choice)["hash"] != before


@pytest.mark.parametrize("flags", [{"seeds": "x"}, {"pace": None}])
def test_flags_with_invalid_numbers_are_refused(flags: dict[str, object]) -> None:
    with pytest.raises(InvalidConfiguration):
        choice_of(None, flags)


def test_the_choice_of_an_evaluation_is_read_from_flags_and_the_variable_ollama_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", "10.0.0.1:7")
    choice = choice_of(None, {"suite": "full", "models": ("a.gguf",), "unknown": 3})
    assert (choice.suite, choice.models) == ("full", (Path("a.gguf"),))
    assert choice.ollama_url == "http://10.0.0.1:7"


def test_the_bfcl_suite_is_refused_without_a_model_or_without_bfcl_data(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="requires a model"):
        scenarios_of(EvaluationChoice(suite="bfcl:multiple", bfcl=tmp_path))
    with pytest.raises(InvalidConfiguration, match="no BFCL data"):
        scenarios_of(EvaluationChoice(suite="bfcl:multiple", bfcl=tmp_path, ollama=("qwen3",)))


async def test_each_model_named_for_one_server_becomes_a_setup() -> None:
    listed = json.dump({"data": [{"id": "org/a"}, {"id": "b"}]})
    async with raw_backend(answering(listed), answering(listed)) as backend:
        choice = choice_of(None, {"backend_urls": (backend.url,), "backend_model": ("org/a", "b")})
        setups = await find_running_setups(choice)
    host = backend.url.removeprefix("http://")
    assert [setup.name for setup in setups] == [f"{host}_org_a", f"{host}_b"]
    assert count_planned_runs(replace(choice, tasks=("chain-0",), arms=("direct",))) == 2


def test_backend_model_may_be_a_single_name_as_in_older_protocols() -> None:
    assert choice_of(None, {"backend_model": "m"}).backend_model == ("m",)
    assert choice_of(None, {"backend_model": ""}).backend_model == ()
