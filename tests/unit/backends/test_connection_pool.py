import asyncio
import errno
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable

import pytest

from benchmarks.faults.toxics import STREAM_HEAD, Caller
from proxy.backends import connection_pool as pool
from proxy.backends.connection_pool import (
    BrokenOff,
    Connection,
    ConnectionPool,
    Endpoint,
    addresses_of,
    first_connected,
)
from tests.fakes.connections import (
    HEAD,
    OK,
    SOON,
    SkippingLoop,
    exchange,
    later,
    play,
    read,
    send,
)
from tests.fakes.raw_backend import RawBackend, Script, raw_backend


def sends(*pieces: bytes) -> Script:
    async def script(caller: Caller) -> None:
        while await caller.request():
            for piece in pieces:
                await caller.send(piece)

    return script


def sends_once(*pieces: bytes) -> Script:
    async def script(caller: Caller) -> None:
        await caller.request()
        for piece in pieces:
            await caller.send(piece)

    return script


@pytest.mark.parametrize("cut", range(1, 50))
def test_a_response_received_in_pieces_of_any_size_is_parsed(cut: int) -> None:
    async def run(connections: ConnectionPool, backend: RawBackend) -> None:
        assert await exchange(connections) == (200, b"okay")

    sent = STREAM_HEAD + b"2\r\nok\r\n2\r\nay\r\n0\r\nx-trailer: 1\r\n\r\n"
    backend = play(run, sends(*(sent[at : at + cut] for at in range(0, len(sent), cut))))
    assert backend.requests == [HEAD + b"{}"]


def test_status_and_headers_are_returned() -> None:
    async def run(connections: ConnectionPool, backend: RawBackend) -> None:
        connection = await send(connections)
        assert connection.status == 429
        assert (connection.header(b"retry-after"), connection.header(b"x-other")) == ("\xe9", "")
        assert not connection.is_over

    play(run, sends(b"HTTP/1.1 429 No\r\nRetry-After: \xe9\r\ncontent-length: 9\r\n\r\n"))


def test_an_informational_response_is_skipped() -> None:
    async def run(connections: ConnectionPool, backend: RawBackend) -> None:
        assert await exchange(connections) == (200, b"ok")
        assert await exchange(connections) == (200, b"ok")

    informational = b"HTTP/1.1 103 Early\r\ncontent-length: 7\r\n\r\n"
    assert play(run, sends(informational, OK)).connections == 1


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async def run(connections: ConnectionPool, backend: RawBackend) -> None:
        assert await exchange(connections) == (200, b"okay")
        assert await exchange(connections) == (200, b"ok")

    backend = play(run, sends_once(b"HTTP/1.0 200 OK\r\n\r\nok", b"ay"), sends(OK))
    assert backend.connections == 2


@pytest.mark.parametrize(
    "piece", [b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", STREAM_HEAD + b"9\r\nok"]
)
def test_data_received_before_the_connection_broke_is_returned_before_the_error(
    piece: bytes,
) -> None:
    async def run(connections: ConnectionPool, backend: RawBackend) -> None:
        connection = await send(connections)
        assert await connection.receive(later()) == b"ok"
        with pytest.raises(BrokenOff):
            await connection.receive(later())
        with pytest.raises(BrokenOff):
            await connection.receive(later())

    play(run, sends_once(piece))


@pytest.mark.parametrize(
    "data",
    [
        b"220 smtp.example.org\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000 + b"\r\n",
        b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nabc",
    ],
)
def test_a_response_that_is_not_http_is_an_error(data: bytes) -> None:
    async def waits_for_the_end(caller: Caller) -> None:
        await caller.request()
        await caller.send(data)
        await caller.wait_for_disconnect()

    async def run(connections: ConnectionPool, backend: RawBackend) -> None:
        with pytest.raises(pool.NotHttp) as raised:
            await send(connections)
        assert raised.value.sample in data
        assert raised.value.sample

    play(run, waits_for_the_end)


@pytest.mark.parametrize("more", [OK, b"garbage"])
def test_an_unrequested_response_is_never_used_for_the_next_request(more: bytes) -> None:
    async def run(connections: ConnectionPool, backend: RawBackend) -> None:
        assert await exchange(connections) == (200, b"ok")
        assert await exchange(connections) == (200, b"2!")

    backend = play(run, sends(OK + more), sends(OK.replace(b"ok", b"2!")))
    assert backend.connections == 2


@pytest.mark.parametrize("is_in_event_loop", [True, False], ids=["delivered", "not delivered yet"])
def test_an_idle_connection_that_receives_data_is_dropped(is_in_event_loop: bool) -> None:
    callers: list[Caller] = []
    hung_up = asyncio.Event()

    async def sends_unrequested_data(caller: Caller) -> None:
        callers.append(caller)
        await caller.request()
        await caller.send(OK)
        await caller.wait_for_disconnect()
        hung_up.set()

    async def run(connections: ConnectionPool, backend: RawBackend) -> None:
        connection = await send(connections)
        await read(connection)
        connections.release(connection)
        callers[0].writer.write(OK)
        # the data is in the socket soon; the event loop reads it in its next iteration
        while not connection.has_unexpected_data:
            pass
        if is_in_event_loop:
            await hung_up.wait()
        assert await exchange(connections) == (200, b"2!")

    play(run, sends_unrequested_data, sends(OK.replace(b"ok", b"2!")))


def test_a_connection_closed_while_idle_is_replaced() -> None:
    async def run(connections: ConnectionPool, backend: RawBackend) -> None:
        assert await exchange(connections) == (200, b"ok")
        assert await exchange(connections) == (200, b"ok")

    async def closes_on_second_request(caller: Caller) -> None:
        await caller.request()
        await caller.send(OK)
        await caller.request()

    backend = play(run, closes_on_second_request, sends(OK))
    assert (backend.connections, len(backend.requests)) == (2, 3)


def test_releasing_an_unread_response_closes_its_connection() -> None:
    async def run(connections: ConnectionPool, backend: RawBackend) -> None:
        connection = await send(connections)
        assert await connection.receive(later()) == b": hello\n\n"
        connections.release(connection)
        await closed.wait()

    closed = asyncio.Event()

    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.send(STREAM_HEAD)
        await caller.send_chunk(b": hello\n\n")
        await caller.wait_for_disconnect()
        closed.set()

    play(run, script)


def test_canceling_send_closes_the_connection() -> None:
    received, closed = asyncio.Event(), asyncio.Event()

    async def script(caller: Caller) -> None:
        await caller.request()
        received.set()
        await caller.wait_for_disconnect()
        closed.set()

    async def run(connections: ConnectionPool, backend: RawBackend) -> None:
        sending = asyncio.create_task(send(connections))
        await received.wait()
        sending.cancel()
        await closed.wait()
        with pytest.raises(asyncio.CancelledError):
            await sending

    play(run, script)


def test_releasing_a_connection_to_a_closed_pool_closes_it() -> None:
    closed = asyncio.Event()

    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.send(OK)
        await caller.wait_for_disconnect()
        closed.set()

    async def run(connections: ConnectionPool, backend: RawBackend) -> None:
        connection = await send(connections)
        await read(connection)
        connections.close()
        connections.release(connection)
        await closed.wait()

    play(run, script)


def test_an_idle_connection_is_closed_after_keep_alive() -> None:
    closed = asyncio.Event()

    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.send(OK)
        await caller.wait_for_disconnect()
        closed.set()

    async def run(connections: ConnectionPool, backend: RawBackend) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SkippingLoop)
        await exchange(connections)
        await loop.skip(pool.KEEP_ALIVE)
        await closed.wait()
        assert await exchange(connections) == (200, b"ok")

    assert play(run, script, sends(OK)).connections == 2


def test_each_call_of_receive_has_a_separate_deadline() -> None:
    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.send(STREAM_HEAD)
        await caller.send_chunk(b"1")
        await caller.wait_for_disconnect()

    async def run(connections: ConnectionPool, backend: RawBackend) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SkippingLoop)
        connection = await send(connections, later(600))
        assert await connection.receive(later(100)) == b"1"
        await loop.skip(200)  # no deadline applies between two calls of `receive`
        waiting = asyncio.create_task(connection.receive(later(500)))
        await loop.skip(400)
        assert not waiting.done()
        waiting.cancel()
        waiting = asyncio.create_task(connection.receive(later(50)))
        await loop.skip(100)
        with pytest.raises(TimeoutError):
            await waiting

    play(run, script)


def test_a_slow_reader_pauses_the_server() -> None:
    piece, pieces = b"x" * 65536, 400
    sent = 0

    async def script(caller: Caller) -> None:
        nonlocal sent
        await caller.request()
        await caller.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (len(piece) * pieces))
        for _ in range(pieces):
            await caller.send(piece)
            sent += 1
        await caller.request()

    async def run(connections: ConnectionPool, backend: RawBackend) -> None:
        connection = await send(connections)
        before = -1
        while before < sent:
            before = sent
            for _ in range(50):
                await asyncio.sleep(0)
        assert sent < pieces
        assert len(await read(connection)) == len(piece) * pieces

    play(run, script)


class RecordingTransport(asyncio.Transport):
    """A transport without a peer; records whether it is paused and whether it was closed."""

    def __init__(self, connection: socket.socket | None = None) -> None:
        super().__init__({"socket": connection})
        self.is_paused = False
        self.is_over = False

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        del list_of_data

    def pause_reading(self) -> None:
        self.is_paused = True

    def abort(self) -> None:
        self.is_over = True


async def test_a_connection_with_unread_data_is_not_reused() -> None:
    """Reading from its socket may be paused, and then the next request would wait forever."""
    size = 300 * 1024
    transport = RecordingTransport()
    loop = asyncio.get_running_loop()
    connection = Connection(loop)
    connection.connection_made(transport)
    loop.call_soon(
        connection.data_received,
        b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size,
    )
    await connection.begin(HEAD, b"{}", later())
    assert connection.is_over
    assert transport.is_paused
    assert not connection.is_reusable
    ConnectionPool(Endpoint("127.0.0.1", 1), SOON).release(connection)
    assert transport.is_over


class ScriptedSocket(socket.socket):
    """A socket whose TCP_INFO has the given retransmits and time since the last acknowledgment."""

    retransmits, quiet_ms = 0, 0

    def getsockopt(  # type: ignore[override]
        self, level: int, option: int, length: int = 0
    ) -> bytes:
        del level, option
        info = bytearray(length)
        info[2] = self.retransmits
        info[56:60] = self.quiet_ms.to_bytes(4, sys.byteorder)
        return bytes(info)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports unacknowledged data")
@pytest.mark.parametrize(
    ("retransmits", "quiet_ms", "error"),
    [
        (3, 20_000, pool.PeerLost),
        (3, 1_000, TimeoutError),  # the last acknowledgment is recent
        (0, 60_000, TimeoutError),  # all data is acknowledged, so the host is reachable
    ],
)
def test_a_peer_that_acknowledges_no_data_is_lost_before_the_deadline(
    retransmits: int, quiet_ms: int, error: type[Exception]
) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SkippingLoop)
        with ScriptedSocket() as fake_socket:
            fake_socket.retransmits, fake_socket.quiet_ms = retransmits, quiet_ms
            transport = RecordingTransport(fake_socket)
            connection = Connection(loop, lost_seconds=10)
            connection.connection_made(transport)
            asking = asyncio.create_task(connection.begin(HEAD, b"{}", later(600)))
            for _ in range(3):
                await loop.skip(11)
            assert asking.done() is (error is pool.PeerLost)
            await loop.skip(600)
            with pytest.raises(error):
                await asking

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(run())


async def test_a_peer_that_answers_no_keepalive_probe_is_lost() -> None:
    connection = Connection(asyncio.get_running_loop())
    connection.connection_made(RecordingTransport())
    asking = asyncio.create_task(connection.begin(HEAD, b"{}", later(600)))
    await asyncio.sleep(0)
    connection.connection_lost(TimeoutError(errno.ETIMEDOUT, "timed out"))
    with pytest.raises(pool.PeerLost):
        await asking


@pytest.mark.skipif(not hasattr(socket, "TCP_KEEPIDLE"), reason="macOS has other option names")
@pytest.mark.parametrize("seconds", [0.5, 2, 15, 60])
def test_keepalive_probes_end_within_the_limit(seconds: float) -> None:
    with socket.socket() as sock:
        pool.probe_quiet_peer(sock, seconds)
        names = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        idle, pause, count = (sock.getsockopt(socket.IPPROTO_TCP, name) for name in names)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert idle + pause * count <= max(seconds, 2)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has 127.0.0.2, and drops packets")
async def test_the_second_address_is_used_if_the_first_drops_packets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with raw_backend(sends(OK)) as backend:
        second_address, port = backend.address
        addresses = ["127.0.0.2", second_address]
        entries = [(socket.AF_INET, 0, 0, "", (address, port)) for address in addresses]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_names, **_options: entries)
        with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
            deaf.bind(("127.0.0.2", port))
            deaf.listen(0)
            for filling in (first, second):  # fill the backlog, so that packets are dropped
                filling.setblocking(False)
                filling.connect_ex(("127.0.0.2", port))
            connections = ConnectionPool(Endpoint("two.invalid", port), SOON)
            assert await exchange(connections) == (200, b"ok")
            connections.close()


def test_chunks_go_to_the_sink_until_it_declines_a_chunk() -> None:
    async def run(connections: ConnectionPool, backend: RawBackend) -> None:
        connection, offered = await send(connections), list[bytes]()

        def takes(body: bytes) -> bool:
            offered.append(body)
            go_on.release()
            return body != b"c"

        assert await connection.receive(later()) == b"a"
        connection.set_sink(takes, SOON)
        go_on.release()
        assert await connection.receive(later()) == b"c"
        assert offered == [b"b", b"c"]
        assert await connection.receive(later()) == b"d"  # the last chunk never goes to the sink
        assert await connection.receive(later()) == b""
        assert offered == [b"b", b"c"]
        connections.release(connection)
        assert await exchange(connections) == (200, b"ok")
        assert offered == [b"b", b"c"]

    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.send(STREAM_HEAD + b"1\r\na\r\n")
        for piece in (b"1\r\nb\r\n", b"1\r\nc\r\n", b"1\r\nd\r\n0\r\n\r\n"):
            await go_on.acquire()  # all earlier data has been read
            await caller.send(piece)
        await caller.request()
        await caller.send(STREAM_HEAD + b"2\r\nok\r\n0\r\n\r\n")

    go_on = asyncio.Semaphore(0)
    play(run, script)


def test_a_sink_that_accepts_a_chunk_extends_the_deadline() -> None:
    async def run(connections: ConnectionPool, backend: RawBackend) -> None:
        connection = await send(connections)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SkippingLoop)
        taken = asyncio.Event()

        def takes(body: bytes) -> bool:
            taken.set()
            return True

        connection.set_sink(takes, 100)
        waiting = asyncio.create_task(connection.receive(later(50)))
        await loop.skip(40)
        go_on.set()
        await taken.wait()
        await loop.skip(60)
        assert not waiting.done()
        await loop.skip(60)
        with pytest.raises(TimeoutError):
            await waiting
        connections.release(connection)

    go_on = asyncio.Event()

    async def script(caller: Caller) -> None:
        await caller.request()
        await caller.send(STREAM_HEAD)
        await go_on.wait()
        await caller.send(b"1\r\na\r\n")
        await caller.wait_for_disconnect()

    play(run, script)


Attempt = Callable[[], Awaitable[str]]


class Addresses:
    """Scripted connection attempts; records the attempted, dropped and canceled addresses."""

    def __init__(self, **attempts: Attempt) -> None:
        self.attempts = attempts
        self.tried: list[str] = []
        self.dropped: list[str] = []
        self.given_up: list[str] = []

    async def connect(self, address: str) -> str:
        self.tried.append(address)
        try:
            return await self.attempts[address]()
        except asyncio.CancelledError:
            self.given_up.append(address)
            raise

    async def first(self) -> str:
        return await first_connected([*self.attempts], self.connect, self.dropped.append)


async def connected() -> str:
    return "good"


async def refused() -> str:
    raise ConnectionRefusedError("nobody there")


async def unreachable() -> str:
    raise OSError("no route")


async def hanging() -> str:
    await asyncio.Event().wait()
    return "never"


async def connects_when_canceled() -> str:
    """Return a connection although the attempt was canceled."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "late"
    return "never"


async def test_one_connection_is_dropped_if_two_connection_attempts_succeed() -> None:
    both = asyncio.Event()

    async def together() -> str:
        both.set() if addresses.tried == ["a", "b"] else None
        await both.wait()
        return "good"

    addresses = Addresses(a=together, b=together)
    assert await addresses.first() == "good"
    assert addresses.dropped == ["good"]
    known_addresses = Addresses(a=connects_when_canceled, b=connected)
    assert await known_addresses.first() == "good"
    for _ in range(3):
        await asyncio.sleep(0)
    assert known_addresses.dropped == ["late"]


async def test_canceling_stops_every_connection_attempt() -> None:
    addresses = Addresses(a=hanging, b=refused)
    waiting = asyncio.create_task(addresses.first())
    for _ in range(3):
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    await asyncio.sleep(0)
    assert addresses.given_up == ["a"]


@pytest.mark.parametrize(
    ("attempts", "tried", "given_up"),
    [
        ({"a": connected, "b": connected}, ["a"], []),
        ({"a": refused, "b": unreachable, "c": connected}, ["a", "b", "c"], []),
        ({"a": hanging, "b": connected}, ["a", "b"], ["a"]),
    ],
)
def test_the_first_address_that_accepts_a_connection_is_used(
    attempts: dict[str, Attempt], tried: list[str], given_up: list[str]
) -> None:
    addresses = Addresses(**attempts)
    assert asyncio.run(addresses.first()) == "good"
    assert (addresses.tried, addresses.given_up) == (tried, given_up)


def test_if_all_addresses_fail_the_error_of_the_first_address_is_raised() -> None:
    with pytest.raises(ConnectionRefusedError):
        asyncio.run(Addresses(a=refused, b=unreachable).first())


@pytest.mark.parametrize(
    ("endpoint", "seconds", "deadline", "error"),
    [
        (Endpoint("x" * 64 + ".invalid", 1), SOON, SOON, pool.NotReached),
        (Endpoint("no-such-host.invalid", 1), SOON, SOON, pool.NotReached),
        (Endpoint("127.0.0.1", 1), -1, SOON, pool.NotReached),
        (Endpoint("127.0.0.1", 1), SOON, SOON, pool.NotReached),
        (Endpoint("127.0.0.1", 1), SOON, None, TimeoutError),
    ],
    ids=["a label that is too long", "no such name", "no time", "refused", "past the deadline"],
)
async def test_a_connection_that_cannot_be_opened_is_an_error(
    endpoint: Endpoint, seconds: float, deadline: float | None, error: type[Exception]
) -> None:
    until = later(deadline) if deadline is not None else 0.0
    with pytest.raises(error):
        await ConnectionPool(endpoint, seconds).send(b"", b"", until)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
async def test_each_address_of_a_host_is_listed_once(host: str) -> None:
    addresses = await addresses_of(host, 1)
    assert len(addresses) == len({*addresses})
    assert addresses == [host] or "127.0.0.1" in addresses


@pytest.mark.fault("F109")
async def test_lookups_of_an_unanswered_host_name_share_one_thread_and_delay_no_other_lookups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolve, answers, resolved = socket.getaddrinfo, threading.Event(), list[object]()

    def resolve_late(host: str, port: int, **options: int) -> list[object]:
        resolved.append(host)
        if host == "silent.invalid":
            answers.wait()
        return [*resolve("127.0.0.1", port, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve_late)
    waiting = [asyncio.create_task(addresses_of("silent.invalid", 1)) for _ in range(40)]
    await asyncio.sleep(0)
    assert await addresses_of("engine.invalid", 1) == ["127.0.0.1"]
    waiting[0].cancel()
    answers.set()
    assert await asyncio.gather(*waiting[1:]) == [["127.0.0.1"]] * 39
    assert resolved == ["silent.invalid", "engine.invalid"]
    await addresses_of("silent.invalid", 1)  # the address may have changed
    assert resolved[2:] == ["silent.invalid"]
