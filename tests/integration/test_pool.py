"""Several servers of one model behind one Temper: routing, and what clients see of it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from proxy.backends.llama_server import LlamaServer
from proxy.backends.pool import Pool, PoolTimeouts
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes import sse
from tests.fakes.running_proxy import RunningProxy, in_front_of, request
from tests.fakes.scripted_backend import Ending, Script, ScriptedBackend, refuses
from tests.fakes.sockets import listening
from tests.fakes.sse import says

PLAIN = request(tools=None)
DIES = Script((sse.START, sse.text("It is ", "warm"), Ending.BREAKS))
ANSWERS_THEN_DIES: Sequence[Script | bytes] = (says("Hi."), DIES)
BUSY = refuses(503, {"message": "busy", "type": "server_error"})


@dataclass(frozen=True)
class FakeServers:
    """Temper in front of a pool of servers."""

    proxy: RunningProxy
    servers: Sequence[ScriptedBackend]
    urls: Sequence[str]

    def request_counts(self) -> list[int]:
        return [len(server.upstream_requests) for server in self.servers]


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[BackendClient]:
    connection = BackendClient(url)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def fake_servers(
    *scripts: Sequence[Script | bytes], slots: int = 4
) -> AsyncGenerator[FakeServers]:
    """Run servers of one model that play their scripts, and Temper in front of them."""
    servers = [ScriptedBackend(*script) for script in scripts]
    for server in servers:
        server.properties = {
            "model_alias": "m",
            "total_slots": slots,
            "default_generation_settings": {"n_ctx": 4096},
        }
    async with AsyncExitStack() as stack:
        urls = [(await stack.enter_async_context(listening(server))).url for server in servers]
        connections = [await stack.enter_async_context(connected(url)) for url in urls]
        pool = Pool([LlamaServer(connection) for connection in connections], PoolTimeouts())
        proxy = await stack.enter_async_context(in_front_of(pool, None, ScriptedBackend()))
        yield FakeServers(proxy, servers, urls)


def turn(number: int) -> JsonObject:
    """Return the request of the n-th turn of one conversation."""
    spoken_before: list[JsonValue] = [
        {"role": "assistant", "content": "It is warm."},
        {"role": "user", "content": "And then?"},
    ] * number
    return request(tools=None, messages=[{"role": "user", "content": "Paris?"}, *spoken_before])


async def test_conversation_stays_with_one_server_named_in_a_header(*, stream: bool) -> None:
    async with fake_servers([says("Hi.")] * 4, [says("Hi.")] * 4) as scene:
        answers = [await scene.proxy.ask(turn(number), stream=stream) for number in range(4)]
        assert sorted(scene.request_counts()) == [0, 4]
        home = scene.urls[scene.request_counts().index(4)]
        (server,) = (server for server in scene.servers if server.upstream_requests)
    assert {answer.headers["x-temper-backend"] for answer in answers} == {home}
    (prefix,) = {answer.headers["x-temper-prefix"] for answer in answers}
    assert [
        upstream_request.headers["x-temper-prefix"] for upstream_request in server.upstream_requests
    ] == [prefix] * 4


async def test_session_header_selects_the_server(*, stream: bool) -> None:
    async with fake_servers([says("Hi.")] * 6, [says("Hi.")] * 6) as scene:
        for number in range(6):
            body = request(tools=None, messages=[{"role": "user", "content": f"Hi {number}"}])
            await scene.proxy.ask(body, stream=stream, headers={"x-session-id": "one"})
        assert sorted(scene.request_counts()) == [0, 6]


async def test_conversations_spread_over_all_servers() -> None:
    async with fake_servers([says("Hi.")] * 80, [says("Hi.")] * 80) as scene:
        for number in range(80):
            body = request(tools=None, messages=[{"role": "user", "content": f"Hi {number}"}])
            await scene.proxy.ask(body)
        # if servers were chosen by a fair coin, this would fail once in 50 million runs
        assert min(scene.request_counts()) >= 16


@pytest.mark.parametrize("failure", [BUSY, b"<html>Oh</html>"])
async def test_a_failure_before_the_first_byte_is_retried_on_the_next_server(
    *, failure: Script | bytes, stream: bool
) -> None:
    async with fake_servers([failure, says("Hi.")], [failure, says("Hi.")]) as scene:
        first = await scene.proxy.ask(PLAIN, stream=stream)
        assert first.status == 502 if isinstance(failure, bytes) else 503
        answer = await scene.proxy.ask(PLAIN, stream=stream)
        assert (answer.status, answer.text) == (200, "Hi.")

    async with fake_servers([failure], [says("Hi.")] * 2) as scene:
        answer = await scene.proxy.ask(PLAIN, stream=stream)
        assert (answer.status, answer.text) == (200, "Hi.")
        assert answer.headers["x-temper-backend"] == scene.urls[1]


async def test_retry_goes_to_the_server_with_the_cached_prompt(*, stream: bool) -> None:
    broken = sse.calls("get_weather", '{"town": "Paris"}')
    good = sse.calls("get_weather", '{"city": "Paris"}')
    async with fake_servers([broken, good], [broken, good]) as scene:
        answer = await scene.proxy.ask(request(), stream=stream)
        assert answer.report["attempts"] == "2"
        assert sorted(scene.request_counts()) == [0, 2]


async def test_server_without_a_free_slot_is_skipped() -> None:
    gate = asyncio.Event()
    waiting = Script((gate, says("Hi.")))
    async with fake_servers([waiting], [waiting], slots=1) as scene:
        first, second = (asyncio.create_task(scene.proxy.ask(PLAIN)) for _ in range(2))
        for server in scene.servers:
            await server.next_request()
        gate.set()
        used = {(await task).headers["x-temper-backend"] for task in (first, second)}
    assert used == set(scene.urls)


@pytest.mark.parametrize("body", [PLAIN, request()], ids=["plain", "tools"])
async def test_a_reply_that_is_not_streamed_is_generated_again_if_its_server_dies(
    body: JsonObject,
) -> None:
    async with fake_servers(*[ANSWERS_THEN_DIES] * 2) as scene:
        first = await scene.proxy.ask(body)
        answer = await scene.proxy.ask(body)
        assert sorted(scene.request_counts()) == [1, 2]
    assert (answer.status, answer.text) == (200, "Hi.")
    assert answer.headers["x-temper-backend"] != first.headers["x-temper-backend"]
    report = {"attempts": "2", "outcome": "retried", "repairs": "resent=1"}
    assert report.items() <= answer.report.items()


async def test_a_request_that_kills_two_servers_is_not_sent_to_the_third() -> None:
    async with fake_servers(*[[DIES]] * 3) as scene:
        answer = await scene.proxy.ask(PLAIN)
        assert answer.status == 502
        assert sorted(scene.request_counts()) == [0, 1, 1]


async def test_a_reply_that_failed_on_two_servers_is_not_generated_on_the_third() -> None:
    async with fake_servers(*[ANSWERS_THEN_DIES] * 3) as scene:
        assert (await scene.proxy.ask(PLAIN)).status == 200
        home = scene.servers[scene.request_counts().index(1)]
        home.play(BUSY)
        for server in scene.servers:
            if server is not home:
                server.play(DIES)
        assert (await scene.proxy.ask(PLAIN)).status == 502
        assert sorted(scene.request_counts()) == [0, 1, 1]


async def test_stream_that_has_begun_is_not_generated_again() -> None:
    async with fake_servers(*[ANSWERS_THEN_DIES] * 2) as scene:
        await scene.proxy.ask(PLAIN)
        answer = await scene.proxy.ask(PLAIN, stream=True)
        assert answer.error is not None
        assert sorted(scene.request_counts()) == [0, 2]


async def test_retry_budget_does_not_apply_to_answers_that_are_generated_again() -> None:
    dies_later, answers_later = asyncio.Event(), asyncio.Event()
    dying = Script((sse.START, sse.text("It is"), dies_later, Ending.BREAKS))
    slow = Script((answers_later, says("Hi.")))
    async with fake_servers(*[[says("Hi.")]] * 2) as scene:
        await scene.proxy.ask(PLAIN)
        counts = scene.request_counts()
        home, other = (scene.servers[counts.index(number)] for number in (1, 0))
        home.play(*[dying] * 4)
        other.play(*[slow] * 4)
        waiting = [asyncio.create_task(scene.proxy.ask(PLAIN)) for _ in range(4)]
        for _ in range(5):
            await home.next_request()
        dies_later.set()
        for _ in range(4):  # four requests, although the retry budget allows three at once
            await other.next_request()
        answers_later.set()
        answers = await asyncio.gather(*waiting)
        assert [answer.status for answer in answers] == [200] * 4
