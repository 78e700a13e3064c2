import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from proxy.api.fronts import CHAT
from proxy.api.loading_stream import LoadingStream
from proxy.api.streaming import AnswerStream, StreamTimeouts
from proxy.conversation.requests import Request
from proxy.dialects.front import Decoded
from proxy.dialects.openai_chat.front import ChatAnswering
from proxy.errors import BackendUnavailable, LaunchFailed, TemperError
from proxy.processes.fleet import Fleet
from proxy.processes.swapping import Budget, LoadableModel, SwapPlanner
from tests.fakes.asgi import HandMadeClient
from tests.fakes.servers import Server
from tests.patience import PATIENCE_SECONDS

STREAMED = Request("big", (), {}, stream=True)
WHOLE = Request("big", (), {})
START: Message = {"type": "http.response.start", "status": 200, "headers": []}
BODY: Message = {"type": "http.response.body", "body": b"rest", "more_body": False}


@dataclass
class World:
    """A client that asks for a model, and the model's server."""

    timeouts: StreamTimeouts
    client: HandMadeClient = field(default_factory=HandMadeClient)
    server: Server = field(default_factory=Server)
    sent: "asyncio.Queue[Message]" = field(default_factory=asyncio.Queue)

    def __post_init__(self) -> None:
        swapping = SwapPlanner([LoadableModel("a"), LoadableModel("b")], Budget(models=1))
        self.fleet = Fleet({"a": self.server, "b": Server()}, swapping)
        self.connection = self.client.connection.behind(send=self.send)
        self.stream = AnswerStream(self.connection, self.timeouts)
        self.loading = LoadingStream(self.connection, self.stream, self.timeouts)
        self.client.has_sent = True  # the body was read before

    async def wait(self, request: Request, *, model: str = "a") -> None:
        with self.fleet.lease(model) as hold:
            answering = ChatAnswering(request, CHAT.stamp)
            await self.loading.wait_for(hold, Decoded(request, answering))

    async def send(self, message: Message) -> None:
        await self.client.send(message)
        self.sent.put_nowait(message)

    async def sends(self, messages: int) -> None:
        """Wait until so many messages have been sent."""
        for _ in range(messages):
            await self.sent.get()


def run(
    scene: Callable[[World], Coroutine[None, None, None]], timeouts: StreamTimeouts | None = None
) -> World:
    async def with_patience() -> World:
        world = World(timeouts or StreamTimeouts())
        async with asyncio.timeout(PATIENCE_SECONDS):
            await scene(world)
            await world.fleet.close()
        return world

    return asyncio.run(with_patience())


def test_a_short_wait_sends_nothing() -> None:
    async def scene(world: World) -> None:
        world.server.finish()
        await world.wait(STREAMED)
        assert (world.client.got, world.stream.encoder) == ([], None)
        await world.connection.send(START)

    assert run(scene).client.got == [START]


def test_a_long_wait_is_explained_in_a_stream_that_goes_on_afterwards() -> None:
    async def scene(world: World) -> None:
        with world.fleet.lease("b"):
            waiting = asyncio.create_task(world.wait(STREAMED))
            await world.sends(3)
        world.server.finish()
        await waiting
        await world.connection.send(BODY)

    client = run(scene, StreamTimeouts(keep_alive=0.001)).client
    assert [message["type"] for message in client.got].count("http.response.start") == 1
    assert client.answer_headers["content-type"].startswith("text/event-stream")
    first, second, *_ = (message["body"] for message in client.got[1:])
    said = b"waiting for requests to b to end, as a needs the room, 1 request ahead"
    assert first.startswith(b": " + said + b"\n\ndata: ")
    assert b'"role":"assistant"' in first
    assert b'"delta":{}' in second
    assert client.answer.endswith(b"rest")


def test_a_stream_begins_long_before_its_first_sign_of_life() -> None:
    async def scene(world: World) -> None:
        waiting = asyncio.create_task(world.wait(STREAMED))
        await world.sends(2)
        world.server.finish()
        await waiting

    client = run(scene, StreamTimeouts(keep_alive=600.0)).client
    assert client.answer.startswith(b": loading a\n\ndata: ")


def test_a_client_that_does_not_stream_just_waits() -> None:
    async def scene(world: World) -> None:
        waiting = asyncio.create_task(world.wait(WHOLE))
        for _ in range(50):
            await asyncio.sleep(0)
        world.server.finish()
        await waiting
        assert world.client.got == []

    run(scene, StreamTimeouts(keep_alive=0.0001))


@pytest.mark.parametrize("request_", [STREAMED, WHOLE])
def test_no_one_waits_for_longer_than_allowed(request_: Request) -> None:
    async def scene(world: World) -> None:
        with pytest.raises(BackendUnavailable) as raised:
            await world.wait(request_)
        assert raised.value.loading
        assert world.client.got == []

    run(scene, StreamTimeouts(load_wait=0.001))


def test_a_model_that_cannot_be_loaded_ends_the_wait() -> None:
    async def scene(world: World) -> None:
        world.server.finish(LaunchFailed("llama-server", "is out of memory"))
        with pytest.raises(LaunchFailed):
            await world.wait(STREAMED)

    run(scene)


def test_a_problem_behind_the_beginning_is_the_last_event() -> None:
    async def scene(world: World) -> None:
        waiting = asyncio.create_task(world.wait(STREAMED))
        await world.sends(2)
        world.server.finish()
        await waiting
        assert await world.stream.fail(BackendUnavailable("b", "has gone"))

    client = run(scene, StreamTimeouts(keep_alive=0.001)).client
    assert client.status == 200
    assert b'data: {"error":{"message":"The backend b has gone.' in client.answer
    assert not client.got[-1].get("more_body", False)


def test_what_a_bug_broke_off_ends_with_one_error_event() -> None:
    async def scene(world: World) -> None:
        assert not await world.stream.fail(TemperError())
        assert world.client.got == []
        waiting = asyncio.create_task(world.wait(STREAMED))
        await world.sends(2)
        world.server.finish()
        await waiting
        assert await world.stream.fail(TemperError())
        assert not await world.stream.fail(TemperError())

    client = run(scene, StreamTimeouts(keep_alive=0.001)).client
    assert client.answer.count(b'data: {"error":') == 1
    assert client.answer.endswith(b"\n\n")
    assert not client.got[-1].get("more_body", False)


def test_a_stream_that_has_an_end_gets_no_other() -> None:
    async def scene(world: World) -> None:
        waiting = asyncio.create_task(world.wait(STREAMED))
        await world.sends(2)
        world.server.finish()
        await waiting
        await world.connection.send(BODY)
        assert not await world.stream.fail(TemperError())

    assert run(scene, StreamTimeouts(keep_alive=0.001)).client.answer.endswith(b"rest")


def test_a_client_that_leaves_ends_the_wait() -> None:
    async def scene(world: World) -> None:
        waiting = asyncio.create_task(world.wait(STREAMED))
        await world.server.wanted.wait()
        world.client.leaves.set()
        with pytest.raises(ClientDisconnect):
            await waiting

    run(scene)
