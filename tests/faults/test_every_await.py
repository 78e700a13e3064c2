"""F59: a request that is interrupted at any of its awaits leaks nothing."""

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pytest

from proxy.api.app import ServerOptions
from proxy.api.dialects import CHAT
from proxy.api.request_reader import BodyLimits, RequestReader
from proxy.api.routes.chat import Chat
from proxy.api.streaming import StreamTimeouts
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient, Timeouts
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.inference.plan import Policy
from proxy.inference.retry_budget import FLOOR, RetryBudget
from proxy.mcp.execution import ToolOffer
from proxy.mcp.hosting import ToolHosting
from proxy.mcp.specification import ToolCallResult
from proxy.serving.request_preparation import RequestPreparation
from tests.fakes.asgi import HandMadeClient
from tests.fakes.interruption import (
    IGNORES_HALF_CONNECTIONS,
    Interruption,
    Strike,
    cancelled,
    interruptible,
    raised,
)
from tests.fakes.running_proxy import request
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import listening
from tests.fakes.sse import calls, says
from tests.fakes.tool_servers import FakeSource, served

pytestmark = [pytest.mark.fault("F59"), IGNORES_HALF_CONNECTIONS]

FEWEST_STEPS = 5
MOST_STEPS = 2000
ATTEMPTS = (says("I'll check ", "that now."), calls("get_weather", '{"city": ', '"Paris"}'))
ROUNDS = (calls("find", '{"q": 1}'), calls("open", '{"q": 2}'), says("It is fine, ", "and noon."))
OFFERED = (served("find", "search"), served("open", "search"))
FOUND = ToolCallResult("It is 21 degrees.")


def left(client: HandMadeClient) -> Strike:
    return lambda _: client.leaves.set()


End: TypeAlias = Callable[[HandMadeClient], Strike]


@pytest.mark.parametrize("end", [cancelled, raised, left])
async def test_request_interrupted_at_any_await_leaks_nothing(*, end: End, stream: bool) -> None:
    body = request(stream=stream)
    await at_every_await(ATTEMPTS, lambda at: Interrupted(at, end, body, b"Paris"))


@pytest.mark.deep
@pytest.mark.parametrize("end", [cancelled, raised, left])
async def test_a_request_with_two_tool_rounds_leaks_nothing_wherever_it_is_interrupted(
    *, end: End, stream: bool
) -> None:
    body = request(stream=stream, tools=[{"type": "mcp", "server_label": "search"}])
    sources: list[FakeSource] = []

    def make_interrupted(at: int) -> Interrupted:
        sources.append(FakeSource({"search": OFFERED}, dict.fromkeys(("find", "open"), FOUND)))
        return Interrupted(at, end, body, b"noon.", sources[-1])

    backend = await at_every_await(ROUNDS, make_interrupted)
    assert [source.running for source in sources] == [0] * len(sources)
    assert [name for name, *_ in sources[-1].calls] == ["find", "open"]
    for upstream_request in backend.upstream_requests:
        check([json.parse(message) for message in upstream_request.messages])


@dataclass(frozen=True)
class Interrupted:
    """The request `body`, which `end` interrupts at the step `at`.

    Without an interruption, its answer is `answer`. `source` provides the operator's tools.
    """

    at: int
    end: End
    body: JsonObject
    answer: bytes
    source: FakeSource | None = None


async def at_every_await(
    scripts: Sequence[bytes], make: Callable[[int], Interrupted]
) -> ScriptedBackend:
    """Send the request repeatedly, interrupted one step later each time, until it is answered."""
    backend = ScriptedBackend(*[*scripts] * MOST_STEPS)
    async with listening(backend) as upstream, interruptible():
        engine = LlamaServer(BackendClient(upstream.url, timeouts=Timeouts(lookup=0.5)))
        try:
            steps, is_whole = 0, False
            while not is_whole:
                steps += 1
                is_whole = await _answered(engine, make(steps))
                await upstream.settle()
                while len(backend.upstream_requests) % len(scripts):
                    backend.upstream_requests.append(backend.upstream_requests[-1])
            assert FEWEST_STEPS < steps < MOST_STEPS
        finally:
            await engine.close()
            gc.collect()  # so that anyio reports leaked resources here and not in another test
    return backend


async def _answered(engine: LlamaServer, request_: Interrupted) -> bool:
    """Send the request and check for leaks; return whether it finished without an interruption."""
    services, budget = ServerOptions(parallel=1).services_for(engine), RetryBudget()
    preparation = RequestPreparation(services, Policy())
    tools = ToolHosting(ToolOffer(request_.source)) if request_.source else None
    reader, pace = RequestReader(BodyLimits()), StreamTimeouts()
    chat = Chat(CHAT, reader, preparation, pace, budget, tools=tools)
    client = HandMadeClient(json.dump(request_.body), "POST")
    interruption = Interruption(request_.at, request_.end(client))
    await interruption.run(client.ask(chat))
    queue = services.find("m").admission.queue
    assert (queue.served, queue.waiting) == (0, 0), request_
    assert [budget.take() for _ in range(FLOOR + 1)] == [True] * FLOOR + [False], request_
    if not interruption.has_struck:
        assert request_.answer in client.answer
    return not interruption.has_struck


def check(messages: Sequence[JsonValue]) -> None:
    """Check that each call in a history is followed by its result."""
    waiting: list[JsonValue] = []
    for message in messages:
        assert isinstance(message, dict)
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
        else:
            assert waiting == []
            called = message.get("tool_calls") or []
            assert isinstance(called, list)
            waiting = [call["id"] for call in called]  # type: ignore[index, call-overload]
    assert waiting == []
