import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from starlette.types import Receive, Scope, Send

from proxy import bounds
from proxy.api.app import ServerOptions, create_app
from proxy.api.client_connection import WIRE, Wire
from proxy.api.connections import ConnectionLimits
from proxy.api.server import listen, serving
from proxy.conversation import json
from tests.fakes.backend import ScriptedBackend
from tests.fakes.sockets import all_that_comes, connected
from tests.fakes.steady_loop import SLICE_SECONDS

GOOD = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"


@asynccontextmanager
async def server(limits: ConnectionLimits) -> AsyncGenerator[tuple[str, int], None]:
    app = create_app(ServerOptions().alone(ScriptedBackend()), ServerOptions())
    with contextlib.closing(listen("127.0.0.1", 0)) as listening:
        async with serving(app, listening, 1, limits):
            yield "127.0.0.1", int(listening.getsockname()[1])


async def told(address: tuple[str, int], raw: bytes) -> bytes:
    """Send bytes and return all that comes until the server closes."""
    async with connected(address) as (reader, writer):
        writer.write(raw)
        return await all_that_comes(reader)


def error_of(answer: bytes) -> json.JsonObject:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    document = json.parse(body)
    assert isinstance(document, dict)
    error = document["error"]
    assert isinstance(error, dict)
    return error


@pytest.mark.parametrize("raw", [b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nhost: x\r\n"])
async def test_a_head_that_does_not_come_is_given_up(raw: bytes) -> None:
    async with server(ConnectionLimits(head_seconds=0.05)) as address:
        answer = await told(address, raw)
    assert answer.startswith(b"HTTP/1.1 408")
    assert "server.header_seconds" in str(error_of(answer)["message"])


async def test_a_client_that_dawdles_holds_nobody_else_up() -> None:
    async with (
        server(ConnectionLimits(head_seconds=5)) as address,
        connected(address) as (_, slow),
        connected(address) as (reader, writer),
    ):
        slow.write(b"GET /healthz HTT")
        writer.write(GOOD)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")


async def test_a_second_request_on_a_connection_has_a_deadline_of_its_own() -> None:
    async with (
        server(ConnectionLimits(head_seconds=0.05)) as address,
        connected(address) as (reader, writer),
    ):
        writer.write(GOOD)
        await reader.readuntil(b'"ok"}')
        writer.write(GOOD[:-4])
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")


async def test_a_body_is_not_hurried_by_the_deadline_of_heads() -> None:
    async with (
        server(ConnectionLimits(head_seconds=0.05)) as address,
        connected(address) as (reader, writer),
    ):
        writer.write(POST + b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.1)
        writer.write(b"}")
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        GOOD[:-2] + b"".join(b"x-%d: y\r\n" % number for number in range(10_000)) + b"\r\n",
        GOOD[:-2] + b"x: " + b"y" * 70_000 + b"\r\n\r\n",
        POST + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        POST + b"content-length: -1\r\n\r\n",
        POST + b"content-length: 1e3\r\n\r\n",
        POST + b"x : y\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GARBAGE\r\n\r\n",
    ],
    ids=[
        "a long target",
        "ten thousand headers",
        "a long header",
        "two lengths of two kinds",
        "two lengths",
        "a negative length",
        "an odd length",
        "a space before the colon",
        "TLS",
        "garbage",
    ],
)
async def test_what_is_no_proper_request_is_refused_and_the_connection_closed(raw: bytes) -> None:
    async with server(ConnectionLimits()) as address:
        answer = await told(address, raw)
    assert answer.startswith(b"HTTP/1.1 400")
    assert error_of(answer)["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "head",
    [b"x: y\r\n" * bounds.HEADERS, b"x: " + b"y" * bounds.HEAD_BYTES + b"\r\n"],
    ids=["lines", "bytes"],
)
async def test_of_a_head_that_is_too_large_both_bounds_are_named(head: bytes) -> None:
    async with server(ConnectionLimits()) as address:
        answer = await told(address, GOOD[:-2] + head + b"\r\n")
    most = f"{bounds.HEAD_BYTES} bytes or {bounds.HEADERS} lines"
    assert most in str(error_of(answer)["message"])


async def test_more_connections_than_allowed_are_sent_away_and_the_others_served() -> None:
    async with server(ConnectionLimits(most=1)) as address:
        async with connected(address) as (reader, writer):
            answer = await told(address, GOOD)
            assert answer.startswith(b"HTTP/1.1 503")
            assert b"retry-after" in answer
            writer.write(GOOD)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        async with connected(address) as (reader, writer):
            writer.write(GOOD)
            assert (await reader.readline()).startswith(b"HTTP/1.1 ")


async def test_an_upgrade_is_not_followed() -> None:
    upgrade = GOOD[:-2] + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"
    async with server(ConnectionLimits()) as address, connected(address) as (reader, writer):
        writer.write(upgrade)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("reads", [False, True])
async def test_a_client_that_takes_nothing_of_its_answer_is_cut_off(*, reads: bool) -> None:
    left = asyncio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        await receive()
        leaving = asyncio.ensure_future(receive())
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not leaving.done():
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
            await asyncio.sleep(0)
        left.set()

    limits = ConnectionLimits(stall_seconds=0.2)
    with contextlib.closing(listen("127.0.0.1", 0)) as listening:
        async with (
            serving(endless, listening, 1, limits),
            connected(("127.0.0.1", int(listening.getsockname()[1]))) as (reader, writer),
        ):
            writer.write(GOOD)
            waiting = asyncio.create_task(left.wait())
            until = asyncio.get_running_loop().time() + 5 * limits.stall_seconds
            while reads and asyncio.get_running_loop().time() < until:
                await reader.read(65_536)
                await asyncio.sleep(SLICE_SECONDS)
            assert left.is_set() is False
            await waiting


async def test_nothing_is_written_to_an_answer_that_is_over() -> None:
    kept: list[Wire] = []

    async def answers(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            kept.append(scope["extensions"][WIRE]["wire"])
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"all"})

    with contextlib.closing(listen("127.0.0.1", 0)) as listening:
        async with (
            serving(answers, listening, 1, ConnectionLimits()),
            connected(("127.0.0.1", int(listening.getsockname()[1]))) as (reader, writer),
        ):
            for _ in range(2):  # the connection remembers the last one
                writer.write(GOOD)
                await reader.readuntil(b"0\r\n\r\n")
            assert [one.is_writable for one in kept] == [False, False]
