"""Temper with a real Ollama; runs only where `OLLAMA_HOST` and `OLLAMA_MODEL` are set.

The model should support tools. Its text is not tested: these tests require only what holds for any
model.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import httpx
import pytest

from proxy.api.app import ServerOptions
from proxy.backends.detection import ollama_url
from proxy.backends.ollama import Ollama, OllamaOverrides
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonObject
from tests.fakes.running_proxy import RunningProxy, in_front_of
from tests.fakes.scripted_backend import ScriptedBackend
from tests.live.servers import answer_after_a_call, check_required_call, question

HOST, MODEL = os.environ.get("OLLAMA_HOST", ""), os.environ.get("OLLAMA_MODEL", "")
WINDOW = 4096
ASKED = question(MODEL, temperature=0)

pytestmark = pytest.mark.skipif(
    not (HOST and MODEL), reason="OLLAMA_HOST and OLLAMA_MODEL are not set"
)


@asynccontextmanager
async def temper() -> AsyncGenerator[RunningProxy, None]:
    engine = Ollama(BackendClient(ollama_url(HOST)), OllamaOverrides(num_ctx=WINDOW))
    async with in_front_of(engine, ServerOptions(), ScriptedBackend()) as proxy:
        proxy.client.timeout = httpx.Timeout(600)
        try:
            yield proxy
        finally:
            await engine.unload()


async def test_the_model_returns_a_valid_call_if_tool_choice_is_required(*, stream: bool) -> None:
    await check_required_call(temper, ASKED, stream=stream)


async def test_the_model_answers_after_a_tool_result() -> None:
    await answer_after_a_call(temper, ASKED)


async def test_ollama_loads_the_model_with_the_configured_window() -> None:
    async with temper() as proxy, httpx.AsyncClient(base_url=ollama_url(HOST)) as ollama:
        await proxy.ask({**ASKED, "max_tokens": 1})
        running = (await ollama.get("/api/ps")).json()["models"]
    assert WINDOW in [model["context_length"] for model in running]


async def test_a_prompt_beyond_the_window_is_context_length_exceeded() -> None:
    long: JsonObject = {**ASKED, "messages": [{"role": "user", "content": "consequently " * 9000}]}
    async with temper() as proxy:
        answer = await proxy.ask(long, headers={"x-temper-compaction": "off"})
    assert answer.error is not None
    assert answer.error["code"] == "context_length_exceeded"


async def test_a_model_that_was_not_pulled_is_a_404_with_the_pull_command() -> None:
    async with temper() as proxy:
        answer = await proxy.ask({**ASKED, "model": "no-such-model:1b"})
    assert answer.status == 404
    assert answer.error is not None
    assert "ollama pull" in str(answer.error["message"])


async def test_cached_tokens_are_reported_or_omitted() -> None:
    async with temper() as proxy:
        first = await proxy.ask({**ASKED, "max_tokens": 8})
        second = await proxy.ask({**ASKED, "max_tokens": 8})
    first_usage, second_usage = cast("JsonObject", first.usage), cast("JsonObject", second.usage)
    assert first_usage["prompt_tokens"] == second_usage["prompt_tokens"]
