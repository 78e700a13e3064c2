"""Adds connection limits to uvicorn, and sends an error only between two responses (RFC 9112).

uvicorn waits for a request's head without a timeout, accepts heads of any length, buffers a
response that is never read, reads a body that is not used, and responds to an invalid request in
the middle of the previous response. The subclasses of this module correct that. They do not
interpret paths or bodies of requests.

A connection is in one of these states:

    head      no response is in progress; from its first byte on, the next head has a deadline
    body      a request body is read; this module limits the bytes of chunk framing, and the
              application limits the body's size and time
    response  a response is in progress; further requests wait in uvicorn's pipeline, up to a bound
    refused   input is ignored; the error follows after the responses that are in progress
    draining  the last response was sent: input is dropped until the client closes (RFC 9112, 9.6)

A connection is drained before it is closed. If a connection is closed with unread input, the kernel
resets it, and the client could lose the response.

An `Upgrade` header is ignored, as RFC 9110, 7.8 allows. For example, the HTTP client of the JDK
requests HTTP/2 with its first request. httptools 0.9 does not read the body of an upgrade request,
so the body would be lost, or be parsed as the next request. The head of such a request is therefore
parsed a second time, without the `Upgrade` header.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import NoReturn, cast

import httptools
from uvicorn._types import ASGI3Application, ASGISendEvent
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from proxy import bounds
from proxy.api.client_connection import WIRE, Wire
from proxy.api.errors import error_response
from proxy.api.half_closed import DepartureCheck
from proxy.api.request_head import RequestRefused, check_head
from proxy.dialects.dialect import Problem

_KIND = "invalid_request_error"
_HEAD_TOO_LARGE = Problem(
    400, _KIND, f"The head exceeds {bounds.HEAD_BYTES} bytes or {bounds.HEADERS} header lines."
)
_NO_TUNNEL = Problem(
    405,
    _KIND,
    "CONNECT is not supported: Temper is not a forward proxy.",
    headers={"allow": "GET, POST"},
)
# a draining connection is closed after so much time without input (nginx: lingering_timeout)
_QUIET_SECONDS = 5.0
_UPGRADE = b"upgrade"
# an interim response: a client that waits for its response ignores it (RFC 9110, 15.2)
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Timeouts in seconds, and the maximum number of connections.

    A head must arrive within `head_seconds`. A client that reads nothing of a response for
    `stall_seconds` is disconnected. After the last response of a connection, further input is
    dropped for at most `drain_seconds`.
    """

    head_seconds: float = 10.0
    most: int = 2048
    stall_seconds: float = 60.0
    drain_seconds: float = 30.0


DEFAULT_LIMITS = ConnectionLimits()


class GuardedConnection(HttpToolsProtocol):
    """One client's connection; use `limit_connections` to set its limits."""

    limits = DEFAULT_LIMITS
    flow: "_Flow"
    _deadline: asyncio.TimerHandle | None = None
    _stall: asyncio.TimerHandle | None = None
    _departure: DepartureCheck | None = None
    _unsent = 0
    _wires: Sequence[Wire] = ()  # of all requests whose response is not complete
    _latest: RequestResponseCycle | None = None  # the request whose head was completed last
    _running: "_Cycle | None" = None  # the request that is answered now, or was answered last
    # The bytes since the end of the last head or message. If the read that contained this end
    # contained further bytes, they are not counted, so the count is never too high.
    _received = 0
    _body_size = 0
    _head_size = 0
    _head_lines = 0
    _is_in_head = False
    _upgrade: Sequence[tuple[bytes, bytes]] = ()  # header lines that are hidden from the parser
    _ignores_input = False
    _is_draining = False
    _is_retiring = False
    _dropped = 0
    _refusal: Problem | None = None  # sent after the responses in progress
    _cause: Problem | None = None  # the error that a callback of the parser has raised

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a client, or refuse it if there are too many."""
        super().connection_made(transport)
        self.flow = _Flow(transport)
        if len(self.connections) > self.limits.most:
            problem = "Too many connections are open (server.max_connections): try again soon."
            self._write(Problem(503, "server_error", problem, headers={"retry-after": "5"}))
            self._ignores_input = True
            transport.close()  # not drained, because draining would keep the connection open
        else:
            self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        _stop(self._deadline, self._stall)
        if self._departure is not None:
            self._departure.stop()
            self._departure = None
        super().connection_lost(exc)
        for wire in self._wires:
            wire.record_disconnect()
        self._wires = ()

    def data_received(self, data: bytes) -> None:
        if self._ignores_input:
            self._drop(len(data))
            return
        self._received += len(data)
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        if not self._ignores_input:  # this may have changed, because `_parse` can refuse a request
            self._check_progress()

    def _parse(self, data: bytes) -> None:
        """Parse input; the head of an upgrade request is parsed again, without `Upgrade`."""
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                (head_end,) = upgrade.args
                data = self._head_without_upgrade() + data[head_end:]
                # The old parser would parse nothing after a request of HTTP/1.0, or after a request
                # with "Connection: close".
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            else:
                return

    def _head_without_upgrade(self) -> bytes:
        self._upgrade = [header for header in self.headers if header[0] == _UPGRADE]
        version = self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != _UPGRADE]
        return b"\r\n".join((*lines, b"", b""))

    def _check_progress(self) -> None:
        """Limit the size of an unfinished head or body; start the deadline of a head."""
        if self._latest is not None and self._latest.more_body:
            # Chunk sizes, chunk extensions and trailers are not passed to the application, so its
            # limit on the body's size does not count them (F74). Together, they may be as long as
            # the body plus a constant. This is generous, because some clients send many small
            # chunks.
            if self._received - 2 * self._body_size > bounds.FRAMING_BYTES:
                problem = "The body has too many bytes of chunk framing. Send larger chunks."
                self._refuse(Problem(413, _KIND, problem))
        elif self._received > bounds.HEAD_BYTES:
            self._refuse(_HEAD_TOO_LARGE)
        elif self._deadline is None and not self._is_answering:
            self._expect_head()

    def eof_received(self) -> bool | None:  # type: ignore[override] # asyncio's signature
        """Keep the connection if the client half-closes it after its last request.

        The client may also have disconnected, so it is probed. The probe is an interim response,
        which a client of HTTP/1.0 does not understand (RFC 9110, 15.2). Therefore, such a client
        counts as disconnected.
        """
        latest = self._latest
        if latest is None or latest.more_body or not self._is_answering:
            return None
        if latest.scope["http_version"] == "1.0":
            return None
        if self._is_in_head:
            self._refuse(Problem(400, _KIND, "The request is incomplete."))
        else:
            latest.keep_alive = False
        self._departure = DepartureCheck(self.transport, self._probe)
        self._departure.start()
        return True

    def pause_writing(self) -> None:
        """Start to check that the client still reads, because the write buffer is full."""
        super().pause_writing()
        self._watch_stall()

    def resume_writing(self) -> None:
        """Stop the check, because the client has read enough."""
        _stop(self._stall)
        super().resume_writing()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_size = self._head_lines = 0
        self._is_in_head = True

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count_head_bytes(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_lines += 1
        self._count_head_bytes(len(name) + len(value))
        if self._is_in_head:
            super().on_header(name, value)
        # otherwise it is a trailer, which must not become a header (RFC 9110, 6.5.1)

    def on_headers_complete(self) -> None:
        """Validate the head and stop its timer; the application limits the time of the body."""
        if self.parser.should_upgrade():
            if self.parser.get_method() == b"CONNECT":
                self._fail(_NO_TUNNEL)
            return  # `_parse` parses the head again
        self.headers += self._upgrade
        self._upgrade = ()
        try:
            check_head(self.url, self.headers, self.parser.get_http_version())
        except RequestRefused as refused:
            self._fail(refused.problem)
        if len(self.pipeline) >= bounds.PIPELINED:  # uvicorn has no limit for queued requests
            problem = (
                f"More than {bounds.PIPELINED} requests are pipelined. Wait for responses first."
            )
            self._fail(Problem(429, "rate_limit_error", problem))
        super().on_headers_complete()
        _stop(self._deadline)
        self._deadline = None
        self._is_in_head = False
        self._received = self._body_size = 0
        if self.pipeline:  # read no more until the waiting requests are answered
            self.flow.is_held = True
        # the scopes differ if uvicorn has refused an upgrade
        if getattr(self.cycle, "scope", None) is self.scope:
            self._latest = self.cycle
            wire = Wire(self.cycle)
            self._wires = [*(open_ for open_ in self._wires if not open_.is_over), wire]
            if self._is_retiring:
                self.cycle.keep_alive = False
            self.scope["extensions"] = {WIRE: {"wire": wire}}

    def on_body(self, body: bytes) -> None:
        self._body_size += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._received = 0
        if self._latest is not None and not self.parser.should_keep_alive():
            # a "Connection: close" in a trailer also makes llhttp parse no further request
            self._latest.keep_alive = False

    def on_response_complete(self) -> None:
        """Start the next request, or end the connection if no more input can be read.

        An error is written only in the next iteration of the event loop, because the last bytes of
        the response may still be in the buffer of `Wire.cork`.
        """
        running = self._running
        if running is not None and running.is_last:
            # RFC 9112, 9.6: requests after "close" must not be processed
            self._ignores_input = True
            self._refusal = None
            self.pipeline.clear()
        if self._refusal is None and len(self.pipeline) <= 1:
            self.flow.is_held = False
        super().on_response_complete()
        if self._running is not running or self.transport.is_closing():
            return
        if self._ignores_input:
            self.loop.call_soon(self._finish)
        elif self._is_in_head:
            self._expect_head()

    def shutdown(self) -> None:
        if self._is_draining:  # the refused request never completes, but uvicorn would wait for it
            self.transport.close()
        elif not self._is_retiring:
            super().shutdown()

    def retire(self, idle_seconds: float) -> None:
        """End the connection after its next response, or after `idle_seconds` without a request.

        If the connection were closed at once, a request that is on its way would be lost. If the
        head of a response was already sent, it has promised that the connection stays open, so one
        more request is answered.
        """
        self._is_retiring = True
        self.timeout_keep_alive = idle_seconds  # type: ignore[assignment] # of uvicorn's timer
        latest = self._latest
        if latest is not None and not latest.response_complete:
            if not latest.response_started:
                latest.keep_alive = False
        elif not (self._is_in_head or self._ignores_input):
            _stop(self._deadline)
            self._deadline = None
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                idle_seconds, self.timeout_keep_alive_handler
            )

    def send_400_response(self, msg: str) -> None:
        """Refuse invalid HTTP and request smuggling with an error body."""
        self._refuse(self._cause or Problem(400, _KIND, msg))

    @property
    def _is_answering(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        cycle.__class__ = _Cycle  # uvicorn offers no hook to replace the class
        self._running = cast("_Cycle", cycle)
        super()._start_asgi_task(cycle, app)

    def _count_head_bytes(self, size: int) -> None:
        self._head_size += size
        if self._head_size > bounds.HEAD_BYTES or self._head_lines > bounds.HEADERS:
            self._fail(_HEAD_TOO_LARGE)

    def _fail(self, problem: Problem) -> NoReturn:
        """Stop the parser; uvicorn then calls `send_400_response`."""
        self._cause = problem
        raise RequestRefused(problem)

    def _expect_head(self) -> None:
        self._unset_keepalive_if_required()
        self._deadline = self.loop.call_later(self.limits.head_seconds, self._time_out_head)

    def _time_out_head(self) -> None:
        if self._running is not None and not self._is_in_head:
            self.transport.close()  # only line breaks arrived, so there is no request to answer
            return
        seconds = self.limits.head_seconds
        problem = f"No complete request arrived within {seconds:g} s (server.header_seconds)."
        self._refuse(Problem(408, _KIND, problem, "request_timeout"))
        self.transport.close()  # the client sends nothing, so there is nothing to drain

    def _refuse(self, problem: Problem) -> None:
        """Stop reading, and send an error in place of the response to the current request."""
        self._ignores_input = True
        self._refusal = problem
        _stop(self._deadline)
        cycle = self._latest
        if cycle is not None and cycle.more_body and not self._is_in_head:
            # the invalid body belongs to a request that may be waiting or running
            if cycle is self._running:
                self._running = None
                for wire in self._wires:
                    wire.record_disconnect()
            else:
                self.pipeline.popleft()
            if cycle.response_started:  # the client would read the error as bytes of the body
                self._refusal = None
        if self._is_answering:
            self.flow.is_held = True
            self.flow.pause_reading()
        else:
            self._finish()

    def _finish(self) -> None:
        """Send the pending error, and drop further input."""
        if self.transport.is_closing() or self._is_draining:
            return
        if self._refusal is not None:
            self._write(self._refusal)
        self._unset_keepalive_if_required()
        self._is_draining = True
        if self._departure is not None or not self.transport.can_write_eof():
            self.transport.close()  # nothing to drain, because the client has finished sending
            return
        try:
            self.transport.write_eof()
        except OSError:  # the client has reset the connection, which asyncio notices later
            self.transport.abort()
            return
        self.flow.is_held = False
        self.flow.resume_reading()
        self._drain_until(self.loop.time() + self.limits.drain_seconds)

    def _drain_until(self, end: float) -> None:
        """Drop input until none arrives for `_QUIET_SECONDS`, or until the loop's time is `end`.

        After that, the connection is closed. Before it is closed, asyncio sends the output that is
        still buffered.
        """
        before = self._dropped

        def check() -> None:
            if self._dropped == before or self.loop.time() >= end:
                self.transport.close()
            else:
                self._drain_until(end)

        seconds = min(_QUIET_SECONDS, self.limits.drain_seconds)
        self._deadline = self.loop.call_later(seconds, check)

    def _drop(self, size: int) -> None:
        self._dropped += size
        if self._dropped > bounds.DROPPED_BYTES and self._is_draining:
            # without this limit, a client could send at full speed for all of `drain_seconds`
            self.transport.abort()

    def _write(self, problem: Problem) -> None:
        """Write an error without uvicorn, which has no cycle for an unparsed request."""
        answer = error_response(problem, {})
        headers = [*answer.raw_headers, (b"connection", b"close")]
        lines = b"".join(b"%s: %s\r\n" % header for header in headers)
        self.transport.write(
            b"HTTP/1.1 %d \r\n%s\r\n%s" % (problem.status, lines, bytes(answer.body))
        )

    def _probe(self) -> None:
        """Send bytes that a client ignores while it waits for a response."""
        cycle = self._running
        # no probe if no response is pending, or within the output that `Wire.cork` buffers
        if cycle is None or cycle.transport is not self.transport or cycle.response_complete:
            return
        if not cycle.response_started:
            self.transport.write(_CONTINUE)
        else:
            cycle.pad_chunk()

    def _watch_stall(self) -> None:
        self._unsent = self.transport.get_write_buffer_size()
        self._stall = self.loop.call_later(self.limits.stall_seconds, self._cut_off_if_stalled)

    def _cut_off_if_stalled(self) -> None:
        """End the connection of a client that reads nothing."""
        if self.transport.get_write_buffer_size() < self._unsent:
            self._watch_stall()
        else:
            # not `close`, which would wait until the client has read the remaining output
            self.transport.abort()


class _Cycle(RequestResponseCycle):
    """A request and its response; if its body was not read, the connection ends with the response.

    The head of such a response says so (`Connection: close`).
    """

    is_last = False
    _is_padded = False

    # not a coroutine function, which would create one more coroutine for each chunk of a stream
    def send(self, message: ASGISendEvent) -> Coroutine[object, object, None]:
        if self.more_body and not self.response_started:
            return self._start_last_response(message)
        return RequestResponseCycle.send(self, message)

    def pad_chunk(self) -> None:
        """Send a leading zero of the next chunk's size, as a probe (RFC 9112, 7.1).

        Only one zero is sent per response, because Go reads at most 16 digits of a size.
        """
        if self.chunked_encoding and self.scope["method"] != "HEAD" and not self._is_padded:
            self._is_padded = True
            self.transport.write(b"0")

    async def _start_last_response(self, message: ASGISendEvent) -> None:
        """Start a response before the body has arrived; its head says that it is the last."""
        self.is_last = True
        self.keep_alive = False
        await super().send(message)
        self.keep_alive = True  # with False, uvicorn would close at once and reset the connection


class _Flow(FlowControl):
    """Flow control; while it `is_held`, nothing is read, and a disconnect is not noticed."""

    is_held = False

    def resume_reading(self) -> None:
        if self.read_paused and not self.is_held:
            super().resume_reading()


def _stop(*timers: asyncio.TimerHandle | None) -> None:
    for timer in timers:
        if timer is not None:
            timer.cancel()


def limit_connections(limits: ConnectionLimits) -> type[GuardedConnection]:
    """Return a connection class with these limits, because uvicorn takes a class, not a factory."""
    return type("Limited", (GuardedConnection,), {"limits": limits})
