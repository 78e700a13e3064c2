"""HTTP/1.1 to one server, with one exchange at a time on each connection (decision 0013).

    connection = await pool.send(head, body, deadline)       status and headers have arrived
    while chunk := await connection.receive(deadline): ...   the body, as it arrives
    pool.release(connection)                                 reused only if the body was read

httptools (llhttp) parses responses. An exchange of sixteen chunks takes 47 us of CPU time in this
module, 95 us in aiohttp, and 302 us in httpx on aiohttp. This module does not depend on the content
of requests.
"""

import asyncio
import ipaddress
import select
import socket
import ssl
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import TypeVar, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

# llama-server closes idle connections after 5 s. They are closed earlier here, because a request
# would fail on a connection that the server is about to close.
KEEP_ALIVE = 4.0
LOST_SECONDS = 15.0  # default of `backend.lost_seconds`

_HEAD_START = 0.25  # seconds before the next address is tried in parallel
# bytes buffered for a slow reader before the socket is paused (F29)
_MOST_WAITING = 256 * 1024
_LONGEST_HEAD = 64 * 1024  # bytes of a response head
_LINE_MARKS = 4  # bytes of a header line besides its name and value: ": " and CRLF
# offsets in Linux's tcp_info: the number of retransmissions, and milliseconds since the last
# acknowledgment. `acknowledged_within` is no alternative: it would also end the connection to a
# healthy server that is slow to read.
_RETRANSMITS, _LAST_ACK, _TCP_INFO_BYTES = 2, 56, 60


class ConnectionPoolError(Exception):
    """Base class of this module's errors. A passed deadline raises TimeoutError instead."""


class NotReached(ConnectionPoolError):
    """No connection could be opened."""


class BrokenOff(ConnectionPoolError):
    """The connection ended before the end of the response.

    `is_stale`: an earlier exchange has used the connection, and no byte of this response arrived,
    so the server has probably closed the connection while it was idle.

    `is_unread`: the server has not read the whole request. The evidence is a TCP reset. The
    server's kernel sends RST if a connection is closed while it has unread data, even if the
    process dies. For any other closed connection, the kernel sends FIN.
    """

    def __init__(self, *, is_stale: bool = False, is_unread: bool = False) -> None:
        self.is_stale = is_stale
        self.is_unread = is_unread
        super().__init__("the connection ended")


class PeerLost(ConnectionPoolError):
    """The server's host has left the network: it acknowledges no data."""


class NotHttp(ConnectionPoolError):
    """The response is not valid HTTP/1; `sample` is the data that was received last."""

    def __init__(self, problem: str = "", sample: bytes = b"") -> None:
        self.sample = sample
        super().__init__(problem)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a server; `security` is None for connections without TLS."""

    host: str
    port: int
    security: ssl.SSLContext | None = None


class ConnectionPool:
    """The connections to one server; idle connections are reused for `KEEP_ALIVE` seconds.

    A host that acknowledges no data for `lost_seconds` counts as lost.
    """

    def __init__(
        self, endpoint: Endpoint, connect_seconds: float, lost_seconds: float = LOST_SECONDS
    ) -> None:
        self._endpoint = endpoint
        self._connect_seconds = connect_seconds
        self._lost_seconds = lost_seconds
        self._idle: deque[Connection] = deque()
        self._is_closed = False

    async def send(self, head: bytes, body: bytes, deadline: float) -> "Connection":
        """Send a request; wait for the head of the response until `deadline` (event loop time).

        The caller returns the connection with `release`. If the server has closed the idle
        connection that was used, the request is sent once more on a new connection.
        """
        if (connection := self._take()) is not None:
            try:
                await connection.begin(head, body, deadline)
            except BrokenOff as error:
                if not error.is_stale:
                    raise
            else:
                return connection
        connection = await self._open(deadline)
        await connection.begin(head, body, deadline)
        return connection

    def release(self, connection: "Connection") -> None:
        """Keep a connection whose response was read to its end; close any other connection."""
        while self._idle and not self._idle[0].is_reusable:
            self._idle.popleft()
        # closing is also how a generation is canceled: llama-server stops when its stream is closed
        if connection.is_reusable and not self._is_closed:
            connection.close_after(KEEP_ALIVE)
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close the idle connections now, and each connection in use when it is released."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    def _take(self) -> "Connection | None":
        while self._idle:
            # the server is least likely to have closed the connection that was used last
            connection = self._idle.pop()
            if connection.is_reusable and not connection.has_unexpected_data:
                return connection
            connection.close()
        return None

    async def _open(self, deadline: float) -> "Connection":
        loop = asyncio.get_running_loop()
        endpoint = self._endpoint
        try:
            async with asyncio.timeout_at(min(deadline, loop.time() + self._connect_seconds)):
                addresses = await addresses_of(endpoint.host, endpoint.port)
                return await first_connected(addresses, self._connect, Connection.close)
        except TimeoutError as error:
            if loop.time() >= deadline:
                raise
            raise NotReached("no connection within the time limit") from error
        except (OSError, UnicodeError) as error:  # UnicodeError: a label of the name is too long
            raise NotReached(str(error)) from error

    async def _connect(self, address: str) -> "Connection":
        loop, endpoint = asyncio.get_running_loop(), self._endpoint
        name = endpoint.host if endpoint.security is not None else None
        _, connection = await loop.create_connection(
            lambda: Connection(loop, self._lost_seconds),
            address,
            endpoint.port,
            ssl=endpoint.security,
            server_hostname=name,
        )
        return connection


class Connection(asyncio.Protocol):
    """One connection. An exchange starts with `begin` and ends when `receive` returns b"".

    `status` and `header` belong to the latest response. `is_over` is True once the whole response
    has arrived, even if `receive` has not returned all of it yet.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, lost_seconds: float = LOST_SECONDS) -> None:
        self._loop = loop
        self._lost_seconds = lost_seconds
        self._transport: asyncio.Transport | None = None
        self._parser = HttpResponseParser(self)
        self._is_used = False
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._deadline = 0.0
        self._forget()

    def _forget(self) -> None:
        self.status = 0
        self._headers: dict[bytes, bytes] = {}
        self._head_size = 0
        self._has_received = False
        self._has_head = False
        self.is_over = False
        self._keeps_alive = False
        self._chunks: list[bytes] = []
        self._waiting = 0
        self._sink: Callable[[bytes], bool] | None = None
        self._idle = 0.0

    @property
    def is_reusable(self) -> bool:
        """True if another exchange can begin.

        False while received data is unread, because the socket may be paused until it is read.
        """
        is_read = self.is_over and not self._chunks
        return is_read and self._keeps_alive and self._failure is None

    @property
    def has_unexpected_data(self) -> bool:
        """True if the socket has unsolicited data that the event loop has not delivered yet."""
        if self._transport is None:
            return False
        connection: socket.socket = self._transport.get_extra_info("socket")
        if connection.fileno() < 0:  # the socket is closed, and the loop is about to report it
            return True
        if sys.platform == "win32":  # Windows has no `poll`
            return bool(select.select((connection,), (), (), 0)[0])
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        return bool(poll.poll(0))

    def header(self, name: bytes) -> str:
        """Return a header by its lower-case name, "" if it is missing."""
        return self._headers.get(name, b"").decode("latin-1")

    async def begin(self, head: bytes, body: bytes, deadline: float) -> None:
        """Send a request and wait for the head of the response."""
        self._stop_timer()
        self._forget()
        try:
            if self._transport is not None:
                self._transport.writelines((head, body))
            while not self._has_head:
                await self._wait_for_data(deadline)
        except BaseException:
            self.close()  # otherwise the next exchange would read this response
            raise
        self._is_used = True

    async def receive(self, deadline: float) -> bytes:
        """Return more of the body, b"" at its end; raises TimeoutError."""
        while not self._chunks:
            if self.is_over:
                return b""
            await self._wait_for_data(deadline)
        received = b"".join(self._chunks)
        self._chunks.clear()
        if self._waiting > _MOST_WAITING and self._transport is not None:
            self._transport.resume_reading()
        self._waiting = 0
        return received

    def set_sink(self, sink: Callable[[bytes], bool], idle: float) -> None:
        """While `receive` waits, offer each received chunk to `sink`.

        If the sink takes a chunk (returns True), `receive` continues to wait, for up to `idle`
        seconds. A chunk that the sink does not take is returned by `receive`.
        """
        self._sink, self._idle = sink, idle

    def close_after(self, seconds: float) -> None:
        """Close the connection unless it is used within `seconds`."""
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, self.close)

    def close(self) -> None:
        """Close the connection at once, without waiting for the server."""
        self._keeps_alive = False
        self._stop_timer()
        if self._transport is not None:
            self._transport.abort()

    async def _wait_for_data(self, deadline: float) -> None:
        """Wait for more data, or raise the failure of the connection.

        `receive` first returns all data that arrived before the failure.
        """
        if self._failure is not None:
            raise self._failure
        self._deadline = deadline
        if self._timer is None or deadline < self._due:
            self._stop_timer()
            self._set_timer()
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _set_timer(self) -> None:
        """Check the deadline when it is due, and the peer every `lost_seconds` until then."""
        self._due = min(self._deadline, self._loop.time() + self._lost_seconds)
        self._timer = self._loop.call_at(self._due, self._check_deadline)

    def _check_deadline(self) -> None:
        """End the wait if its deadline has passed or the peer is lost; else set the timer again.

        The timer may fire before the deadline, because `_wait_for_data` keeps a running timer if
        the next deadline is later.
        """
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._loop.time() >= self._deadline:
            self._waiter.set_exception(TimeoutError())
        elif self._is_unacknowledged():
            self._fail(PeerLost())
        else:
            self._set_timer()

    def _is_unacknowledged(self) -> bool:
        """Return whether the peer acknowledges no data, although the kernel retransmits it."""
        if sys.platform != "linux" or self._transport is None:
            return False
        connection: socket.socket = self._transport.get_extra_info("socket")
        tcp_info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        quiet = int.from_bytes(tcp_info[_LAST_ACK:_TCP_INFO_BYTES], sys.byteorder) / 1000
        return tcp_info[_RETRANSMITS] > 0 and quiet >= self._lost_seconds

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, failure: Exception) -> None:
        if self._failure is None:
            self._failure = failure
        self._wake()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have these methods without being of this class
        self._transport = cast("asyncio.Transport", transport)
        probe_quiet_peer(transport.get_extra_info("socket"), self._lost_seconds)

    def data_received(self, data: bytes) -> None:
        if self.is_over:  # unsolicited data
            self._fail(NotHttp("data after the response", data))
            self.close()
            return
        self._has_received = True
        known, before = len(self._chunks), self._waiting
        try:  # the parser calls the `on_...` methods below
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail(NotHttp(str(error), data))
            self.close()
        self._waiting += sum(map(len, self._chunks[known:]))
        if before <= _MOST_WAITING < self._waiting and self._transport is not None:
            self._transport.pause_reading()
        if not self._give_to_sink():
            self._wake()

    def _give_to_sink(self) -> bool:
        """Offer the received data to the sink if `receive` waits; return whether it was taken."""
        chunks, waiter = self._chunks, self._waiter
        if self._sink is None or waiter is None or waiter.done():
            return False
        if not chunks or self.is_over or self._failure is not None:
            return False
        # above the limit the socket is paused, and only `receive` resumes it
        if self._waiting > _MOST_WAITING or not self._sink(b"".join(chunks)):
            return False
        chunks.clear()
        self._waiting = 0
        self._deadline = self._loop.time() + self._idle
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """End the response, or fail if it is incomplete.

        A response without a length ends with its connection (RFC 9112, section 6.3).
        """
        self._transport = None
        has_length = b"content-length" in self._headers or b"transfer-encoding" in self._headers
        is_end = exc is None and self._has_head and not has_length
        self._keeps_alive = False
        if self.is_over or is_end:
            self.is_over = True
            self._wake()
        elif isinstance(exc, TimeoutError):  # the kernel's keep-alive probes failed
            self._fail(PeerLost())
        else:
            is_reset = isinstance(exc, ConnectionError)
            is_stale = self._is_used and not self._has_received
            self._fail(BrokenOff(is_stale=is_stale, is_unread=is_reset and not self._has_received))

    def on_message_begin(self) -> None:
        """Refuse a second response to one request."""
        if self.is_over:
            raise ValueError("more than one response")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header; trailers are ignored."""
        self._head_size += len(name) + len(value) + _LINE_MARKS
        if self._head_size > _LONGEST_HEAD:
            raise ValueError("a response head that is too large")
        if not self._has_head:
            self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """Record that the head is complete, unless the response is informational (1xx)."""
        self.status = self._parser.get_status_code()
        self._has_head = self.status >= 200

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        if self._has_head:
            self.is_over = True
            self._keeps_alive = self._parser.should_keep_alive()
        else:
            self._headers.clear()


def probe_quiet_peer(connection: socket.socket | None, seconds: float) -> None:
    """Enable TCP keep-alive, which ends the connection to a lost peer after about `seconds`.

    Applied to a listening socket, the setting is inherited by the sockets that it accepts.
    """
    if connection is None or not hasattr(socket, "TCP_KEEPIDLE"):  # as on macOS
        return
    idle, pause = max(1, int(seconds / 2)), max(1, int(seconds / 6))
    count = max(1, int((seconds - idle) / pause))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_KEEPIDLE, idle),
        (socket.TCP_KEEPINTVL, pause),
        (socket.TCP_KEEPCNT, count),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def acknowledged_within(seconds: float) -> list[tuple[int, int, int]]:
    """Return socket options that close a connection with unacknowledged data (Linux).

    The connection is closed after `seconds`. This includes the connection to a healthy peer that
    reads no data for that long.
    """
    if not hasattr(socket, "TCP_USER_TIMEOUT"):
        return []
    return [(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(seconds * 1000))]


Connected = TypeVar("Connected")


async def addresses_of(host: str, port: int) -> list[str]:
    """Resolve a name; an address resolves to itself. Raises OSError and UnicodeError.

    Each name is resolved in a separate thread, and all requests that wait for the name share this
    lookup. uvloop's own lookups are not used: they share four threads, and a lookup takes 10 s if
    the name server does not answer. So requests to one server would delay requests to all other
    servers (F109).
    """
    try:
        ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return [host]
    if (lookup := _lookups.get(host)) is None:
        lookup = _lookups[host] = Future()
        resolving = Thread(target=_resolve, args=(host, port, lookup), daemon=True)
        resolving.start()
    return await asyncio.shield(asyncio.wrap_future(lookup))


_lookups: dict[str, Future[list[str]]] = {}  # the lookups in progress, by name


def _resolve(host: str, port: int, lookup: Future[list[str]]) -> None:
    try:
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        _lookups.pop(host, None)
        lookup.set_exception(error)
    else:
        _lookups.pop(host, None)  # later requests see a changed address
        lookup.set_result(list(dict.fromkeys(str(entry[4][0]) for entry in entries)))


async def first_connected(
    addresses: list[str],
    connect: Callable[[str], Coroutine[None, None, Connected]],
    drop: Callable[[Connected], None],
) -> Connected:
    """Connect to the first address that accepts (RFC 8305); `drop` closes surplus connections.

    While an attempt waits for an answer, the next address is tried after `_HEAD_START` seconds.
    (uvloop's `create_connection` tries the next address only after a failure.) If all addresses
    fail, raises the OSError of the first failed attempt.
    """
    if len(addresses) == 1:
        return await connect(addresses[0])
    untried, failures = deque(addresses), list[BaseException]()
    running: set[asyncio.Task[Connected]] = set()
    try:
        while untried or running:
            if untried:
                running.add(asyncio.create_task(connect(untried.popleft())))
            timeout = _HEAD_START if untried else None
            done, running = await asyncio.wait(
                running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
            )
            connected = [task for task in done if task.exception() is None]
            for task in connected[1:]:
                drop(task.result())
            if connected:
                return connected[0].result()
            failures += [failure for task in done if (failure := task.exception())]
    finally:
        for task in running:
            task.add_done_callback(lambda ended: _drop_unused(ended, drop))
            task.cancel()
    raise failures[0]


def _drop_unused(ended: asyncio.Task[Connected], drop: Callable[[Connected], None]) -> None:
    """Drop a connection that was opened before the cancellation of its attempt took effect."""
    if not ended.cancelled() and ended.exception() is None:
        drop(ended.result())
