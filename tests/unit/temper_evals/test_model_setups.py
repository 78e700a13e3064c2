from pathlib import Path

import httpx
import pytest

from proxy.errors import LaunchFailed
from temper_evals.loop import ModelTarget
from temper_evals.model_setups import (
    ServedSetup,
    SimulatedSetup,
    plan_launch,
    start_model,
)
from temper_evals.scenarios.suite import FAMILIES
from temper_evals.scenarios.worlds import CannedWorld
from temper_evals.simulated.profiles import Cell, Level


async def test_the_name_of_a_simulated_setup_contains_its_profile_and_parameters() -> None:
    low = Cell(rates=Level.LOW)
    assert SimulatedSetup("n-8b").name == "n-8b"
    assert SimulatedSetup("n-8b", low).name == "n-8b@low-mid-mid"
    assert SimulatedSetup("n-8b").usage_of("chain-1/0") is None


async def test_opening_a_simulated_setup_resets_counts_and_sets_the_window() -> None:
    setup = SimulatedSetup("p-small", pace=0.0)
    for is_ceiling, window in ((False, 8192), (True, 65_536)):
        async with setup.open(is_ceiling=is_ceiling) as target, httpx.AsyncClient() as client:
            properties = (await client.get(f"{target.url}/props")).json()
            assert properties["default_generation_settings"]["n_ctx"] == window
        spent = setup.usage_of("chain-1/0")
        assert spent is not None
        assert spent.generations == 0


async def test_opening_a_served_setup_returns_its_target() -> None:
    target = ModelTarget("http://model", "qwen")
    setup = ServedSetup("qwen", target)
    async with setup.open(is_ceiling=False) as opened:
        assert opened is target
    assert setup.usage_of("x/0") is None


def test_requests_to_a_served_model_have_the_seed_and_include_usage() -> None:
    task = FAMILIES["forced"](0)
    real = ServedSetup("qwen", ModelTarget("http://model")).adapt(task)
    request = real.request(7)
    assert request["seed"] == 7
    assert request["stream_options"] == {"include_usage": True}
    assert request["messages"] == task.request(7)["messages"]
    assert (real.name, real.family, real.limit) == (task.name, task.family, task.limit)
    assert real.first_fields() == task.first_fields()
    assert isinstance(real.world(), CannedWorld)
    assert real.judge(real.world(), []) == task.judge(task.world(), [])
    assert SimulatedSetup("n-8b").adapt(task) is task


def test_a_model_file_is_served_with_four_slots_and_8192_tokens() -> None:
    plan = plan_launch(Path("some.gguf"), "some")
    assert (plan.model, plan.alias, plan.context_tokens, plan.slots) == (
        Path("some.gguf"),
        "some",
        8192,
        4,
    )
    assert plan_launch(Path("some.gguf"), "some", window=4096).context_tokens == 4096


async def test_a_missing_model_file_is_refused_before_a_server_is_started(
    tmp_path: Path,
) -> None:
    steps: list[str] = []
    with pytest.raises(LaunchFailed, match="does not exist"):
        async with start_model(plan_launch(tmp_path / "no.gguf", "no"), steps.append):
            pass
    assert [step for step in steps if not step.startswith("failed")] == []
