"""F59: whatever ends a request, at whichever of its awaits, nothing of it is left behind."""

import asyncio
import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import pytest

from proxy.api.app import ServerOptions
from proxy.api.fronts import CHAT
from proxy.api.limits import BodyLimits
from proxy.api.request_reader import RequestReader
from proxy.api.routes.chat import Chat
from proxy.api.streaming import StreamTimeouts
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient, Timeouts
from proxy.conversation import json
from proxy.inference.budget import FLOOR, RetryBudget
from proxy.inference.preparation import Policy
from proxy.serving.request_preparation import RequestPreparation
from tests.fakes.asgi import HandMadeClient
from tests.fakes.front import request
from tests.fakes.interruption import Interruption, interruptible
from tests.fakes.scripted_backend import ScriptedBackend
from tests.fakes.sockets import listening
from tests.fakes.spoken import calls, says

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.fault("F59"),
    # what is raised into a connection attempt of anyio finds parts of it not begun
    pytest.mark.filterwarnings("ignore:Exception ignored in. <coroutine object connect_tcp"),
]

FEWEST_STEPS = 10
MOST_STEPS = 2000
ATTEMPTS = (says("I'll check ", "that now."), calls("get_weather", '{"city": ', '"Paris"}'))


class Boom(Exception):
    """What is raised out of nowhere."""


def cancelled(_: HandMadeClient) -> Callable[[asyncio.Task[None]], None]:
    def strike(root: asyncio.Task[None]) -> None:
        root.cancel()

    return strike


def raised(_: HandMadeClient) -> Callable[[asyncio.Task[None]], None]:
    def strike(_: asyncio.Task[None]) -> None:
        raise Boom

    return strike


def left(client: HandMadeClient) -> Callable[[asyncio.Task[None]], None]:
    return lambda _: client.leaves.set()


End: TypeAlias = Callable[[HandMadeClient], Callable[[asyncio.Task[None]], None]]


@pytest.mark.parametrize("end", [cancelled, raised, left])
async def test_nothing_is_left_of_a_request_that_ends_at_any_await(
    *, end: End, stream: bool
) -> None:
    backend = ScriptedBackend(*ATTEMPTS * MOST_STEPS)
    async with listening(backend) as behind, interruptible():
        engine = LlamaServer(BackendClient(behind.url, timeouts=Timeouts(lookup=0.5)))
        try:
            steps = 0
            is_whole = False
            while not is_whole:
                steps += 1
                is_whole = await _answered(engine, backend, Interrupted(steps, end, stream=stream))
                await behind.settle()
            assert FEWEST_STEPS < steps < MOST_STEPS
        finally:
            await engine.close()
            gc.collect()  # what anyio leaves behind is told of here, and in no other test


@dataclass(frozen=True)
class Interrupted:
    """How a request is interrupted."""

    at: int
    end: End
    stream: bool


async def _answered(engine: LlamaServer, backend: ScriptedBackend, how: Interrupted) -> bool:
    """Ask, and look for what is left; tells whether the request had ended before its step came."""
    services, budget = ServerOptions(parallel=1).alone(engine), RetryBudget()
    preparation = RequestPreparation(services, Policy())
    chat = Chat(CHAT, RequestReader(BodyLimits()), preparation, StreamTimeouts(), budget)
    client = HandMadeClient(json.dump(request(stream=how.stream)), "POST")
    interruption = Interruption(how.at, how.end(client))
    await interruption.run(client.call(chat))
    line = services.find("m").admission.line
    assert (line.served, line.waiting) == (0, 0), how
    assert [budget.take() for _ in range(FLOOR + 1)] == [True] * FLOOR + [False], how
    if len(backend.questions) % 2:  # the next request begins with the first script
        backend.questions.append(backend.questions[-1])
    if not interruption.has_struck:
        assert b"Paris" in client.answer
    return not interruption.has_struck
