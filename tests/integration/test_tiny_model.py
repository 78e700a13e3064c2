"""The shipped tiny model in a real llama-server, asked directly and through Temper."""

from collections.abc import AsyncGenerator
from pathlib import Path

import httpx
import pytest

from proxy.conversation import json
from proxy.processes.launch import LaunchPlan, embedded_program
from proxy.processes.llama_server import start_llama_server
from temper_evals.evaluation import EvaluationChoice, evaluate
from temper_evals.results import ArmResult, results_of
from temper_evals.runs import ArmProgress
from temper_evals.tiny_model.shipped import MODEL_FILE, WINDOW
from temper_evals.tiny_model.tools import tool_named
from tests.patience import PATIENCE_SECONDS

pytest.importorskip("xllamacpp", reason="needs the extra `embedded`")


@pytest.fixture
async def server() -> AsyncGenerator[httpx.AsyncClient, None]:
    plan = LaunchPlan(embedded_program(), MODEL_FILE, WINDOW, alias="tiny")
    async with (
        start_llama_server(plan) as running,
        httpx.AsyncClient(
            base_url=running.base_url,
            headers={"authorization": f"Bearer {running.api_key}"},
            trust_env=False,
            timeout=PATIENCE_SECONDS,
        ) as client,
    ):
        yield client


def ignored(_progress: ArmProgress) -> None:
    """Nobody looks."""


async def test_it_calls_a_tool_that_it_knows(server: httpx.AsyncClient) -> None:
    asked: json.JsonObject = {
        "messages": [{"role": "user", "content": "Set a timer for 25 minutes."}],
        "tools": [tool_named(name).describe() for name in ("get_time", "set_timer")],
        "temperature": 0,
    }
    answer = await server.post("/v1/chat/completions", json=asked)
    (call,) = answer.json()["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "set_timer"
    assert json.parse(call["function"]["arguments"]) == {"minutes": 25}


async def test_what_a_mismatched_server_leaks_is_found_and_off_changes_nothing(
    tmp_path: Path,
) -> None:
    choice = EvaluationChoice(
        tiny=True, families=("single",), arms=("direct", "temper-off", "temper")
    )
    found = results_of((await evaluate(choice, tmp_path, ignored)).runs, 100)
    by_name: dict[tuple[str, str], ArmResult] = {(one.bed, one.arm): one for one in found}
    native, mute = by_name["tiny", "direct"], by_name["tiny-mute", "direct"]
    assert native.right > 0
    assert mute.right == 0
    assert by_name["tiny-mute", "temper"].right > 0
    for bed in ("tiny", "tiny-mute"):
        off = by_name[bed, "temper-off"].against
        assert off is not None
        assert (off.helped, off.harmed) == (0, 0)
    quiet = by_name["tiny-mute", "temper-off"]
    assert quiet.same_bytes == quiet.runs  # where there are calls, llama-server makes their ids up
