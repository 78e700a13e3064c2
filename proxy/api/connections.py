"""Connection limits that uvicorn lacks, against slow clients and too many clients.

uvicorn waits for a request's head for ever, accepts heads of any length, and keeps an answer that
nobody reads. This module knows nothing of a request's content.
"""

import asyncio
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from proxy.api.client_connection import WIRE
from proxy.api.errors import error_response
from proxy.dialects.front import Problem

_MOST_HEADERS = 200
_HEAD_BYTES = 64 * 1024
_KIND = "invalid_request_error"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How long clients may take, in seconds, and how many connections there may be.

    A head has to arrive within `head_seconds`. A client that reads nothing of a waiting answer for
    `stall_seconds` is disconnected.
    """

    head_seconds: float = 10.0
    most: int = 2048
    stall_seconds: float = 60.0


DEFAULT_LIMITS = ConnectionLimits()


class HeadTooLarge(ValueError):
    """A head has too many headers, or too long ones."""


class _Cork:
    """Stands in for a transport for a moment, to send several writes as one."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, piece: bytes) -> None:
        self.written.append(piece)

    def close(self) -> None:
        self.is_closed = True


class RequestWire:
    """The `Wire` of one request on a connection."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = weakref.ref(cycle)  # whose scope holds this
        self._transport = cycle.transport
        self._on_leave: Callable[[], None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the whole answer was sent."""
        cycle = self._cycle()
        return cycle is None or cycle.response_complete

    @property
    def is_gone(self) -> bool:
        cycle = self._cycle()
        return cycle is None or cycle.disconnected

    def watch(self, on_leave: Callable[[], None] | None) -> None:
        self._on_leave = on_leave
        cycle = self._cycle()
        if on_leave is not None and cycle is not None:
            cycle.flow.resume_reading()  # which a long body may have paused

    def notice_end(self) -> None:
        """Report to the watcher that the connection has ended."""
        if self._on_leave is not None:
            self._on_leave()

    @property
    def is_writable(self) -> bool:
        cycle = self._cycle()
        if cycle is None:
            return False
        is_open = not (cycle.disconnected or cycle.response_complete or cycle.flow.write_paused)
        return is_open and cycle.chunked_encoding is True

    @property
    def has_whole_body(self) -> bool:
        cycle = self._cycle()
        return cycle is not None and not cycle.more_body

    def cork(self) -> None:
        if (cycle := self._cycle()) is not None:
            cycle.transport = cast("asyncio.Transport", _Cork())

    def uncork(self) -> None:
        cycle = self._cycle()
        if cycle is None or not isinstance(cork := cycle.transport, _Cork):
            return
        cycle.transport = self._transport
        if cork.written:
            self._transport.write(b"".join(cork.written))
        if cork.is_closed:
            self._transport.close()

    def write(self, body: bytes) -> None:
        """Write a part, in chunked transfer coding."""
        self._transport.write(b"%x\r\n%b\r\n" % (len(body), body))


class GuardedConnection(HttpToolsProtocol):
    """One client's connection; use `limit_connections` to set its limits."""

    limits = DEFAULT_LIMITS
    _deadline: asyncio.TimerHandle | None = None
    _head_size = 0
    _stall: asyncio.TimerHandle | None = None
    _unsent = 0
    _wires: Sequence[RequestWire] = ()  # of one request, or of more that were sent at once

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a client, or refuse it if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.most:
            problem = "Too many connections are open (server.max_connections): try again soon."
            self._turn_away(Problem(503, "server_error", problem, headers={"retry-after": "5"}))
        else:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadlines."""
        self._stop_expecting()
        self._stop_looking()
        super().connection_lost(exc)
        for wire in self._wires:
            wire.notice_end()
        self._wires = ()

    def pause_writing(self) -> None:
        """Start to check that the client reads: its buffer is full."""
        super().pause_writing()
        self._look_again()

    def resume_writing(self) -> None:
        """Stop checking: the client has read enough."""
        self._stop_looking()
        super().resume_writing()

    def on_message_begin(self) -> None:
        """Start the deadline of a head."""
        super().on_message_begin()
        self._head_size = 0
        self._expect_head()

    def on_url(self, url: bytes) -> None:
        """Count the bytes of the target."""
        super().on_url(url)
        self._grow(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header and its bytes."""
        super().on_header(name, value)
        self._grow(len(name) + len(value))

    def on_headers_complete(self) -> None:
        """End the head's deadline: bodies have their own."""
        self._stop_expecting()
        super().on_headers_complete()
        if getattr(self.cycle, "scope", None) is self.scope:  # it may be none of ours
            wire = RequestWire(self.cycle)
            self._wires = [*(one for one in self._wires if not one.is_over), wire]
            self.scope["extensions"] = {WIRE: {"wire": wire}}

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid HTTP and request smuggling with the usual error body."""
        self._turn_away(Problem(400, _KIND, f"{msg} Its head may also be too large."))

    def _grow(self, size: int) -> None:
        self._head_size += size
        if self._head_size > _HEAD_BYTES or len(self.headers) > _MOST_HEADERS:
            raise HeadTooLarge  # which the parser passes on as an invalid request

    def _expect_head(self) -> None:
        self._stop_expecting()
        self._deadline = self.loop.call_later(self.limits.head_seconds, self._give_up)

    def _stop_expecting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _look_again(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(self.limits.stall_seconds, self._cut_off_if_stalled)

    def _stop_looking(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _cut_off_if_stalled(self) -> None:
        """End a connection whose client reads nothing."""
        if self.transport.get_write_buffer_size() < self._unsent:
            self._look_again()
        else:
            self.transport.abort()  # closing would wait until it has read the rest

    def _give_up(self) -> None:
        seconds = self.limits.head_seconds
        problem = f"No whole request arrived within {seconds:g} s (server.header_seconds)."
        self._turn_away(Problem(408, _KIND, problem, "request_timeout"))

    def _turn_away(self, problem: Problem) -> None:
        self._stop_expecting()
        if self.transport.is_closing():
            return
        answer = error_response(problem, {})
        headers = [*answer.raw_headers, (b"connection", b"close")]
        lines = b"".join(b"%s: %s\r\n" % header for header in headers)
        self.transport.write(
            b"HTTP/1.1 %d \r\n%s\r\n%s" % (problem.status, lines, bytes(answer.body))
        )
        self.transport.close()


def limit_connections(limits: ConnectionLimits) -> type[GuardedConnection]:
    """Make the class of connections with these limits, for uvicorn's `http`."""

    class Limited(GuardedConnection):
        """A connection with these limits."""

    Limited.limits = limits
    return Limited
