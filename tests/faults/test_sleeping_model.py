"""F25: a sleeping server that wakes slowly; `tests/acceptance` has a real one, which is fast."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from starlette.types import Receive, Scope, Send

from proxy.api.app import ServerOptions
from proxy.api.streaming import StreamTimeouts
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient, Timeouts
from tests.fakes.running_proxy import RunningProxy, in_front_of
from tests.fakes.scripted_backend import Script, ScriptedBackend
from tests.fakes.sockets import listening
from tests.fakes.sse import says
from tests.faults.proxies import PLAIN

WINDOW = 4096


class Sleeper(ScriptedBackend):
    """A backend that sleeps until a request wakes it; until then, it only reports its health.

    The real llama-server (build 11669) also reports its properties while it sleeps.
    """

    def __init__(self) -> None:
        self.is_awake = asyncio.Event()
        super().__init__(Script((self.is_awake, says("Good morning."))))
        self.models = {"object": "list", "data": [{"id": "m"}]}
        self.properties = {"default_generation_settings": {"n_ctx": WINDOW}, "total_slots": 2}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.upstream_requests and scope["path"] != "/health":
            await self.is_awake.wait()
        await super().__call__(scope, receive, send)


@dataclass(frozen=True)
class Morning:
    """A sleeping server, Temper in front of it, and a request that wakes it."""

    sleeper: Sleeper
    proxy: RunningProxy


@asynccontextmanager
async def morning() -> AsyncGenerator[Morning, None]:
    sleeper = Sleeper()
    frequent = ServerOptions(timeouts=StreamTimeouts(keep_alive=0.01))
    async with listening(sleeper) as upstream:
        engine = LlamaServer(BackendClient(upstream.url, timeouts=Timeouts(lookup=0.5)))
        async with in_front_of(engine, frequent, sleeper) as proxy:
            yield Morning(sleeper, proxy)


@pytest.mark.fault("F25")
async def test_a_stream_receives_keep_alives_while_its_model_wakes() -> None:
    async with morning() as now:
        body = {**PLAIN, "stream": True}
        client, seen = now.proxy.client, b""
        async with client.stream("POST", "/v1/chat/completions", json=body) as response:
            async for piece in response.aiter_bytes():
                seen += piece
                if seen.count(b'"delta":{}') >= 2:
                    now.sleeper.is_awake.set()
    assert seen.index(b'"delta":{}') < seen.index(b"Good morning.")
    assert seen.endswith(b"data: [DONE]\n\n")


@pytest.mark.fault("F25")
async def test_a_response_that_is_not_streamed_waits_while_its_model_wakes() -> None:
    async with morning() as now:
        asking = asyncio.create_task(now.proxy.ask(PLAIN))
        await now.sleeper.next_request()
        now.sleeper.is_awake.set()
        answer = await asking
    assert (answer.status, answer.text) == (200, "Good morning.")


@pytest.mark.fault("F25")
async def test_the_known_properties_of_a_model_are_returned_while_it_wakes() -> None:
    async with morning() as now:
        client = now.proxy.client
        before = (await client.get("/v1/models")).json()
        asking = asyncio.create_task(now.proxy.ask(PLAIN))
        await now.sleeper.next_request()
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/readyz")).json()["status"] == "ready"
        assert (await client.get("/v1/models")).json() == before
        assert (await client.get("/props?model=m")).json()["total_slots"] == 2
        now.sleeper.is_awake.set()
        assert (await asking).status == 200
    assert before["data"][0]["context_window"] == WINDOW
