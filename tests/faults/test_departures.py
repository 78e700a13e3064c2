"""F26 to F28: a disconnect ends all work for a client at once, in any phase of its request."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.processes.process import RunningServer
from tests.fakes import sse
from tests.fakes.llama import build_model, plan_for, seconds_until, serving
from tests.fakes.running_proxy import CHAT, RunningProxy, temper, temper_at
from tests.fakes.scripted_backend import Ending, ReceivedRequest, Script, refuses
from tests.fakes.sockets import connected
from tests.fakes.sse import calls, says
from tests.faults.proxies import before
from tests.faults.requests import asks, chats, user
from tests.timeouts import TIMEOUT_SECONDS

STREAMING = pytest.mark.fault("F26")
WAITING = pytest.mark.fault("F27")
WHOLE = pytest.mark.fault("F28")

UNUSED = says("No client reads this.")
SILENT = Script((Ending.NEVER,))
WITH_HEADERS = Script((sse.START, Ending.NEVER))
TALKING = Script((sse.START + sse.text("It is"), Ending.NEVER))
TRIES = 5  # on a busy machine, some tries are too slow
LARGE_WINDOW = 65_536  # tokens: generating them takes much longer than a test


@asynccontextmanager
async def asking(client: httpx.AsyncClient, body: JsonObject) -> AsyncGenerator[None, None]:
    """Let a client wait for a response; it disconnects at the end of the block."""
    task = asyncio.create_task(client.post(CHAT, json=body))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, httpx.HTTPError):
            await task


async def is_disconnected(upstream_request: ReceivedRequest) -> bool:
    """Wait until the backend has noticed that the proxy has disconnected."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return await upstream_request.left.wait()


@pytest.mark.parametrize(
    ("stream", "script"),
    [
        pytest.param(True, TALKING, marks=STREAMING, id="in the middle of a stream"),
        pytest.param(True, SILENT, marks=WAITING, id="before anything"),
        pytest.param(True, WITH_HEADERS, marks=WAITING, id="before the first token"),
        pytest.param(False, SILENT, marks=WHOLE, id="of a whole answer, before anything"),
        pytest.param(False, WITH_HEADERS, marks=WHOLE, id="of a whole answer, before a token"),
        pytest.param(False, TALKING, marks=WHOLE, id="in the middle of a whole answer"),
    ],
)
@pytest.mark.parametrize("body", [chats(), asks()], ids=["plain", "with tools"])
async def test_disconnect_cancels_the_generation(
    *, subject: str, script: Script, body: JsonObject, stream: bool
) -> None:
    async with before(subject, script, UNUSED) as proxy:
        async with asking(proxy.client, {**body, "stream": stream}):
            upstream_request = await proxy.backend.next_request()
        assert await is_disconnected(upstream_request)
    assert len(proxy.backend.upstream_requests) == 1


@STREAMING
async def test_disconnect_within_a_stream_cancels_the_generation() -> None:
    async with temper(TALKING, UNUSED) as proxy:
        body = chats(stream=True)
        async with proxy.client.stream("POST", CHAT, json=body) as response:
            async for piece in response.aiter_bytes():
                if b"It is" in piece:
                    break
        assert await is_disconnected(proxy.backend.upstream_requests[0])
    assert len(proxy.backend.upstream_requests) == 1


@pytest.mark.parametrize(
    ("first", "count"),
    [((says("I'll check that."),), 2), ((calls("gone", "{}"), calls("gone", "{}")), 3)],
    ids=["nudged", "constrained"],
)
@pytest.mark.parametrize("second", [SILENT, TALKING], ids=["silent", "talking"])
@WAITING
@WHOLE
async def test_a_disconnect_during_a_retry_cancels_the_generation(
    *, subject: str, first: tuple[bytes, ...], count: int, second: Script, stream: bool
) -> None:
    async with before(subject, *first, second, UNUSED) as proxy:
        async with asking(proxy.client, asks(stream=stream)):
            upstream_requests = [await proxy.backend.next_request() for _ in range(count)]
        assert await is_disconnected(upstream_requests[-1])
    assert len(proxy.backend.upstream_requests) == count


@WAITING
@WHOLE
async def test_a_disconnect_during_a_reply_that_would_be_retried_prevents_the_retry(
    *, subject: str, stream: bool
) -> None:
    gate = asyncio.Event()
    prose = Script((sse.START + sse.text("Prose."), gate, sse.end()))
    async with before(subject, prose, UNUSED) as proxy:
        async with asking(proxy.client, asks(stream=stream)):
            upstream_request = await proxy.backend.next_request()
        assert await is_disconnected(upstream_request)
        gate.set()
    assert len(proxy.backend.upstream_requests) == 1


@WAITING
async def test_disconnect_ends_the_wait_for_a_loading_model(*, stream: bool) -> None:
    loading = refuses(503, {"message": "Loading model", "type": "unavailable_error"})
    async with temper(loading, UNUSED, load_wait=60) as proxy:
        proxy.backend.health = 503
        async with asking(proxy.client, chats(stream=stream)):
            await proxy.backend.next_request()
            await proxy.backend.next_probe()
        await proxy.server.settle()
        proxy.backend.health = 200
    assert len(proxy.backend.upstream_requests) == 1


@WAITING
async def test_a_disconnect_in_the_queue_prevents_the_upstream_request(*, stream: bool) -> None:
    gate = asyncio.Event()
    good = calls("get_weather", '{"city": "Paris"}')
    async with temper(Script((gate, good)), good) as proxy:
        proxy.backend.properties = {"model_alias": "m", "total_slots": 1}
        first = asyncio.create_task(proxy.ask(asks(), stream=stream))
        await proxy.backend.next_request()
        async with asking(proxy.client, asks(messages=[user("two")], stream=stream)):
            await wait_until_waiting(proxy, 2)
        await wait_until_waiting(proxy, 1)
        third = asyncio.create_task(proxy.ask(asks(messages=[user("three")]), stream=stream))
        gate.set()
        await asyncio.gather(first, third)
    assert [
        b"two" in upstream_request.body for upstream_request in proxy.backend.upstream_requests
    ] == [False, False]


async def wait_until_waiting(proxy: RunningProxy, inside: int) -> None:
    """Wait until `inside` requests have been accepted and are waiting."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while len(proxy.server.state.tasks) != inside:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)
    for _ in range(50):
        await asyncio.sleep(0)


@WAITING
async def test_a_disconnect_within_the_request_body_prevents_the_upstream_request(
    subject: str,
) -> None:
    async with before(subject, *[says("Hi.")] * 2) as proxy:
        async with connected(proxy.address) as (_, writer):
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 99\r\n")
            writer.write(b'\r\n{"messages"')
            await writer.drain()
        answer = await proxy.ask(chats())
    assert answer.text == "Hi."
    assert len(proxy.backend.upstream_requests) == 1


@STREAMING
@WHOLE
async def test_disconnect_does_not_affect_other_clients(*, subject: str, stream: bool) -> None:
    gate = asyncio.Event()
    script = Script((sse.START, gate, sse.text("Hi.") + sse.end()))
    async with before(subject, script, TALKING) as proxy:
        other = asyncio.create_task(proxy.ask(chats(), stream=stream))
        await proxy.backend.next_request()
        async with asking(proxy.client, chats(stream=stream)):
            upstream_request = await proxy.backend.next_request()
        with suppress(TimeoutError):  # that the generation ends is checked by the tests above
            await is_disconnected(upstream_request)
        gate.set()
        assert (await other).text == "Hi."


@STREAMING
@WHOLE
async def test_twenty_simultaneous_disconnects_are_all_noticed(
    *, subject: str, stream: bool
) -> None:
    count = 20
    async with before(subject, *[TALKING] * count) as proxy:
        body = json.dump(chats(stream=stream))
        tasks = [asyncio.create_task(proxy.client.post(CHAT, content=body)) for _ in range(count)]
        upstream_requests = [await proxy.backend.next_request() for _ in range(count)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(
            [await is_disconnected(upstream_request) for upstream_request in upstream_requests]
        )


@STREAMING
@WHOLE
async def test_disconnect_is_logged(*, stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "proxy.requests")
    async with temper(TALKING) as proxy:
        async with asking(proxy.client, chats(stream=stream)):
            upstream_request = await proxy.backend.next_request()
        assert await is_disconnected(upstream_request)
        await proxy.server.settle()
    (logged,) = [
        record.__dict__["request"] for record in caplog.records if hasattr(record, "request")
    ]
    assert (logged.status, logged.stream, logged.outcome) == (499, stream, None)


@pytest.fixture(scope="module")
def talkative(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A real llama-server with one slot, and a model that never stops."""
    path = tmp_path_factory.mktemp("model") / "scripted.gguf"
    model = build_model(path, context_tokens=LARGE_WINDOW)
    with serving(plan_for(model, context_tokens=LARGE_WINDOW, slots=1)) as server:
        yield server


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(True, marks=STREAMING, id="streamed"),
        pytest.param(False, marks=WHOLE, id="whole"),
    ],
)
async def test_a_disconnect_frees_the_slot_of_a_real_llama_server_within_a_second(
    *, stream: bool, talkative: RunningServer
) -> None:
    forever = chats(messages=[user("[[forever]]")], stream=stream)
    took: list[float] = []
    async with temper_at(talkative.base_url, api_key=talkative.api_key) as proxy:
        while len(took) < TRIES and min(took, default=2) >= 1:
            async with asking(proxy.client, forever):
                await seconds_until(talkative, is_busy=True)
            took.append(await seconds_until(talkative, is_busy=False))
    assert min(took) < 1


@WAITING
async def test_a_disconnect_removes_a_request_from_the_queue_of_a_real_llama_server(
    *, stream: bool, talkative: RunningServer
) -> None:
    forever = chats(messages=[user("[[forever]]")], stream=True)
    async with temper_at(talkative.base_url, api_key=talkative.api_key) as proxy:
        async with asking(proxy.client, forever):
            await seconds_until(talkative, is_busy=True)
            async with asking(proxy.client, {**forever, "stream": stream}):
                await wait_until_waiting(proxy, 2)
            await wait_until_waiting(proxy, 1)
        await seconds_until(talkative, is_busy=False)
        await proxy.server.settle()
        await seconds_until(talkative, is_busy=False)
