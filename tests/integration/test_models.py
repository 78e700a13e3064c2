"""Several models in one Temper, of which memory holds only one: routing, queueing, events."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import httpx

from proxy.api.app import ServerOptions
from proxy.api.streaming import StreamTimeouts
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonObject
from proxy.errors import LaunchFailed
from proxy.processes.fleet import Fleet
from proxy.processes.swapping import Budget, LoadableModel, SwapPlanner
from proxy.serving.services import Services
from tests.fakes import sse
from tests.fakes.answers import Answer, read_answer
from tests.fakes.running_proxy import CHAT, RunningProxy, request, serving_all
from tests.fakes.scripted_backend import Script, ScriptedBackend
from tests.fakes.servers import Server
from tests.fakes.sockets import listening

GOOD = sse.calls("get_weather", '{"city": "Paris"}')


@dataclass(frozen=True)
class TwoModels:
    """Temper in front of the models a and b, of which only one is loaded at a time."""

    proxy: RunningProxy
    backends: dict[str, ScriptedBackend]
    servers: dict[str, Server]
    fleet: Fleet

    async def ask(self, model: str, *, stream: bool = False) -> Answer:
        return await self.proxy.ask(request(model=model), stream=stream)


@asynccontextmanager
async def two_models(
    *scripts: Script | bytes, timeouts: StreamTimeouts | None = None
) -> AsyncGenerator[TwoModels, None]:
    """Run both models, which play the same scripts."""
    serving = ServerOptions(timeouts=timeouts or StreamTimeouts())
    servers = {name: Server() for name in "ab"}
    fleet = Fleet(servers, SwapPlanner([LoadableModel("a"), LoadableModel("b")], Budget(models=1)))
    backends = {name: ScriptedBackend(*scripts) for name in "ab"}
    services = []
    async with AsyncExitStack() as stack:
        for name, backend in backends.items():
            upstream = await stack.enter_async_context(listening(backend))
            engine = LlamaServer(BackendClient(upstream.url))
            stack.push_async_callback(engine.close)
            services.append(serving.service(engine, name=name, aliases=(name * 3,), fleet=fleet))
        proxy = await stack.enter_async_context(
            serving_all(Services(services), serving, backends["a"])
        )
        yield TwoModels(proxy, backends, servers, fleet)
        await fleet.close()


async def test_an_alias_selects_its_model_and_is_replaced_by_the_name_of_the_model(
    *, stream: bool
) -> None:
    async with two_models(GOOD) as two:
        two.servers["b"].finish()
        answer = await two.ask("bbb", stream=stream)
        assert answer.report["outcome"] == "clean"
        assert two.backends["a"].upstream_requests == []
        assert two.backends["b"].upstream_requests[0].fields["model"] == "b"


async def test_an_unknown_model_is_refused_with_the_list_of_models(*, stream: bool) -> None:
    async with two_models() as two:
        answer = await two.ask("gpt-4", stream=stream)
        assert answer.status == 404
        assert answer.error is not None
        assert (answer.error["code"], answer.error["param"]) == ("model_not_found", "model")
        assert answer.error["message"] == "The model 'gpt-4' does not exist. Available: a, b."
        assert two.servers["a"].starts + two.servers["b"].starts == 0


async def test_busy_model_is_not_unloaded_while_another_model_is_requested(*, stream: bool) -> None:
    gate = asyncio.Event()
    async with two_models(Script((gate, GOOD)), GOOD) as two:
        for server in two.servers.values():
            server.finish()
        first = asyncio.create_task(two.ask("a", stream=stream))
        await two.backends["a"].next_request()
        second = asyncio.create_task(two.ask("b", stream=stream))
        third = asyncio.create_task(two.ask("a", stream=stream))
        await two.proxy.client.get("/v1/models")
        assert (two.servers["a"].stops, two.servers["b"].starts) == (0, 0)
        gate.set()
        answers = await asyncio.gather(first, second, third)
        assert [answer.report["outcome"] for answer in answers] == ["clean"] * 3
        assert [len(backend.upstream_requests) for backend in two.backends.values()] == [2, 1]


@asynccontextmanager
async def begin(two: TwoModels) -> AsyncGenerator[Callable[[], Awaitable[Answer]], None]:
    """Begin a stream of model a; yield a function that reads the whole stream as an answer."""
    async with two.proxy.client.stream(
        "POST", CHAT, json=request(model="a", stream=True)
    ) as response:
        pieces = aiter(response.aiter_raw())
        first = await anext(pieces)

        async def read_to_the_end() -> Answer:
            whole = first + b"".join([piece async for piece in pieces])
            return read_answer(
                httpx.Response(response.status_code, headers=response.headers, content=whole)
            )

        yield read_to_the_end


async def test_a_stream_contains_comments_while_it_waits_for_its_model() -> None:
    async with (
        two_models(GOOD, timeouts=StreamTimeouts(keep_alive=0.01)) as two,
        AsyncExitStack() as stack,
    ):
        with two.fleet.lease("b"):
            read_to_the_end = await stack.enter_async_context(begin(two))
        two.servers["a"].finish()
        answer = await read_to_the_end()
        assert answer.news[0].startswith(
            "waiting for requests to b to end, because a needs the memory"
        )
        assert answer.called == [("get_weather", {"city": "Paris"})]
        assert answer.report["outcome"] == "clean"


async def test_a_request_that_waits_too_long_for_its_model_gets_503_with_retry_after(
    *, stream: bool
) -> None:
    async with two_models(timeouts=StreamTimeouts(load_wait=0.01)) as two:
        answer = await two.ask("a", stream=stream)
        assert (answer.status, answer.headers["retry-after"]) == (503, "5")
        assert answer.error is not None
        assert answer.error["code"] == "model_loading"
        assert two.fleet.condition("a") == "loading"


async def test_failed_load_after_the_start_of_a_stream_is_an_error_event() -> None:
    async with (
        two_models(timeouts=StreamTimeouts(keep_alive=0.01)) as two,
        begin(two) as read_to_the_end,
    ):
        two.servers["a"].finish(LaunchFailed("llama-server", "is out of memory"))
        answer = await read_to_the_end()
    assert answer.status == 200
    assert answer.error is not None
    assert answer.error["code"] == "backend_unavailable"


async def test_a_model_that_fails_to_load_does_not_affect_the_other_model(*, stream: bool) -> None:
    async with two_models(GOOD) as two:
        two.servers["a"].finish(LaunchFailed("llama-server", "is out of memory"))
        two.servers["b"].finish()
        answer = await two.ask("a", stream=stream)
        assert answer.status == 503
        assert answer.error is not None
        assert "is out of memory" in str(answer.error["message"])
        assert (await two.ask("b", stream=stream)).report["outcome"] == "clean"


async def test_models_are_listed_without_loading_any() -> None:
    async with two_models() as two:
        listed = (await two.proxy.client.get("/v1/models")).json()
        assert [(model["id"], model["status"]["value"]) for model in listed["data"]] == [
            ("a", "unloaded"),
            ("b", "unloaded"),
        ]
        shown: JsonObject = (await two.proxy.client.get("/v1/models/aaa")).json()
        assert (shown["id"], shown["aliases"]) == ("a", ["aaa"])
        assert (await two.proxy.client.get("/readyz")).status_code == 200
        assert two.servers["a"].starts + two.servers["b"].starts == 0
