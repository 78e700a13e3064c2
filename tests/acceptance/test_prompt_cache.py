"""The second turn of a conversation after events that lose a prompt cache, on real servers."""

import asyncio
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from proxy.settings import load_settings
from tests.fakes.running_proxy import served
from tests.timeouts import with_timeout

LEAST_CACHED = 0.95
BEGINNING = "Hi. " + "The quick brown fox jumps over the lazy dog. " * 60


@dataclass
class Conversation:
    messages: list[dict[str, str]] = field(default_factory=list)

    async def turn(self, client: httpx.AsyncClient, model: str) -> float:
        """Send the next turn; return the cached share of the prompt."""
        content = "And more?" if self.messages else BEGINNING
        self.messages.append({"role": "user", "content": content})
        body = {"model": model, "messages": self.messages, "max_tokens": 5}
        reply = (await client.post("/v1/chat/completions", json=body)).json()
        self.messages.append(reply["choices"][0]["message"])
        usage = reply["usage"]
        return float(usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"])


async def until_unloaded(client: httpx.AsyncClient, name: str) -> None:
    while True:
        listed = (await client.get("/v1/models")).json()["data"]
        if {model["id"]: model["status"]["value"] for model in listed}[name] == "unloaded":
            return
        await asyncio.sleep(0.1)


@with_timeout
async def test_the_saved_prompt_cache_survives_a_swap_a_restart_and_an_idle_unload(
    scripted_model: Path, tmp_path: Path
) -> None:
    other, folder = shutil.copy(scripted_model, tmp_path / "b.gguf"), tmp_path / "cache"
    models = {"a": {"path": str(scripted_model)}, "b": {"path": str(other)}}
    kept = load_settings(None, {"models": models, "prompt_cache": {"folder": str(folder)}})
    conversation = Conversation()
    async with served(kept) as client:
        assert await conversation.turn(client, "a") == 0
        await Conversation().turn(client, "b")
        assert await conversation.turn(client, "a") > LEAST_CACHED  # after the swap
    async with served(kept) as client:
        assert await conversation.turn(client, "a") > LEAST_CACHED  # after the restart

    idle = {**models, "a": {**models["a"], "ttl_seconds": 0.1}}
    unloading = load_settings(None, {"models": idle, "prompt_cache": {"folder": str(folder)}})
    async with served(unloading) as client:
        assert await conversation.turn(client, "a") > LEAST_CACHED
        await until_unloaded(client, "a")
        assert await conversation.turn(client, "a") > LEAST_CACHED

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    async with served(load_settings(None, {"models": models})) as client:
        assert (
            await conversation.turn(client, "a") == 0
        )  # without `prompt_cache.folder` nothing was restored
