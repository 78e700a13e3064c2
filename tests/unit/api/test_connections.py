import asyncio
import contextlib
import gc
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import h11
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy import bounds
from proxy.api.app import ServerOptions, create_app
from proxy.api.client_connection import WIRE, Wire
from proxy.api.connections import ConnectionLimits
from proxy.api.server import listen, serving
from proxy.conversation import json
from tests.fakes.backend import ScriptedBackend
from tests.fakes.sockets import connected, read_until_closed
from tests.fakes.steady_loop import SLICE_SECONDS
from tests.timeouts import until, with_timeout

GOOD = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
SHORT = ConnectionLimits(head_seconds=0.05)


@asynccontextmanager
async def server(limits: ConnectionLimits) -> AsyncGenerator[tuple[str, int], None]:
    app = create_app(ServerOptions().services_for(ScriptedBackend()), ServerOptions())
    with contextlib.closing(listen("127.0.0.1", 0)) as listening:
        async with serving(app, listening, 1, limits):
            yield "127.0.0.1", int(listening.getsockname()[1])


async def exchange(address: tuple[str, int], raw: bytes) -> bytes:
    """Send bytes and return all data until the server closes the connection."""
    async with connected(address) as (reader, writer):
        writer.write(raw)
        return await read_until_closed(reader)


def error_of(answer: bytes) -> json.JsonObject:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"connection: close" in head.lower()
    document = json.parse(body)
    assert isinstance(document, dict)
    error = document["error"]
    assert isinstance(error, dict)
    return error


@pytest.mark.parametrize("raw", [b"", b"GET /healthz HT", b"GET /healthz HTTP/1.1\r\nhost: x\r\n"])
async def test_an_incomplete_head_times_out_with_408(raw: bytes) -> None:
    async with server(ConnectionLimits(head_seconds=0.05)) as address:
        answer = await exchange(address, raw)
    assert answer.startswith(b"HTTP/1.1 408")
    assert "server.header_seconds" in str(error_of(answer)["message"])


async def test_an_incomplete_second_head_on_a_connection_times_out_with_408() -> None:
    async with (
        server(ConnectionLimits(head_seconds=0.05)) as address,
        connected(address) as (reader, writer),
    ):
        writer.write(GOOD)
        await reader.readuntil(b'"ok"}')
        writer.write(GOOD[:-4])
        assert (await reader.readline()).startswith(b"HTTP/1.1 408")


async def test_the_deadline_of_heads_does_not_apply_to_bodies() -> None:
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
        POST + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        POST + b"content-length: 1e3\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GARBAGE\r\n\r\n",
    ],
    ids=["a long target", "two lengths", "an odd length", "TLS", "garbage"],
)
async def test_a_malformed_request_is_refused_and_the_connection_closed(raw: bytes) -> None:
    async with server(ConnectionLimits()) as address:
        answer = await exchange(address, raw)
    assert answer.startswith(b"HTTP/1.1 400")
    assert error_of(answer)["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "head",
    [b"x: y\r\n" * bounds.HEADERS, b"x: " + b"y" * bounds.HEAD_BYTES + b"\r\n"],
    ids=["lines", "bytes"],
)
async def test_the_error_for_a_large_head_names_the_limits_of_lines_and_bytes(head: bytes) -> None:
    async with server(ConnectionLimits()) as address:
        answer = await exchange(address, GOOD[:-2] + head + b"\r\n")
    limits = f"{bounds.HEAD_BYTES} bytes or {bounds.HEADERS} header lines"
    assert limits in str(error_of(answer)["message"])


async def test_a_connection_above_the_limit_gets_503_and_earlier_connections_are_served() -> None:
    async with server(ConnectionLimits(most=1)) as address:
        async with connected(address) as (reader, writer):
            answer = await exchange(address, GOOD)
            assert answer.startswith(b"HTTP/1.1 503")
            assert b"retry-after" in answer
            writer.write(GOOD)
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        async with connected(address) as (reader, writer):
            writer.write(GOOD)
            assert (await reader.readline()).startswith(b"HTTP/1.1 ")


async def test_a_request_for_a_websocket_upgrade_is_answered_without_the_upgrade() -> None:
    upgrade = GOOD[:-2] + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"
    async with server(ConnectionLimits()) as address, connected(address) as (reader, writer):
        writer.write(upgrade)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")


async def test_a_connection_is_not_writable_after_a_finished_response() -> None:
    wires: list[Wire] = []

    async def answers(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            wires.append(scope["extensions"][WIRE]["wire"])
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"all"})

    with contextlib.closing(listen("127.0.0.1", 0)) as listening:
        async with (
            serving(answers, listening, 1, ConnectionLimits()),
            connected(("127.0.0.1", int(listening.getsockname()[1]))) as (reader, writer),
        ):
            for _ in range(2):  # the connection keeps a reference to its last request
                writer.write(GOOD)
                await reader.readuntil(b"0\r\n\r\n")
            assert [response.is_writable for response in wires] == [False, False]


@dataclass
class GatedApplication:
    """An application with responses that wait for `gate`; it records requests and disconnects.

    `/read` reads the body first, `/stream` sends two chunks with the gate between them, `/late`
    starts its response immediately and reads the body afterwards.
    """

    gate: asyncio.Event = field(default_factory=asyncio.Event)
    paths: list[str] = field(default_factory=list)
    headers: list[list[tuple[bytes, bytes]]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        path = scope["path"]
        self.paths.append(path)
        if path == "/read" and not await self._read(receive):
            self.left.append(path)
            return
        self.headers.append(list(scope["headers"]))
        if path in ("/stream", "/late"):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        if path == "/late":
            await self._read(receive)
        if not await self._wait(scope):
            self.left.append(path)
            return
        if path not in ("/stream", "/late"):
            length = [(b"content-length", b"4")]
            await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": b"done"})

    async def _read(self, receive: Receive) -> bool:
        body, is_open = b"", True
        while is_open:
            message = await receive()
            if message["type"] == "http.disconnect":
                return False
            body += message["body"]
            is_open = message["more_body"]
        self.bodies.append(body)
        return True

    async def _wait(self, scope: Scope) -> bool:
        """Wait for the gate; returns False if the client disconnects first."""
        gone = asyncio.Event()
        scope["extensions"][WIRE]["wire"].watch(gone.set)
        waits = [asyncio.create_task(event.wait()) for event in (self.gate, gone)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        return not gone.is_set()


@asynccontextmanager
async def serving_at(
    app: ASGIApp, limits: ConnectionLimits = SHORT
) -> AsyncGenerator[tuple[str, int], None]:
    with contextlib.closing(listen("127.0.0.1", 0)) as listening:
        async with serving(app, listening, 1, limits):
            yield "127.0.0.1", int(listening.getsockname()[1])


def write_request(path: str, headers: bytes = b"") -> bytes:
    return b"GET %b HTTP/1.1\r\nhost: x\r\n%b\r\n" % (path.encode(), headers)


def parse_responses(received: bytes) -> list[tuple[int, bytes]]:
    """Return status and body of each response in the received data; fails for any other data."""
    client, responses_ = h11.Connection(h11.CLIENT), list[tuple[int, bytes]]()
    while received:
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
        client.send(h11.EndOfMessage())
        client.receive_data(received)
        status, body = 0, b""
        while not isinstance(event := client.next_event(), h11.EndOfMessage):
            assert not isinstance(event, type(h11.NEED_DATA)), received
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
        responses_.append((status, body))
        received = client.trailing_data[0]
    return responses_


STRAY = {
    "a line break": b"\r\n",
    "a line feed": b"\n",
    "a carriage return": b"\r",
    "one letter": b"G",
    "half a head": GOOD[:-2],
    "a tab": b"\t",
    "a NUL": b"\0",
}


@pytest.mark.parametrize("stray", STRAY.values(), ids=STRAY)
@with_timeout
async def test_stray_bytes_after_a_response_do_not_keep_the_connection_open(
    stray: bytes,
) -> None:
    async with (
        server(ConnectionLimits(head_seconds=0.05)) as address,
        connected(address) as (reader, writer),
    ):
        writer.write(GOOD)
        await reader.readuntil(b'"ok"}')
        writer.write(stray)
        answer = await read_until_closed(reader)  # returns when the server closes the connection
    assert answer == b"" or answer.startswith((b"HTTP/1.1 408", b"HTTP/1.1 400"))
    assert (answer == b"") == (stray in (b"\r\n", b"\n", b"\r"))


@with_timeout
async def test_repeated_line_breaks_do_not_extend_the_deadline_of_the_next_head() -> None:
    async with (
        server(ConnectionLimits(head_seconds=0.1)) as address,
        connected(address) as (reader, writer),
    ):
        writer.write(GOOD)
        await reader.readuntil(b'"ok"}')
        ending = asyncio.create_task(read_until_closed(reader))
        while not ending.done():
            writer.write(b"\r\n")
            await asyncio.sleep(SLICE_SECONDS)


@pytest.mark.parametrize("blank_lines", [b"\r\n", b"\n"])
@with_timeout
async def test_too_many_blank_lines_before_a_head_are_refused_with_400(blank_lines: bytes) -> None:
    async with server(ConnectionLimits()) as address:
        answer = await exchange(address, GOOD + blank_lines * bounds.HEAD_BYTES * 8)
    assert [status for status, _ in parse_responses(answer)] == [200, 400]
    assert b"HTTP/1.1 400" in answer


@with_timeout
async def test_an_endless_header_is_refused_with_400() -> None:
    async with server(ConnectionLimits()) as address, connected(address) as (reader, writer):
        writer.write(GOOD[:-2] + b"x: ")
        answering = asyncio.create_task(read_until_closed(reader))
        while not answering.done():
            writer.write(b"y" * 10_000)
            await asyncio.sleep(0)
    assert answering.result().startswith(b"HTTP/1.1 400")


BODIES = {
    "chunked": b"transfer-encoding: chunked\r\n\r\n",
    "content-length": b"content-length: 1000000000\r\n\r\n",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("method", [b"GET", b"POST"])
@with_timeout
async def test_a_response_before_the_body_was_read_closes_the_connection(
    body: bytes, method: bytes
) -> None:
    head = method + b" /v1/unknown HTTP/1.1\r\nhost: x\r\n"
    async with server(ConnectionLimits()) as address, connected(address) as (reader, writer):
        writer.write(head + body)
        answer = await read_until_closed(reader)  # the server closes without waiting for the body
        assert answer.startswith(b"HTTP/1.1 404")
        assert b"\r\nconnection: close\r\n" in answer
        assert answer.count(b"HTTP/1.1") == 1


@with_timeout
async def test_a_client_that_sends_a_whole_refused_body_receives_the_response() -> None:
    size = 8_000_000
    head = b"POST /v1/unknown HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size
    async with server(ConnectionLimits()) as address, connected(address) as (reader, writer):
        writer.write(head)
        await asyncio.sleep(2 * SLICE_SECONDS)  # meanwhile, the response is sent
        writer.write(b"x" * size + GOOD)
        await writer.drain()
        answer = await reader.read()  # raises if the connection was reset
    assert answer.startswith(b"HTTP/1.1 404")
    assert answer.count(b"HTTP/1.1") == 1  # the following bytes are not a request


async def send_repeatedly(writer: asyncio.StreamWriter, piece: bytes) -> None:
    """Send the same piece until the connection breaks."""
    while True:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(SLICE_SECONDS)


@pytest.mark.parametrize("is_endless", [True, False])
@with_timeout
async def test_bytes_after_the_last_response_are_discarded_up_to_a_time_and_a_size(
    monkeypatch: pytest.MonkeyPatch, *, is_endless: bool
) -> None:
    if is_endless:
        monkeypatch.setattr(bounds, "DROPPED_BYTES", 100_000)
    limits = ConnectionLimits(drain_seconds=60 if is_endless else 0.05)
    async with server(limits) as address, connected(address) as (reader, writer):
        writer.write(b"POST /v1/unknown HTTP/1.1\r\nhost: x\r\n" + BODIES["chunked"])
        assert (await reader.readline()).startswith(b"HTTP/1.1 404")
        with pytest.raises(ConnectionError):
            await send_repeatedly(writer, b"1\r\nx\r\n" * 1000 if is_endless else b"1")


# Pieces of chunked bodies with much framing and little content. The test repeats a piece until the
# body exceeds `bounds.FRAMING_BYTES`.
FRAMING = {
    "extensions": b"1;a=" + b"b" * 1000 + b"\r\nx\r\n",
    "quoted extensions": b'1;a="' + b"b" * 1000 + b'"\r\nx\r\n',
    "zeros": b"0" * 15 + b"1\r\nx\r\n",
    "tiny chunks": b"1\r\nx\r\n",
}


@pytest.mark.parametrize("name", FRAMING)
@with_timeout
async def test_a_chunked_body_with_too_many_bytes_of_framing_is_refused_with_413(name: str) -> None:
    pieces = FRAMING[name] * (100_000 // len(FRAMING[name]))
    app = GatedApplication()
    async with serving_at(app) as address, connected(address) as (reader, writer):
        writer.write(b"POST /read HTTP/1.1\r\nhost: x\r\n" + BODIES["chunked"])
        answering = asyncio.create_task(read_until_closed(reader))
        with contextlib.suppress(ConnectionError):
            while not answering.done():
                writer.write(pieces)
                await writer.drain()
        assert parse_responses(await answering)[0][0] == 413
    assert (app.bodies, app.left) == ([], ["/read"])


@pytest.mark.parametrize("end", [b"", b"\r\n"], ids=["a chunk's head", "a trailer"])
@with_timeout
async def test_an_endless_chunk_head_or_trailer_is_refused(end: bytes) -> None:
    async with serving_at(GatedApplication()) as address, connected(address) as (reader, writer):
        begin = b"POST /read HTTP/1.1\r\nhost: x\r\n" + BODIES["chunked"]
        writer.write(begin + (b"0\r\nx: " if end else b"1;"))
        answering = asyncio.create_task(read_until_closed(reader))
        with contextlib.suppress(ConnectionError):
            while not answering.done():
                writer.write(b"a" * 50_000)
                await writer.drain()
        assert parse_responses(await answering)[0][0] in (400, 413)


@with_timeout
async def test_trailers_count_towards_the_head_limit_and_are_not_headers() -> None:
    app = GatedApplication()
    app.gate.set()
    begin = b"POST /read HTTP/1.1\r\nhost: x\r\n" + BODIES["chunked"] + b"2\r\n{}\r\n0\r\n"
    async with serving_at(app) as address:
        async with connected(address) as (reader, writer):
            writer.write(begin + b"host: evil\r\nauthorization: Bearer x\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        answer = await exchange(address, begin + b"x: y\r\n" * bounds.HEADERS + b"\r\n")
    assert dict(app.headers[0]) == {b"host": b"x", b"transfer-encoding": b"chunked"}
    assert parse_responses(answer)[0][0] == 400


@pytest.mark.parametrize("size", [1, 2, 16, 4096])
@with_timeout
async def test_a_body_in_small_chunks_is_read(size: int) -> None:
    app = GatedApplication()
    app.gate.set()
    body = b"x" * (50_000 if size == 1 else 300_000)
    cut = (body[start : start + size] for start in range(0, len(body), size))
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in cut)
    async with serving_at(app) as address, connected(address) as (reader, writer):
        head = b"POST /read HTTP/1.1\r\nhost: x\r\n" + BODIES["chunked"]
        writer.write(head + chunks + b"0\r\n\r\n" + write_request("/next"))
        await reader.readuntil(b"done")
        await reader.readuntil(b"done")  # the connection is still open
    assert app.bodies == [body]


BROKEN = {
    "no HTTP": b"GARBAGE\r\n\r\n",
    "a NUL": b"\0",
    "two lengths": b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    "two hosts": write_request("/", b"host: y\r\n"),
    "a wrong chunk": b"POST /read HTTP/1.1\r\n" + BODIES["chunked"] + b"x\r\n",
    "half a head": b"GET / HTTP/1.1\r\nhost:",
    "a long header": write_request("/", b"x: " + b"y" * 70_000 + b"\r\n"),
    "line breaks": b"\r\n" * 300_000,
}


@pytest.mark.parametrize("before", [1, 2, 3])
@pytest.mark.parametrize("path", ["/whole", "/stream"])
@pytest.mark.parametrize("name", BROKEN)
@with_timeout
async def test_the_error_for_a_broken_request_follows_the_responses_in_progress(
    *, name: str, path: str, before: int
) -> None:
    app = GatedApplication()
    async with serving_at(app) as address, connected(address) as (reader, writer):
        writer.write(write_request(path) * before + BROKEN[name])
        await until(lambda: bool(app.paths))
        await asyncio.sleep(3 * SHORT.head_seconds)  # the deadline is paused during a response
        app.gate.set()
        answer = await read_until_closed(reader)
    body = b"begundone" if path == "/stream" else b"done"
    *good, (status, _) = parse_responses(answer)
    assert good == [(200, body)] * before
    assert status == (408 if name == "half a head" else 400)


@with_timeout
async def test_a_slow_reader_receives_the_whole_response_before_an_error() -> None:
    size = 4_000_000

    async def send_large_response(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x" * size})

    limits = ConnectionLimits(drain_seconds=0.05)
    async with (
        serving_at(send_large_response, limits) as address,
        connected(address) as (reader, writer),
    ):
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(write_request("/") + BROKEN["no HTTP"])
        await asyncio.sleep(0.3)
        writer.transport.resume_reading()  # type: ignore[attr-defined]
        good, (status, _) = parse_responses(await reader.read())
    assert good == (200, b"x" * size)
    assert status == 400


@with_timeout
async def test_a_request_that_is_completed_during_a_response_is_answered_after_it() -> None:
    app = GatedApplication()
    async with serving_at(app) as address, connected(address) as (reader, writer):
        second = write_request("/second")
        writer.write(write_request("/stream") + second[:9])
        await until(lambda: bool(app.paths))
        await asyncio.sleep(2 * SHORT.head_seconds)
        writer.write(second[9:] + write_request("/third"))
        app.gate.set()
        for _ in range(3):
            await reader.readuntil(b"done")
    assert app.paths == ["/stream", "/second", "/third"]


@with_timeout
async def test_a_broken_body_after_the_response_started_gets_no_second_response() -> None:
    app = GatedApplication()
    app.gate.set()
    async with serving_at(app) as address, connected(address) as (reader, writer):
        writer.write(b"POST /late HTTP/1.1\r\nhost: x\r\n" + BODIES["chunked"])
        await reader.readuntil(b"begun")
        writer.write(b"what\r\n")
        assert b"HTTP/1.1" not in await read_until_closed(reader)


@with_timeout
async def test_a_response_may_start_before_the_body_is_complete() -> None:
    app = GatedApplication()
    app.gate.set()
    async with serving_at(app) as address, connected(address) as (reader, writer):
        writer.write(b"POST /late HTTP/1.1\r\nhost: x\r\n" + BODIES["chunked"])
        head = await reader.readuntil(b"begun")
        writer.write(b"2\r\n{}\r\n0\r\n\r\n" + write_request("/next"))
        remainder = await read_until_closed(reader)
    assert b"connection: close" in head
    assert parse_responses(head + remainder) == [(200, b"begundone")]
    assert app.bodies == [b"{}"]
    assert app.paths == ["/late"]  # after "close" nothing is processed


@with_timeout
async def test_the_first_excess_pipelined_request_is_refused_with_429() -> None:
    app = GatedApplication()
    async with serving_at(app) as address, connected(address) as (reader, writer):
        writer.write(write_request("/") * 2000)
        await until(lambda: bool(app.paths))
        app.gate.set()
        *good, last = parse_responses(await read_until_closed(reader))
    assert good == [(200, b"done")] * (bounds.PIPELINED + 1)
    assert last[0] == 429


@with_timeout
async def test_excess_pipelined_requests_are_not_read_while_requests_wait() -> None:
    app = GatedApplication()
    async with serving_at(app) as address, connected(address) as (reader, writer):
        writer.write(write_request("/") * 2)
        await until(lambda: bool(app.paths))
        for _ in range(50):
            await asyncio.sleep(SLICE_SECONDS / 10)
            writer.write(write_request("/") * 100)
        assert app.paths == ["/"]
        writer.transport.abort()
        gc.collect()
        del reader


@pytest.mark.parametrize("path", ["/whole", "/stream", "/read"])
@pytest.mark.parametrize("count", [1, 2, 3])
@with_timeout
async def test_a_client_that_half_closes_the_connection_receives_its_responses(
    path: str, count: int
) -> None:
    app = GatedApplication()
    async with serving_at(app) as address, connected(address) as (reader, writer):
        writer.write(write_request(path) * count)
        writer.write_eof()
        await until(lambda: bool(app.paths))
        await asyncio.sleep(10 * SLICE_SECONDS)
        app.gate.set()
        answer = await reader.read()
    body = b"begundone" if path == "/stream" else b"done"
    assert parse_responses(answer) == [(200, body)] * count
    assert not app.left


@pytest.mark.parametrize(
    ("remainder", "statuses"),
    [(b"GET / HT", [400]), (POST + b"content-length: 2\r\n\r\n{", [])],
    ids=["head", "body"],
)
@with_timeout
async def test_a_half_close_within_a_second_request_does_not_truncate_the_first_response(
    remainder: bytes, statuses: list[int]
) -> None:
    app = GatedApplication()
    async with serving_at(app) as address, connected(address) as (reader, writer):
        writer.write(write_request("/stream") + remainder)
        writer.write_eof()
        await until(lambda: bool(app.paths))
        await asyncio.sleep(5 * SLICE_SECONDS)
        app.gate.set()
        answer = await reader.read()
    first, *others = parse_responses(answer)
    assert first == (200, b"begundone")
    assert [status for status, _ in others] == statuses


@pytest.mark.parametrize("remainder", [b"", b"GET / HT", POST + b"content-length: 2\r\n\r\n{"])
@with_timeout
async def test_a_half_close_before_a_complete_request_closes_the_connection(
    remainder: bytes,
) -> None:
    async with serving_at(GatedApplication()) as address, connected(address) as (reader, writer):
        writer.write(remainder)
        writer.write_eof()
        await reader.read()


@pytest.mark.parametrize("path", ["/whole", "/stream"])
@with_timeout
async def test_the_application_is_notified_immediately_when_a_client_disconnects(
    path: str,
) -> None:
    app = GatedApplication()
    async with serving_at(app) as address, connected(address) as (_, writer):
        writer.write(write_request(path))
        await until(lambda: bool(app.paths))
        writer.close()
        await until(lambda: app.left == [path])


@pytest.mark.parametrize("path", ["/whole", "/stream"])
@with_timeout
async def test_a_pipelined_request_of_a_client_that_disconnected_is_not_started(path: str) -> None:
    app = GatedApplication()
    async with serving_at(app) as address:
        async with connected(address) as (_, writer):
            writer.write(write_request(path) * 2)
            await until(lambda: bool(app.paths))
            # while a request waits, nothing is read, so only a write shows the disconnect
            writer.transport.abort()
            app.gate.set()
        async with connected(address) as (reader, writer):
            writer.write(write_request("/whole"))
            assert await reader.read(12) == b"HTTP/1.1 200"
    assert app.paths == [path, "/whole"]


@with_timeout
async def test_a_half_closed_http_1_0_client_counts_as_disconnected() -> None:
    app = GatedApplication()
    async with serving_at(app) as address, connected(address) as (reader, writer):
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        await until(lambda: bool(app.paths))
        writer.write_eof()
        assert await reader.read() == b""
    assert app.left == ["/"]


@with_timeout
async def test_a_corked_response_is_sent_before_an_error_and_before_the_connection_ends() -> None:
    async with server(ConnectionLimits()) as address:
        for remainder, count in ((b"GARBAGE\r\n\r\n", 2), (b"", 1)):
            body = b"" if remainder else BODIES["content-length"]
            answer = await exchange(
                address, (write_request("/v1/x")[:-2] + (body or b"\r\n")) + remainder
            )
            assert [status for status, _ in parse_responses(answer)] == [404, 400][:count]


@with_timeout
async def test_a_stopping_server_closes_connections_that_it_drains() -> None:
    async with server(ConnectionLimits(drain_seconds=1000)) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"\0")
        await reader.read()
    assert await reader.read() == b""
    writer.close()


@with_timeout
async def test_requests_after_an_ignored_upgrade_are_answered() -> None:
    upgrade = GOOD[:-2] + b"connection: upgrade\r\nupgrade: h2c\r\n\r\n"
    async with server(ConnectionLimits()) as address, connected(address) as (reader, writer):
        for raw in (upgrade, GOOD, upgrade, GOOD):
            writer.write(raw)
            await reader.readuntil(b'"ok"}')


@with_timeout
async def test_a_reset_after_the_last_response_raises_no_error() -> None:
    client, over = socket.socket(), asyncio.Event()

    async def respond_and_reset(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        length = [(b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": b""})
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.close()
        over.set()

    async with serving_at(respond_and_reset) as address:
        client.connect(address)
        client.sendall(POST + b"content-length: 9\r\n\r\n")  # the body is never sent
        await over.wait()
        for _ in range(5):
            await asyncio.sleep(0)  # an error in a callback fails the test


@pytest.mark.fault("F34")
@with_timeout
async def test_the_response_to_a_trailer_connection_close_announces_the_close() -> None:
    """A proxy that sends requests of several clients over one connection must know of the close."""
    app = GatedApplication()
    app.gate.set()
    body = b"transfer-encoding: chunked\r\n\r\n0\r\nconnection: close\r\n\r\n"
    async with serving_at(app, ConnectionLimits()) as address:
        answer = await exchange(address, b"POST /read HTTP/1.1\r\nhost: x\r\n" + body)
    assert parse_responses(answer) == [(200, b"done")]
    assert b"\r\nconnection: close\r\n" in answer


SMUGGLED = write_request("/smuggled")
FRAMED = {
    "content-length": b"content-length: %d\r\n\r\n%b" % (len(SMUGGLED), SMUGGLED),
    "chunked": b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n"
    % (len(SMUGGLED), SMUGGLED),
}


@pytest.mark.fault("F34")
@pytest.mark.parametrize("framed", FRAMED.values(), ids=FRAMED)
@pytest.mark.parametrize("protocol", [b"h2c", b"websocket"])
@pytest.mark.parametrize("cut", ["nowhere", "before the body", "everywhere"])
@with_timeout
async def test_the_body_of_a_request_for_an_upgrade_is_read(
    framed: bytes, protocol: bytes, cut: str
) -> None:
    """Java's client requests HTTP/2 with every first request and sends its body immediately."""
    app = GatedApplication()
    app.gate.set()
    lines = b"host: x\r\nconnection: Upgrade, HTTP2-Settings\r\nupgrade: %b\r\n" % protocol
    sent = b"POST /read HTTP/1.1\r\n" + lines + framed + write_request("/next")
    body = sent.index(b"\r\n\r\n") + 4
    places = {"nowhere": list[int](), "before the body": [body]}
    places["everywhere"] = list(range(1, len(sent)))
    cuts = [0, *places[cut], len(sent)]
    serving = serving_at(app, ConnectionLimits())
    async with serving as address, connected(address) as (reader, writer):
        for start, end in pairwise(cuts):
            writer.write(sent[start:end])
            await asyncio.sleep(0)
        writer.write_eof()
        answer = await read_until_closed(reader)
    assert parse_responses(answer) == [(200, b"done")] * 2
    assert (app.paths, app.bodies) == (["/read", "/next"], [SMUGGLED])
    assert (b"upgrade", protocol) in app.headers[0]


@pytest.mark.parametrize("line", [b"HTTP/1.0\r\n", b"HTTP/1.1\r\nconnection: close\r\n"])
@with_timeout
async def test_the_body_of_an_upgrade_request_that_closes_the_connection_is_read(
    line: bytes,
) -> None:
    app = GatedApplication()
    app.gate.set()
    lines = b"host: x\r\nconnection: upgrade\r\nupgrade: h2c\r\ncontent-length: 2\r\n\r\n{}"
    async with serving_at(app, ConnectionLimits()) as address:
        answer = await exchange(address, b"POST /read " + line + lines)
    assert parse_responses(answer) == [(200, b"done")]
    assert app.bodies == [b"{}"]


@pytest.mark.fault("F34")
@pytest.mark.parametrize("target", [b"x:80", b"/read"])
@with_timeout
async def test_the_method_connect_gets_405_and_later_input_is_ignored(target: bytes) -> None:
    app = GatedApplication()
    async with serving_at(app) as address:
        raw = b"CONNECT %b HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n" % target
        answer = await exchange(address, raw + SMUGGLED)
    assert [status for status, _ in parse_responses(answer)] == [405]
    assert app.paths == []


@with_timeout
async def test_a_disconnect_probe_is_not_sent_before_a_corked_response() -> None:
    """A corked head is not sent yet, so a probe would be sent before it."""

    async def respond_corked(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        wire = scope["extensions"][WIRE]["wire"]
        wire.cork()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await asyncio.sleep(5 * SLICE_SECONDS)
        await send({"type": "http.response.body", "body": b"done"})
        wire.uncork()

    async with serving_at(respond_corked) as address, connected(address) as (reader, writer):
        writer.write(write_request("/"))
        writer.write_eof()
        assert parse_responses(await reader.read()) == [(200, b"done")]
