"""Temper with the real Anthropic API; runs only where a key and a model are configured.

Set `ANTHROPIC_UPSTREAM_KEY` and `ANTHROPIC_UPSTREAM_MODEL`; for another server with this protocol
also `ANTHROPIC_UPSTREAM_URL`. No test checks the text of the model. Each run costs a few thousand
tokens.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import cast

import httpx
import pytest

from proxy.api.app import ServerOptions
from proxy.backends.anthropic import ADDRESS, KEY_HEADER, VERSION_HEADER, Anthropic
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.running_proxy import RunningProxy, in_front_of
from tests.fakes.scripted_backend import ScriptedBackend
from tests.live.servers import answer_after_a_call, check_required_call, question

KEY = os.environ.get("ANTHROPIC_UPSTREAM_KEY", "")
MODEL = os.environ.get("ANTHROPIC_UPSTREAM_MODEL", "")
URL = os.environ.get("ANTHROPIC_UPSTREAM_URL", ADDRESS)
ASKED = question(MODEL, max_tokens=500)

pytestmark = pytest.mark.skipif(
    not (KEY and MODEL), reason="ANTHROPIC_UPSTREAM_KEY and _MODEL are not set"
)


@asynccontextmanager
async def temper() -> AsyncGenerator[RunningProxy, None]:
    connection = BackendClient(URL, KEY, headers=VERSION_HEADER, key_header=KEY_HEADER)
    async with in_front_of(Anthropic(connection), ServerOptions(), ScriptedBackend()) as proxy:
        proxy.client.timeout = httpx.Timeout(600)
        yield proxy


async def test_the_model_returns_a_valid_call_if_tool_choice_is_required(*, stream: bool) -> None:
    await check_required_call(temper, ASKED, stream=stream)


async def test_the_model_answers_after_a_tool_result() -> None:
    instructions = ("Be brief.", "Answer in one sentence.")
    messages: list[JsonValue] = [
        {"role": "system", "content": instruction} for instruction in instructions
    ]
    usage = cast("JsonObject", (await answer_after_a_call(temper, ASKED, *messages)).usage)
    assert cast("int", usage["prompt_tokens"]) > 0


async def test_unknown_model_error_lists_the_known_models() -> None:
    async with temper() as proxy:
        answer = await proxy.ask({**ASKED, "model": "no-such-model"})
    assert answer.status == 404
    assert answer.error is not None
    assert answer.error["code"] == "model_not_found"
