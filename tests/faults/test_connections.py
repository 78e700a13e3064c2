"""F29, F30, F34, F38, F74 to F76: clients on raw sockets, slow, malformed or in large numbers."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from benchmarks.faults.toxics import STREAM_HEAD, Caller
from proxy.api.app import ServerOptions, create_app
from proxy.api.connections import DEFAULT_LIMITS, ConnectionLimits
from proxy.api.edge import Access
from proxy.api.request_reader import BodyLimits
from proxy.api.server import listen, serving
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.conversation import json
from tests.fakes import sse
from tests.fakes.raw_backend import raw_backend
from tests.fakes.running_proxy import CHAT
from tests.fakes.sockets import connected, read_until_closed
from tests.fakes.steady_loop import SLICE_SECONDS
from tests.faults.proxies import TEMPER, before_url
from tests.faults.requests import chats

READER = pytest.mark.fault("F29")
SLOW_CLIENT = pytest.mark.fault("F30")
SMUGGLER = pytest.mark.fault("F34")
REBINDING = pytest.mark.fault("F38")
STRAY = pytest.mark.fault("F74")
PIPELINED = pytest.mark.fault("F75")
HALF_CLOSED = pytest.mark.fault("F76")

GOOD = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
POST = f"POST {CHAT} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n".encode()
NOTHING = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
MOST_BUFFERED = 16_000_000  # bytes in the kernel buffers of both connections, and a small margin
ENDLESS = 64_000_000
PIECE = 65_536  # bytes; after reading this many, the kernel requests more data
SHORT = ConnectionLimits(head_seconds=0.1)


@asynccontextmanager
async def listening_temper(
    backend: str,
    *,
    name: str = TEMPER,
    limits: ConnectionLimits = DEFAULT_LIMITS,
    body: BodyLimits | None = None,
    access: Access | None = None,
) -> AsyncGenerator[tuple[str, int], None]:
    """Run Temper as in production, or a peer, and yield its address."""
    if name != TEMPER:
        async with before_url(name, backend) as peer:
            yield peer.address
        return
    engine = LlamaServer(BackendClient(backend))
    serves = ServerOptions(body=body or BodyLimits(), access=access or Access())
    app = create_app(serves.services_for(engine), serves)
    try:
        with contextlib.closing(listen("127.0.0.1", 0)) as listening:
            async with serving(app, listening, 1, limits):
                yield "127.0.0.1", int(listening.getsockname()[1])
    finally:
        await engine.close()


class Source:
    """A backend that sends data as long as the connection accepts it."""

    def __init__(self) -> None:
        self.sent = 0
        self.left = asyncio.Event()

    async def pour(self, caller: Caller) -> None:
        if CHAT.encode() not in await caller.request():
            await caller.send(NOTHING)
            return
        piece = sse.text(*["word "] * 200)
        try:
            await caller.send(STREAM_HEAD)
            await caller.send_chunk(sse.START)
            while self.sent < ENDLESS:
                await caller.send_chunk(piece)
                self.sent += len(piece)
                await asyncio.sleep(0)
        except OSError:
            self.left.set()


def stream_request() -> bytes:
    body = json.dump(chats(stream=True))
    return POST + b"content-length: %d\r\n\r\n" % len(body) + body


@READER
async def test_a_client_that_stops_reading_pauses_the_backend_and_then_times_out() -> None:
    source = Source()
    limits = ConnectionLimits(stall_seconds=0.5)
    async with (
        raw_backend(*[source.pour] * 8) as backend,
        listening_temper(backend.url, limits=limits) as address,
        connected(address) as (_, writer),
    ):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(stream_request())
        await source.left.wait()
    assert 0 < source.sent < MOST_BUFFERED


@READER
async def test_a_client_that_reads_slowly_is_not_disconnected() -> None:
    source = Source()
    limits = ConnectionLimits(stall_seconds=0.2)
    async with (
        raw_backend(*[source.pour] * 8) as backend,
        listening_temper(backend.url, limits=limits) as address,
        connected(address) as (reader, writer),
    ):
        writer.write(stream_request())
        read, clock = 0, asyncio.get_running_loop().time
        until = clock() + 5 * limits.stall_seconds
        while clock() < until:
            read += len(await reader.read(PIECE))
            await asyncio.sleep(SLICE_SECONDS)
        assert not source.left.is_set()
        assert read < source.sent


@SLOW_CLIENT
@pytest.mark.parametrize(
    "raw", [b"", b"GET /health HT", GOOD[:-2], POST + b"content-length: 9\r\n\r\n{"]
)
async def test_an_incomplete_request_times_out_while_other_clients_are_served(raw: bytes) -> None:
    async with (
        raw_backend(*[send_not_found] * 8) as backend,
        listening_temper(backend.url, limits=SHORT, body=BodyLimits(seconds=0.1)) as address,
        connected(address) as (slow, writer),
        connected(address) as (reader, other),
    ):
        writer.write(raw)
        other.write(GOOD)
        assert (await reader.readline()).startswith(b"HTTP/1.1 503")  # there is no backend
        assert (await slow.read()).startswith(b"HTTP/1.1 408")


async def send_not_found(caller: Caller) -> None:
    await caller.request()
    await caller.send(NOTHING)


@SLOW_CLIENT
async def test_connections_beyond_the_limit_are_refused() -> None:
    limits = ConnectionLimits(most=3)
    async with (
        raw_backend(*[send_not_found] * 8) as backend,
        listening_temper(backend.url, limits=limits) as address,
    ):
        kept = [await asyncio.open_connection(*address) for _ in range(3)]
        async with connected(address) as (reader, _):
            answer = await read_until_closed(reader)
        kept[0][1].write(GOOD)
        served = await kept[0][0].readline()
        for _, writer in kept:
            writer.close()
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"\r\nretry-after: " in answer
    assert served.startswith(b"HTTP/1.1 ")


SMUGGLED = {
    "two lengths of two kinds": POST
    + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "a negative length": POST + b"content-length: -1\r\n\r\n",
    "an odd length": POST + b"content-length: 0x2\r\n\r\n{}",
    "another coding": POST + b"transfer-encoding: identity, x\r\n\r\n{}",
    "another coding first": POST + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a coding twice": POST
    + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "a coding in an old version": POST.replace(b"1.1", b"1.0")
    + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "two hosts": GOOD[:-2] + b"host: evil.example\r\n\r\n",
    "a folded header": POST + b"x-a: 1\r\n  folded\r\ncontent-length: 2\r\n\r\n{}",
    "bare line feeds": POST.replace(b"\r\n", b"\n") + b"content-length: 2\n\n{}",
    "a space before the colon": POST + b"content-length : 2\r\n\r\n{}",
    "a bare carriage return": POST + b"x-a: 1\rx-b: 2\r\n\r\n",
    "a NUL": POST + b"x-a: \x00\r\n\r\n",
    "masses of headers": GOOD[:-2] + b"".join(b"x-%d: y\r\n" % n for n in range(10_000)) + b"\r\n",
    "a long header": GOOD[:-2] + b"x: " + b"y" * 70_000 + b"\r\n\r\n",
    "a long target": b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
}


# RFC 9112, 5.2 and 2.2, also allows a server to accept these
LEFT_TO_A_SERVER = {"a folded header", "bare line feeds"}


@SMUGGLER
@pytest.mark.parametrize("name", SMUGGLED)
async def test_ambiguous_framing_is_rejected_and_the_connection_closed(
    *, subject: str, name: str
) -> None:
    if subject != TEMPER and name in LEFT_TO_A_SERVER:
        pytest.skip("the standard leaves it to a server")
    raw = SMUGGLED[name]
    async with (
        raw_backend(*[send_not_found] * 8) as backend,
        listening_temper(backend.url, name=subject) as address,
        connected(address) as (reader, writer),
    ):
        with contextlib.suppress(ConnectionError):
            writer.write(raw + GOOD)
            await writer.drain()
        answer = await read_until_closed(reader)
    refused = b"HTTP/1.1 501" if name == "another coding first" else b"HTTP/1.1 4"
    assert answer.startswith((refused, b"HTTP/1.0 4"))
    assert answer.count(b"HTTP/1.") == 1
    assert not backend.requests


ACCESS = Access({"us": "key"}, frozenset({"127.0.0.1", "::1"}))
TARGETS = {
    "origin": ("/v1/models", 401),
    "absolute": ("http://127.0.0.1/v1/models", 401),
    "absolute, with a port": ("http://127.0.0.1:8000/v1/models", 401),
    "absolute, IPv6": ("http://[::1]:8000/v1/models", 401),
    "another host": ("http://evil.example/v1/models", 403),
    "another host, with a port": ("HTTP://evil.example:80/v1/models", 403),
    "another host, IPv6": ("http://[2001:db8::1]/v1/models", 403),
    "user information": ("http://127.0.0.1@evil.example/v1/models", 400),
    "no host": ("http:///v1/models", 400),
}


@REBINDING
@pytest.mark.parametrize("name", TARGETS)
async def test_host_of_an_absolute_target_is_checked(name: str) -> None:
    target, status = TARGETS[name]
    async with (
        raw_backend() as backend,
        listening_temper(backend.url, access=ACCESS) as address,
        connected(address) as (reader, writer),
    ):
        writer.write(GOOD.replace(b"/health", target.encode()))
        assert (await reader.readline()).startswith(b"HTTP/1.1 %d" % status)


@STRAY
@pytest.mark.parametrize("stray", [b"\r\n", b"\n", b"G", GOOD[:-2]])
async def test_connections_with_an_incomplete_second_request_are_closed_to_admit_new_clients(
    stray: bytes,
) -> None:
    limits = ConnectionLimits(head_seconds=0.1, most=3)
    async with (
        raw_backend(*[send_not_found] * 8) as backend,
        listening_temper(backend.url, limits=limits, access=ACCESS) as address,
    ):
        connections = [await asyncio.open_connection(*address) for _ in range(limits.most)]
        for reader, writer in connections:
            writer.write(GOOD.replace(b"/health", b"/v1/models"))
            assert (await reader.readline()).startswith(b"HTTP/1.1 401")
            writer.write(stray)
        for reader, _ in connections:
            await read_until_closed(reader)  # until Temper closes the connection
        async with connected(address) as (reader, writer):
            writer.write(GOOD)
            assert not (await reader.readline()).startswith(b"HTTP/1.1 503 \r\n")
        for _, writer in connections:
            writer.close()


UNREAD = {
    "tiny chunks": b"1\r\nx\r\n",
    "chunk extensions": b"1;" + b"e" * 500 + b"\r\nx\r\n",
    "line breaks": b"\r\n",
    "requests": GOOD,
}


@STRAY
@pytest.mark.parametrize("name", UNREAD)
async def test_a_rejected_request_with_an_unfinished_body_is_answered_and_its_connection_closed(
    name: str,
) -> None:
    piece = UNREAD[name] * (50_000 // len(UNREAD[name]))
    async with (
        raw_backend() as backend,
        listening_temper(backend.url, access=ACCESS) as address,
        connected(address) as (reader, writer),
    ):
        writer.write(POST + b"transfer-encoding: chunked\r\n\r\n")
        answering = asyncio.create_task(read_until_closed(reader))
        with contextlib.suppress(ConnectionError):
            while not answering.done():
                writer.write(piece)
                await writer.drain()
        answer = await answering
    # the answer is 400 instead of 401 if Temper reads an invalid chunk before it responds
    assert answer.startswith((b"HTTP/1.1 401", b"HTTP/1.1 400"))
    assert b"\r\nconnection: close\r\n" in answer
    assert answer.count(b"HTTP/1.1") == 1


SECOND = {
    "no HTTP": b"\x16\x03\x01\r\n\r\n",
    "half a head": GOOD[:-2],
    "two hosts": SMUGGLED["two hosts"],
    "line breaks": b"\r\n" * 100_000,
    "a long head": SMUGGLED["a long header"],
}


@PIPELINED
@pytest.mark.parametrize("name", SECOND)
async def test_an_error_for_a_second_request_comes_after_the_first_response(name: str) -> None:
    may_end = asyncio.Event()

    async def talk(caller: Caller) -> None:
        if CHAT.encode() not in await caller.request():
            await caller.send(NOTHING)
            return
        await caller.send(STREAM_HEAD)
        await caller.send_chunk(sse.START + sse.text("begun"))
        await may_end.wait()
        await caller.send_chunk(sse.text("done") + sse.end())

    async with (
        raw_backend(*[talk] * 8) as backend,
        listening_temper(backend.url, limits=SHORT) as address,
        connected(address) as (reader, writer),
    ):
        writer.write(stream_request() + SECOND[name])
        stream = await reader.readuntil(b"begun")
        await asyncio.sleep(3 * SHORT.head_seconds)
        may_end.set()
        stream += await reader.readuntil(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        rest = await read_until_closed(reader)
    assert stream.count(b"HTTP/1.1") == 1
    assert b"done" in stream
    assert rest.startswith(b"HTTP/1.1 408" if name == "half a head" else b"HTTP/1.1 400")
    assert rest.count(b"HTTP/1.1") == 1


@HALF_CLOSED
@pytest.mark.parametrize("has_gone", [False, True])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_is_answered_if_the_client_half_closes_but_canceled_if_it_closes(
    *, stream: bool, has_gone: bool
) -> None:
    is_answered, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def talk(caller: Caller) -> None:
        if CHAT.encode() not in await caller.request():
            await caller.send(NOTHING)
            return
        is_answered.set()
        await caller.send(STREAM_HEAD)
        try:
            if not has_gone:
                await may_end.wait()
            while has_gone:  # until Temper closes it
                await caller.send_chunk(b": still here\n\n")
                await asyncio.sleep(SLICE_SECONDS)
        except OSError:
            ended.set()
        else:
            await caller.send_chunk(sse.START + sse.text("done") + sse.end())

    body = json.dump(chats(stream=stream))
    async with (
        raw_backend(*[talk] * 8) as backend,
        listening_temper(backend.url) as address,
        connected(address) as (reader, writer),
    ):
        writer.write(POST + b"content-length: %d\r\n\r\n" % len(body) + body)
        await is_answered.wait()
        if has_gone:
            writer.close()
            await ended.wait()
            return
        writer.write_eof()
        await asyncio.sleep(10 * SLICE_SECONDS)
        may_end.set()
        answer = await reader.read()
    assert b"HTTP/1.1 200" in answer
    assert b"done" in answer
    assert not ended.is_set()
