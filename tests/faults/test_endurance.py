"""F57: long streams and masses of requests: the memory of a separate process.

This is a short version of `benchmarks/load`, which sends a hundred thousand requests.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import psutil
import pytest

from proxy.conversation import json
from tests.fakes import sse
from tests.fakes.running_proxy import CHAT
from tests.fakes.scripted_backend import Ending, Script, ScriptedBackend
from tests.fakes.sockets import listening
from tests.fakes.sse import calls
from tests.faults.proxies import TEMPER, ProxyUnderTest, in_a_process
from tests.faults.requests import asks, chats

pytestmark = pytest.mark.fault("F57")

MEGABYTE = 2**20
STREAMS = 250
SCALE_TO_1000_STREAMS = 1_000 / STREAMS
MOST_MEMORY = 300 * MEGABYTE
REQUESTS = 150
ROUNDS = 5
MOST_GROWTH = 4 * MEGABYTE
AT_ONCE = 25


def memory(proxy: ProxyUnderTest) -> int:
    """Return the resident memory of a process, in bytes."""
    return int(psutil.Process(proxy.pid).memory_info().rss)


@asynccontextmanager
async def stream(proxy: ProxyUnderTest) -> AsyncGenerator[None, None]:
    """Open a stream; the block begins after its first words (after its head if a peer buffers)."""
    body = json.dump(chats(stream=True))
    url: httpx.URL = proxy.client.base_url
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        head = f"POST {CHAT} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(body)}"
        writer.write(f"{head}\r\ncontent-type: application/json\r\n\r\n".encode() + body)
        await reader.readuntil(b"It is" if proxy.name == TEMPER else b"200 OK")
        yield
    finally:
        writer.close()
        await (
            writer.wait_closed()
        )  # end the process in a thread: waiting for it would block this loop


@pytest.mark.deep
async def test_many_open_streams_take_little_memory(subject: str) -> None:
    talking = Script((sse.START + sse.text("It is"), Ending.NEVER))
    backend = ScriptedBackend(*[talking] * STREAMS)
    async with (
        listening(backend) as upstream,
        in_a_process(subject, upstream.url) as proxy,
        AsyncExitStack() as streams,
    ):
        before = memory(proxy)
        for _ in range(STREAMS // AT_ONCE):
            opening = (streams.enter_async_context(stream(proxy)) for _ in range(AT_ONCE))
            await asyncio.gather(*opening)
        assert subject != TEMPER or len(backend.upstream_requests) == STREAMS
        grown = memory(proxy) - before
    assert before + SCALE_TO_1000_STREAMS * grown < MOST_MEMORY


@pytest.mark.deep
async def test_many_requests_do_not_increase_the_memory(subject: str) -> None:
    good = calls("get_weather", '{"city": "Paris"}')
    backend = ScriptedBackend(*[good] * (ROUNDS * REQUESTS))

    async def ask(proxy: ProxyUnderTest) -> None:
        for number in range(REQUESTS // AT_ONCE):
            await proxy.ask(asks(), stream=number % 2 == 0)

    async with listening(backend) as upstream, in_a_process(subject, upstream.url) as proxy:
        used = []
        for _ in range(ROUNDS):
            await asyncio.gather(*(ask(proxy) for _ in range(AT_ONCE)))
            used.append(memory(proxy))
    _, warmed_up, *_, at_last = used  # caches and tables fill in the first 300 requests
    assert at_last - warmed_up < MOST_GROWTH
