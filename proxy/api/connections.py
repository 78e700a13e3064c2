"""Connection limits that uvicorn lacks, against slow clients and too many clients.

uvicorn waits for a request's head for ever, accepts heads of any length, and keeps an answer that
nobody reads. This module knows nothing of a request's content.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from proxy import bounds
from proxy.api.client_connection import WIRE, Wire
from proxy.api.errors import error_response
from proxy.dialects.front import Problem

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


class GuardedConnection(HttpToolsProtocol):
    """One client's connection; use `limit_connections` to set its limits."""

    limits = DEFAULT_LIMITS
    _deadline: asyncio.TimerHandle | None = None
    _head_size = 0
    _stall: asyncio.TimerHandle | None = None
    _unsent = 0
    _wires: Sequence[Wire] = ()  # of one request, or of more that were sent at once

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a client, or refuse it if there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.most:
            problem = "Too many connections are open (server.max_connections): try again soon."
            self._turn_away(Problem(503, "server_error", problem, headers={"retry-after": "5"}))
        else:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        _stop(self._deadline, self._stall)
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
        _stop(self._stall)
        super().resume_writing()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_size = 0
        self._expect_head()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._grow(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._grow(len(name) + len(value))

    def on_headers_complete(self) -> None:
        """End the head's deadline: bodies have their own."""
        _stop(self._deadline)
        super().on_headers_complete()
        if getattr(self.cycle, "scope", None) is self.scope:  # it may be none of ours
            wire = Wire(self.cycle)
            self._wires = [*(one for one in self._wires if not one.is_over), wire]
            self.scope["extensions"] = {WIRE: {"wire": wire}}

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid HTTP and request smuggling with the usual error body."""
        most = f"{bounds.HEAD_BYTES} bytes or {bounds.HEADERS} lines"
        self._turn_away(Problem(400, _KIND, f"{msg} Or its head has more than {most}."))

    def _grow(self, size: int) -> None:
        self._head_size += size
        if self._head_size > bounds.HEAD_BYTES or len(self.headers) > bounds.HEADERS:
            raise HeadTooLarge  # which the parser passes on as an invalid request

    def _expect_head(self) -> None:
        _stop(self._deadline)
        self._deadline = self.loop.call_later(self.limits.head_seconds, self._give_up)

    def _look_again(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(self.limits.stall_seconds, self._cut_off_if_stalled)

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
        _stop(self._deadline)
        if self.transport.is_closing():
            return
        answer = error_response(problem, {})
        headers = [*answer.raw_headers, (b"connection", b"close")]
        lines = b"".join(b"%s: %s\r\n" % header for header in headers)
        self.transport.write(
            b"HTTP/1.1 %d \r\n%s\r\n%s" % (problem.status, lines, bytes(answer.body))
        )
        self.transport.close()


def _stop(*timers: asyncio.TimerHandle | None) -> None:
    for timer in timers:
        if timer is not None:
            timer.cancel()


def limit_connections(limits: ConnectionLimits) -> type[GuardedConnection]:
    """Make the class of connections with these limits, for uvicorn's `http`."""

    class Limited(GuardedConnection):
        """A connection with these limits."""

    Limited.limits = limits
    return Limited
