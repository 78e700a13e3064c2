import httpx
import pytest

from temper_evals.loop import Target
from temper_evals.model_setups import RealBed, SimulatedBed
from temper_evals.scenarios.suite import FAMILIES
from temper_evals.simulated.profiles import Cell, Level

pytestmark = pytest.mark.anyio


async def test_a_simulated_bed_is_named_for_its_profile_and_cell() -> None:
    low = Cell(rates=Level.LOW)
    assert SimulatedBed("n-8b").name == "n-8b"
    assert SimulatedBed("n-8b", low).name == "n-8b@low-mid-mid"
    assert SimulatedBed("n-8b").spent_on("chain-1/0") is None


async def test_a_ceiling_forgets_nothing_and_starts_afresh() -> None:
    bed = SimulatedBed("p-small", pace=0.0)
    for is_ceiling, window in ((False, 8192), (True, 65_536)):
        async with bed.opened(is_ceiling=is_ceiling) as target, httpx.AsyncClient() as client:
            told = (await client.get(f"{target.url}/props")).json()
            assert told["default_generation_settings"]["n_ctx"] == window
        spent = bed.spent_on("chain-1/0")
        assert spent is not None
        assert spent.generations == 0


async def test_a_real_bed_is_asked_as_it_is() -> None:
    target = Target("http://model", "qwen")
    bed = RealBed("qwen", target)
    async with bed.opened(is_ceiling=False) as found:
        assert found is target
    assert bed.spent_on("x/0") is None


def test_a_real_model_is_asked_for_its_usage_and_draws_with_the_seed_of_the_run() -> None:
    task = FAMILIES["forced"](0)
    real = RealBed("qwen", Target("http://model")).adapted(task)
    request = real.request(7)
    assert request["seed"] == 7
    assert request["stream_options"] == {"include_usage": True}
    assert request["messages"] == task.request(7)["messages"]
    assert (real.name, real.family, real.limit) == (task.name, task.family, task.limit)
    assert real.first_fields() == task.first_fields()
    assert real.world().snapshot() == []
    assert real.judge(real.world(), []) == task.judge(task.world(), [])
    assert SimulatedBed("n-8b").adapted(task) is task
