"""Branches of `ToolRun` that tests/integration/test_tool_servers.py does not reach."""

import asyncio

from proxy.api.app import ServerOptions
from proxy.api.dialects import CHAT
from proxy.api.request_reader import BodyLimits, RequestReader
from proxy.api.routes.chat import Chat
from proxy.api.streaming import StreamTimeouts
from proxy.backends.client import ReplyEvents
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import (
    EventSink,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
)
from proxy.conversation.requests import UpstreamRequest
from proxy.errors import ContextOverflow, TemperError
from proxy.inference.plan import Policy
from proxy.mcp.execution import ToolOffer
from proxy.mcp.hosting import ToolHosting
from proxy.mcp.specification import ToolCallResult
from proxy.observability.observers import Observers
from proxy.serving.request_preparation import RequestPreparation
from tests.fakes.asgi import HandMadeClient
from tests.fakes.backend import ScriptedBackend
from tests.fakes.tool_servers import FakeSource, served

BODY: JsonObject = {
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
PROSE: list[ReplyEvent | TemperError] = [ReplyStarted(), TextDelta("Hello"), ReplyFinished("stop")]


FOUND = FakeSource({"search": (served("find", "search"),)}, {"find": ToolCallResult("found")})


class StallingBackend(ScriptedBackend):
    """Sends the events of a script and then nothing, without ending the reply."""

    async def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: dict[str, str],
        sink: EventSink | None = None,
    ) -> ReplyEvents:
        is_over = False
        async for batch in super().stream(upstream_request, headers, sink):
            is_over = isinstance(batch[-1], ReplyFinished)
            yield batch
        if not is_over:
            await asyncio.Event().wait()


def run_answer(
    *scripts: list[ReplyEvent | TemperError],
    timeouts: StreamTimeouts | None = None,
    source: FakeSource | None = None,
    observers: Observers | None = None,
    stalls: bool = False,
) -> tuple[HandMadeClient, ScriptedBackend]:
    backend = (StallingBackend if stalls else ScriptedBackend)([*scripts])
    preparation = RequestPreparation(ServerOptions().services_for(backend), Policy())
    chat = Chat(
        CHAT,
        RequestReader(BodyLimits(10_000)),
        preparation,
        timeouts or StreamTimeouts(),
        observers=observers or Observers(),
        tools=ToolHosting(ToolOffer(source or FOUND)),
    )
    client = HandMadeClient(json.dump(BODY), "POST")
    asyncio.run(client.ask(chat))
    return client, backend


def test_a_context_overflow_after_a_tool_round_gets_400_if_no_message_can_be_removed() -> None:
    overflow: list[ReplyEvent | TemperError] = [ContextOverflow("too long", 10, 5)]
    client, backend = run_answer(CALL, overflow)
    assert (client.status, len(backend.upstream_requests)) == (400, 2)
    assert b"context_length_exceeded" in client.answer


def test_a_deadline_during_a_tool_call_cancels_the_call_and_is_answered_with_504() -> None:
    source = FakeSource({"search": (served("find", "search"),)})
    client, backend = run_answer(CALL, source=source, timeouts=StreamTimeouts(deadline=0.05))
    assert (client.status, len(backend.upstream_requests)) == (504, 1)
    assert [name for name, *_ in source.calls] == ["find"]
    assert source.running == 0


def test_a_reply_after_tools_is_cut_off_at_the_deadline_and_keeps_its_text() -> None:
    client, _ = run_answer(CALL, PROSE[:2], timeouts=StreamTimeouts(deadline=0.2), stalls=True)
    assert client.status == 200
    document = json.parse(client.answer)
    assert document["choices"][0]["finish_reason"] == "length"  # type: ignore[index, call-overload]
    assert document["choices"][0]["message"]["content"] == "Hello"  # type: ignore[index, call-overload]
