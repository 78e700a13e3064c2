"""Two models and memory for one, on real servers: swapped under load, unloaded when idle."""

import asyncio
import shutil
from pathlib import Path

import httpx
import pytest

from proxy.settings import load_settings
from tests.fakes.running_proxy import served
from tests.timeouts import TIMEOUT_SECONDS

ORDER = ["a", "b", "x", "b", "a", "b", "a", "a", "b", "b"]


async def ask(client: httpx.AsyncClient, model: str, *, stream: bool) -> int:
    message = {"role": "user", "content": "Hi"}
    body = {"model": model, "stream": stream, "max_tokens": 5, "messages": [message]}
    return (await client.post("/v1/chat/completions", json=body)).status_code


async def statuses(client: httpx.AsyncClient) -> dict[str, str]:
    listed = (await client.get("/v1/models")).json()["data"]
    return {model["id"]: model["status"]["value"] for model in listed}


@pytest.mark.fault("F25")
async def test_two_models_answer_all_requests_in_the_memory_of_one_model_and_stop_when_idle(
    scripted_model: Path, tmp_path: Path
) -> None:
    other = shutil.copy(scripted_model, tmp_path / "b.gguf")
    models = {
        "a": {"path": str(scripted_model), "aliases": ["x"], "ttl_seconds": 0.5, "preload": True},
        "b": {"path": str(other), "ttl_seconds": 0.5},
    }
    settings = load_settings(None, {"models": models})
    async with asyncio.timeout(TIMEOUT_SECONDS), served(settings) as client:
        assert (await statuses(client))["a"] in {"loading", "loaded"}
        asking = [ask(client, model, stream=model == "b") for model in ORDER]
        assert await asyncio.gather(*asking) == [200] * len(ORDER)
        assert "loaded" in (await statuses(client)).values()
        while "loaded" in (await statuses(client)).values():  # noqa: ASYNC110 - as a client sees it
            await asyncio.sleep(0.1)
        assert await ask(client, "a", stream=False) == 200
