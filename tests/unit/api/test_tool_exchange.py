"""What the whole path in tests/integration/test_tool_servers.py does not reach."""

import asyncio
from dataclasses import replace

from proxy.api.app import ServerOptions
from proxy.api.fronts import CHAT
from proxy.api.limits import BodyLimits
from proxy.api.request_reader import RequestReader
from proxy.api.routes.chat import Chat
from proxy.api.streaming import StreamTimeouts
from proxy.conversation import json
from proxy.conversation.replies import (
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
)
from proxy.errors import ContextOverflow, TemperError
from proxy.inference.preparation import Policy
from proxy.serving.request_preparation import RequestPreparation
from proxy.serving.tool_hosting import ToolHosting
from proxy.toolservers.calling import Ended
from proxy.toolservers.offer import OfferPolicy, ToolOffer
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend
from tests.fakes.tool_servers import FakeSource, served

BODY = {
    "model": "m",
    "messages": [{"role": "user", "content": "Hi"}],
    "tools": [{"type": "mcp", "server_label": "search"}],
}
CALL: list[ReplyEvent | TemperError] = [
    ReplyStarted(),
    ToolCallStarted(0, "1", "find"),
    ToolCallArgumentsDelta(0, "{}"),
    ReplyFinished("tool_calls"),
]
PROSE: list[ReplyEvent | TemperError] = [
    ReplyStarted(),
    TextDelta("Hello"),
    ReplyFinished("stop"),
]


def answered(
    *scripts: list[ReplyEvent | TemperError], timeouts: StreamTimeouts | None = None
) -> tuple[HandMadeClient, ScriptedBackend]:
    source = FakeSource({"search": (served("find", "search"),)}, {"find": Ended("found")})
    backend = ScriptedBackend([*scripts])
    preparation = RequestPreparation(ServerOptions().alone(backend), Policy())
    chat = Chat(CHAT, RequestReader(BodyLimits(10_000)), preparation, timeouts or StreamTimeouts())
    tools = ToolHosting(ToolOffer(OfferPolicy(), source))
    client = HandMadeClient(json.dump(BODY), "POST", headers={})  # type: ignore[arg-type]
    asyncio.run(client.call(replace(chat, tools=tools)))
    return client, backend


def test_a_prompt_that_proves_too_long_behind_a_round_is_an_error_if_nothing_can_go() -> None:
    overflow: list[ReplyEvent | TemperError] = [ContextOverflow("too long", 10, 5)]
    client, backend = answered(CALL, overflow)
    assert (client.status, len(backend.questions)) == (400, 2)
    assert b"context_length_exceeded" in client.answer


def test_an_answer_that_was_cut_off_in_time_has_no_call_of_ours() -> None:
    client, _ = answered(CALL, PROSE)
    assert client.status == 200
    assert b'"find"' not in client.answer
