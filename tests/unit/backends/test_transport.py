import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest
import respx

from benchmarks.faults.toxics import STREAM_HEAD, Caller
from proxy import bounds
from proxy.backends.connection_pool import (
    BrokenOff,
    Connection,
    ConnectionPool,
    ConnectionPoolError,
    Endpoint,
    NotHttp,
    NotReached,
    PeerLost,
)
from proxy.backends.transport import BackendClient, Timeouts, WholeResponse, root_of
from proxy.errors import (
    BackendFailed,
    BackendReplyInvalid,
    BackendTimedOut,
    BackendUnavailable,
    InvalidConfiguration,
)
from tests.fakes.connections import SkippingLoop
from tests.fakes.mocked_pool import MockedPool
from tests.fakes.raw_backend import Script, raw_backend
from tests.timeouts import TIMEOUT_SECONDS

SHORT_TIMEOUT = Timeouts(first_byte=0.02)
PLAIN_HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


class FailingPool(ConnectionPool):
    """Fails with `error`: within the response if `mid_reply`, otherwise before it."""

    def __init__(self, error: Exception, *, mid_reply: bool) -> None:
        super().__init__(Endpoint("host", 80), 5.0)
        self._error = error
        self._mid_reply = mid_reply

    async def send(self, head: bytes, body: bytes, deadline: float) -> Connection:
        if not self._mid_reply:
            raise self._error
        connection = Connection(asyncio.get_running_loop())
        connection._failure = self._error  # noqa: SLF001 - as if the connection had broken
        return connection


def failure(error: Exception, *, mid_reply: bool = False) -> Exception:
    async def scene() -> None:
        pool = FailingPool(error, mid_reply=mid_reply)
        async with BackendClient("http://host", pool=pool).post("/", b"{}", {}) as answer:
            await answer.next_chunk()

    with pytest.raises(Exception) as caught:  # noqa: PT011 - the tests check its type
        asyncio.run(scene())
    return caught.value


def instance(kind: type[Exception]) -> Exception:
    return BrokenOff() if kind is BrokenOff else kind("refused")


@pytest.mark.parametrize("error", [NotReached("refused"), BrokenOff(is_unread=True), PeerLost()])
def test_an_error_is_marked_unreached_only_if_the_backend_has_not_read_the_request(
    error: Exception,
) -> None:
    failed = failure(error)
    assert isinstance(failed, BackendUnavailable)
    assert failed.is_unreached is not isinstance(error, PeerLost)


def test_an_internal_error_is_raised_unchanged() -> None:
    assert isinstance(failure(KeyError("ours")), KeyError)


def router() -> respx.MockRouter:
    return respx.MockRouter(assert_all_called=False)


def mocked(routes: respx.MockRouter, api_key: str = "") -> BackendClient:
    wire = httpx.MockTransport(routes.async_handler)
    return BackendClient("http://host/v1", api_key, pool=MockedPool(wire))


async def fetch(connection: BackendClient, headers: dict[str, str]) -> bytes:
    async with connection.post("/v1/x", b"{}", headers) as answer:
        return (await answer.read_all()).body


CLIENT_HEADERS = {
    "authorization": "Bearer client",
    "traceparent": "00-1-2-03",
    "x-request-id": "r\u00e9",
    "x-conversation-id": "c1",
    "cookie": "a=b",
    "host": "elsewhere",
    "content-type": "text/plain",
    "content-length": "99",
    "accept-encoding": "gzip",
}


def test_the_configured_key_replaces_the_key_of_the_client() -> None:
    routes = router()
    route = routes.post("http://host/v1/x").respond(200)
    connection = mocked(routes, "ours")

    asyncio.run(fetch(connection, {"authorization": "Bearer client"}))

    assert route.calls.last.request.headers["authorization"] == "Bearer ours"
    assert connection.name == "http://host"


class ScriptedStream(httpx.AsyncByteStream):
    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._body


class EndlessStream(httpx.AsyncByteStream):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            yield b":" * 1024 * 1024


def test_an_endless_reply_is_an_error() -> None:
    routes = router()
    routes.post("http://host/v1/x").respond(200, stream=EndlessStream())

    with pytest.raises(
        BackendReplyInvalid, match=f"endless reply of more than {bounds.STREAM_BYTES} bytes"
    ) as raised:
        asyncio.run(read_all(mocked(routes)))
    assert raised.value.is_endless


def test_an_endless_document_is_read_up_to_the_limit() -> None:
    routes = router()
    routes.get("http://host/x").respond(500, stream=EndlessStream())

    assert len(asyncio.run(mocked(routes).fetch("/x")).body) == bounds.DOCUMENT_BYTES


@pytest.mark.parametrize("key", ["two\nlines", "nul\0", "carriage\r"])
def test_a_key_that_is_not_a_valid_header_is_rejected(key: str) -> None:
    with pytest.raises(InvalidConfiguration, match="one line"):
        BackendClient("http://host", key)


def talk(
    url: str, timeouts: Timeouts, conversation: Callable[[BackendClient], Awaitable[bytes]]
) -> Awaitable[bytes]:
    async def run() -> bytes:
        connection = BackendClient(url, timeouts=timeouts)
        try:
            return await conversation(connection)
        finally:
            await connection.close()

    return asyncio.wait_for(run(), TIMEOUT_SECONDS)


async def read_all(connection: BackendClient) -> bytes:
    received = b""
    async with connection.post("/v1/x", b"{}", {}) as answer:
        while chunk := await answer.next_chunk():
            received += chunk
    return received


async def send_nothing(caller: Caller) -> None:
    await caller.request()
    await caller.wait_for_disconnect()


async def send_head(caller: Caller) -> None:
    await caller.request()
    await caller.send(STREAM_HEAD)
    await caller.wait_for_disconnect()


async def send_chunk(caller: Caller) -> None:
    await send_head_and(caller, b": hello\n\n")
    await caller.wait_for_disconnect()


async def send_head_and(caller: Caller, chunk: bytes) -> None:
    await caller.request()
    await caller.send(STREAM_HEAD)
    await caller.send_chunk(chunk)


async def send_part_of_chunk(caller: Caller) -> None:
    await caller.request()
    await caller.send(STREAM_HEAD + b"ff\r\n: hel")


async def send_part_of_head(caller: Caller) -> None:
    await caller.request()
    await caller.send(b"HTTP/1.1 200 OK\r\ncontent-")


async def hang_up(caller: Caller) -> None:
    await caller.request()


async def send_invalid_data(caller: Caller) -> None:
    await caller.request()
    await caller.send(b"\x00\xff220 smtp.example.org ESMTP\r\n\r\n")


async def send_ok(caller: Caller) -> None:
    while await caller.request():
        await caller.send(PLAIN_HEAD + b"ok")


@pytest.mark.parametrize(
    ("script", "timeouts", "meaning"),
    [
        (send_nothing, SHORT_TIMEOUT, BackendTimedOut),
        (send_head, SHORT_TIMEOUT, BackendTimedOut),
        (send_part_of_chunk, Timeouts(), BackendUnavailable),
        (send_part_of_head, Timeouts(), BackendUnavailable),
        (hang_up, Timeouts(), BackendUnavailable),
        (send_invalid_data, Timeouts(), BackendReplyInvalid),
    ],
)
async def test_network_faults_are_mapped_to_errors(
    script: Script, timeouts: Timeouts, meaning: type[BackendFailed]
) -> None:
    async with raw_backend(script) as backend:
        with pytest.raises(BackendFailed) as caught:
            await talk(backend.url, timeouts, read_all)
        assert type(caught.value) is meaning
        assert "smtp" not in str(caught.value)
        count = backend.connections
    assert count == 1


async def test_only_allowed_headers_of_the_client_are_sent_to_the_backend() -> None:
    async with raw_backend(send_ok) as backend:
        connection = BackendClient(f"{backend.url}/prefix/v1")
        assert await fetch(connection, CLIENT_HEADERS) == b"ok"
        await connection.close()
        host = backend.url.removeprefix("http://").encode()
        (sent,) = [request.replace(host, b"PLACE") for request in backend.requests]
    first, *lines = sent.lower().removesuffix(b"\r\n\r\n{}").split(b"\r\n")
    assert first == b"post /prefix/v1/x http/1.1"
    assert sorted(lines) == [
        b"accept-encoding: identity",
        b"accept: */*",
        b"authorization: bearer client",
        b"connection: keep-alive",
        b"content-length: 2",
        b"content-type: application/json",
        b"host: place",
        b"traceparent: 00-1-2-03",
        b"user-agent: temper",
        b"x-request-id: r\xe9",
    ]


def test_an_unrequested_compressed_body_is_an_error() -> None:
    async def compressed(caller: Caller) -> None:
        await caller.request()
        await caller.send(PLAIN_HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: br\r\n\r\nok"))

    async def scene() -> None:
        async with raw_backend(compressed) as backend:
            await talk(backend.url, Timeouts(), read_all)

    with pytest.raises(BackendReplyInvalid, match="compressed"):
        asyncio.run(scene())


def test_an_https_address_uses_tls() -> None:
    received = bytearray()

    async def listen(caller: Caller) -> None:
        received.extend(await caller.reader.readexactly(2))

    async def scene() -> None:
        async with raw_backend(listen) as backend:
            await talk(backend.url.replace("http:", "https:"), Timeouts(), read_all)

    with pytest.raises(BackendUnavailable, match="cannot be reached"):
        asyncio.run(scene())
    assert received == b"\x16\x03"  # the beginning of a handshake


def test_every_byte_renews_the_idle_timeout() -> None:
    received = asyncio.Event()

    async def five_times(caller: Caller) -> None:
        await caller.request()
        await caller.send(STREAM_HEAD)
        for _ in range(5):
            await caller.send_chunk(b":")
            await received.wait()
            received.clear()
        await caller.send_chunk(b"")

    async def read_slowly(connection: BackendClient) -> bytes:
        whole = b""
        async with connection.post("/v1/x", b"{}", {}) as answer:
            while chunk := await answer.next_chunk():
                whole += chunk
                loop.ahead += 900
                received.set()
        return whole

    async def scene() -> bytes:
        async with raw_backend(five_times) as backend:
            connection = BackendClient(backend.url, timeouts=Timeouts(first_byte=1000, idle=1000))
            whole = await read_slowly(connection)
            await connection.close()
            return whole

    loop = SkippingLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        assert runner.run(scene()) == b":::::"
        assert loop.ahead == 4500


def test_the_first_byte_has_a_separate_deadline() -> None:
    received = bytearray()

    async def read(connection: BackendClient) -> bytes:
        async with connection.post("/v1/x", b"{}", {}) as answer:
            while chunk := await answer.next_chunk():
                received.extend(chunk)
        return b""

    async def scene() -> None:
        async with raw_backend(send_chunk) as backend:
            await talk(backend.url, Timeouts(first_byte=TIMEOUT_SECONDS, idle=0), read)

    with pytest.raises(BackendTimedOut):
        asyncio.run(scene())
    assert received == b": hello\n\n"


async def linger(connection: BackendClient) -> bytes:
    async with connection.post("/v1/x", b"{}", {}) as answer:
        chunk = await answer.next_chunk()
        await answer.linger()
        return chunk


async def test_the_connection_of_a_fully_read_response_is_reused() -> None:
    async def ends_its_bodies(caller: Caller) -> None:
        while await caller.request():
            await caller.send(STREAM_HEAD + b"2\r\nok\r\n0\r\n\r\n")

    async with raw_backend(ends_its_bodies) as backend, asyncio.timeout(TIMEOUT_SECONDS):
        connection = BackendClient(backend.url)
        assert await linger(connection) + await linger(connection) == b"okok"
        await connection.close()
        count = backend.connections
    assert count == 1


async def test_the_method_linger_does_not_wait_for_the_end_of_an_endless_body() -> None:
    async with raw_backend(send_chunk) as backend:
        body = await talk(backend.url, Timeouts(), linger)
    assert body == b": hello\n\n"


@pytest.mark.parametrize(
    ("address", "root"),
    [
        ("http://127.0.0.1:9931", "http://127.0.0.1:9931"),
        ("http://127.0.0.1:9931/", "http://127.0.0.1:9931"),
        ("http://127.0.0.1:9931/v1", "http://127.0.0.1:9931"),
        ("http://127.0.0.1:9931/v1/", "http://127.0.0.1:9931"),
        (" http://127.0.0.1:9931/v1 ", "http://127.0.0.1:9931"),
        ("127.0.0.1:9931/v1", "http://127.0.0.1:9931"),
        ("https://host/engine/v1", "https://host/engine"),
        ("https://host/dev1", "https://host/dev1"),
        ("http://[::1]:9931/v1", "http://[::1]:9931"),
    ],
)
def test_a_backend_url_is_normalized_to_its_root(address: str, root: str) -> None:
    assert root_of(address) == root


def test_an_address_with_credentials_is_refused_and_not_quoted() -> None:
    with pytest.raises(InvalidConfiguration, match="api_key") as caught:
        root_of("http://anna:secret@host:1/v1")

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "address",
    ["", "http://", "ftp://host", "http://host:port", "http://host?key=1", "http://host#part"],
)
def test_an_invalid_address_is_a_configuration_error(address: str) -> None:
    with pytest.raises(InvalidConfiguration, match=r"backend\.url"):
        root_of(address)


REFUSED = b'{"error": {"message": "too long"}}'
PACKED = {"gzip": gzip.compress(REFUSED), "deflate": zlib.compress(REFUSED)}


def test_a_decompression_bomb_is_decompressed_only_up_to_the_limit() -> None:
    packing = zlib.compressobj(1)
    packed = b"".join(packing.compress(bytes(bounds.MIB)) for _ in range(128)) + packing.flush()
    routes = router()
    headers = {"content-encoding": "deflate"}
    routes.get("http://host/x").respond(200, stream=ScriptedStream(packed), headers=headers)
    tracemalloc.start()
    try:
        document = asyncio.run(mocked(routes).fetch("/x"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(document.body) == bounds.DOCUMENT_BYTES
    assert peak < 64 * bounds.MIB


@pytest.mark.parametrize(
    ("encoding", "packed", "body"),
    [(name, packed, REFUSED) for name, packed in PACKED.items()]
    + [("br", b"nonsense", b""), ("gzip", PACKED["gzip"][:9], b""), ("gzip", b"", b"")],
    ids=["gzip", "deflate", "unknown", "cut", "empty"],
)
@pytest.mark.parametrize("size", [1, 1000])
async def test_a_compressed_error_keeps_its_status(
    encoding: str, packed: bytes, body: bytes, size: int
) -> None:
    head = b"HTTP/1.1 429 Slow\r\ncontent-encoding: %s\r\nretry-after: 7\r\n" % encoding.encode()

    async def refusing(caller: Caller) -> None:
        await caller.request()
        await caller.send(head + b"content-length: %d\r\n\r\n" % len(packed))
        for start in range(0, len(packed), size):
            await caller.send(packed[start : start + size])

    async def ask(connection: BackendClient) -> bytes:
        async with connection.post("/x", b"{}", {}) as answer:
            document = await answer.read_all()
            assert (document.status, document.retry_after) == (429, "7")
            assert answer.is_whole or not body
            return document.body

    async with raw_backend(refusing) as backend:
        assert await talk(backend.url, Timeouts(), ask) == body


@pytest.mark.parametrize(
    ("error", "before", "within"),
    [
        (TimeoutError("late"), BackendTimedOut, BackendTimedOut),
        (NotReached("refused"), BackendUnavailable, BackendUnavailable),
        (NotHttp("no HTTP"), BackendReplyInvalid, BackendUnavailable),
        (BrokenOff(), BackendUnavailable, BackendUnavailable),
        (PeerLost(), BackendUnavailable, BackendUnavailable),
        (ConnectionPoolError("other"), BackendUnavailable, BackendUnavailable),
        (ConnectionResetError("reset"), BackendUnavailable, BackendUnavailable),
        (OSError("other"), BackendUnavailable, BackendUnavailable),
        (ConnectionRefusedError("refused"), BackendUnavailable, BackendUnavailable),
        (ConnectionAbortedError("aborted"), BackendUnavailable, BackendUnavailable),
        (BrokenPipeError("closed"), BackendUnavailable, BackendUnavailable),
        (PermissionError("firewall"), BackendUnavailable, BackendUnavailable),
    ],
)
def test_a_connection_failure_is_mapped_before_and_during_the_body(
    error: Exception, before: type[BackendFailed], within: type[BackendFailed]
) -> None:
    for mid_reply, meaning in ((False, before), (True, within)):
        failed = failure(error, mid_reply=mid_reply)
        assert isinstance(failed, BackendFailed)
        assert (type(failed), failed.backend) == (meaning, "http://host")


@pytest.mark.parametrize(
    ("status", "headers", "text"), [(429, {"retry-after": "7"}, "later"), (302, {}, "moved")]
)
def test_a_document_is_returned_with_its_status_and_redirects_are_not_followed(
    status: int, headers: dict[str, str], text: str
) -> None:
    routes = router()
    location = {"location": "http://host/y"}
    routes.get("http://host/x").respond(status, text=text, headers={**headers, **location})
    document = WholeResponse(status, text.encode(), headers.get("retry-after", ""))
    assert asyncio.run(mocked(routes).fetch("/x")) == document
