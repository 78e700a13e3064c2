"""The connection of one request to its client: reads, writes, and detects disconnects.

The edge creates a `ClientConnection` for each request. The connection records the status and the
progress of the response, so that no other code has to wrap ASGI's `send` to learn them.
"""

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

from starlette.types import Message, Receive, Scope, Send

if TYPE_CHECKING:  # not imported at runtime: another ASGI server may run Temper without uvicorn
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

Headers: TypeAlias = list[tuple[bytes, bytes]]

WIRE = "temper.wire"  # the name of an ASGI extension, see `Wire`
CLIENT_LEFT = "the client has disconnected"
_DISCONNECT: Message = {"type": "http.disconnect"}
_HEADERS = "temper.headers"


def headers_of(scope: Scope) -> Mapping[str, str]:
    """Return a request's headers by lower-case name; if a header is repeated, its first value.

    The result is cached in the scope, because starlette's `Headers` would search all headers for
    each name.
    """
    headers: Mapping[str, str] | None = scope.get(_HEADERS)
    if headers is None:
        headers = scope[_HEADERS] = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in reversed(scope["headers"])
        }
    return headers


def with_headers(scope: Scope, headers: Headers) -> Scope:
    """Return a copy of a request with other headers."""
    copied = {**scope, "headers": headers}
    copied.pop(_HEADERS, None)  # the cache of `headers_of` contains the previous headers
    return copied


class _Cork:
    """Replaces a transport temporarily, so that several writes are one system call and packet."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def close(self) -> None:
        self.is_closed = True


class Wire:
    """Direct access to the connection, an ASGI extension of Temper's own server."""

    def __init__(self, cycle: "RequestResponseCycle") -> None:
        # weak, because the cycle refers to this wire through its scope
        self._cycle = weakref.ref(cycle)
        self._transport = cycle.transport
        self._on_disconnect: Callable[[], None] | None = None

    @property
    def is_over(self) -> bool:
        cycle = self._cycle()
        return cycle is None or cycle.response_complete

    @property
    def is_gone(self) -> bool:
        """True if the client has disconnected."""
        cycle = self._cycle()
        return cycle is None or cycle.disconnected

    def watch(self, on_disconnect: Callable[[], None] | None) -> None:
        """Call `on_disconnect` when the client disconnects; None removes the callback."""
        self._on_disconnect = on_disconnect
        cycle = self._cycle()
        if on_disconnect is not None and cycle is not None:
            cycle.flow.resume_reading()  # reading may be paused since a long body arrived

    def record_disconnect(self) -> None:
        """Mark the request as disconnected; uvicorn marks only a connection's latest request."""
        cycle = self._cycle()
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # otherwise uvicorn logs an incomplete response
            cycle.message_event.set()
        if self._on_disconnect is not None:
            self._on_disconnect()

    @property
    def is_writable(self) -> bool:
        """True if `write` may be called: a chunked response has begun, and the client reads it."""
        cycle = self._cycle()
        if cycle is None:
            return False
        is_open = not (cycle.disconnected or cycle.response_complete or cycle.flow.write_paused)
        return is_open and cycle.chunked_encoding is True

    @property
    def has_whole_body(self) -> bool:
        """True if the whole request body has arrived."""
        cycle = self._cycle()
        return cycle is not None and not cycle.more_body

    def cork(self) -> None:
        """Buffer output until `uncork`, because each separate write would wake the client."""
        if (cycle := self._cycle()) is not None:
            cycle.transport = cast("asyncio.Transport", _Cork())

    def uncork(self) -> None:
        cycle = self._cycle()
        if cycle is None or not isinstance(cork := cycle.transport, _Cork):
            return
        cycle.transport = self._transport
        if cork.writes:
            self._transport.write(b"".join(cork.writes))
        if cork.is_closed:
            self._transport.close()

    def break_off(self) -> None:
        """Close the connection after the buffered output was sent, without ending the response."""
        if (cycle := self._cycle()) is not None:
            cycle.disconnected = True  # otherwise uvicorn logs an incomplete response
        self._transport.close()

    def write(self, body: bytes) -> None:
        """Write a part of the body directly, in chunked coding; only while `is_writable`."""
        self._transport.write(b"%x\r\n%b\r\n" % (len(body), body))


class ClientConnection:
    """Reads one request and sends its response.

    `has_begun` and `is_over` are the progress of the response. `status` is its HTTP status, 0
    before the response begins. `departure` is the reason of a disconnect, "" while the client is
    connected. `is_cancelled` means that an operator ended the request, which counts as a
    disconnect. `refusal` is the message of an error response, "" for other responses. `own_headers`
    are added to the response. `wire` is None under another ASGI server.
    """

    __slots__ = (
        "_receive", "_send", "_waiting", "departure", "has_begun", "is_cancelled",
        "is_over", "own_headers", "refusal", "scope", "status", "wire",
    )  # fmt: skip

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, own_headers: Headers | None = None
    ) -> None:
        self.scope = scope
        self.has_begun = False
        self.is_over = False
        self.is_cancelled = False
        self.status = 0
        self.refusal = ""
        self.departure = ""
        self._receive = receive
        self._send = send
        self.own_headers = own_headers or []
        self._waiting: asyncio.Task[object] | None = None
        extensions = scope.get("extensions")
        self.wire: Wire | None = (
            extensions[WIRE]["wire"] if extensions and WIRE in extensions else None
        )

    def wrap(self, receive: Receive | None = None, send: Send | None = None) -> "ClientConnection":
        """Return a connection with another `receive` or `send`, for middleware; see `edge.serve`.

        Middleware passes the result to the endpoint. Both connections have the same scope, and
        therefore the same wire.
        """
        return ClientConnection(self.scope, receive or self.receive, send or self.send)

    @property
    def owner(self) -> str:
        """The name of the key's owner, "" if no key is needed."""
        owner: str = self.scope["state"].get("owner", "")
        return owner

    @property
    def is_disconnected(self) -> bool:
        return bool(self.departure)

    @property
    def is_of_own_server(self) -> bool:
        """True if Temper's own server runs the request; it cancels open requests when it stops."""
        return self.wire is not None

    async def receive(self) -> Message:
        """Receive an ASGI message; `http.disconnect` after the client has disconnected."""
        if self.is_disconnected:
            return _DISCONNECT
        # not a local variable, because the task would then refer to itself (a reference cycle)
        self._waiting = asyncio.current_task()
        try:
            return await self._receive()
        except asyncio.CancelledError:
            if not self.departure or self._waiting is None or self._waiting.uncancel():
                raise  # the task was canceled for a reason other than a disconnect
            return _DISCONNECT
        finally:
            self._waiting = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            # set before sending: even if sending fails, no second head may be sent
            self.has_begun = True
            if added := self.own_headers:
                headers = message["headers"]
                message["headers"] = [*headers, *(pair for pair in added if pair not in headers)]
            await self._send(message)
        else:
            await self._send(message)
            self.is_over = not message.get("more_body", False)

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": raw})

    async def write(self, body: bytes) -> None:
        """Send a part of the body; `end` sends the last part."""
        await self.send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self, body: bytes = b"") -> None:
        await self.send({"type": "http.response.body", "body": body, "more_body": False})

    def break_off(self) -> None:
        """Close the connection without ending the response, so that the client sees a failure.

        Under another ASGI server, this method does nothing: such a server closes the connection if
        the application does not end its response.
        """
        if self.wire is not None:
            self.wire.break_off()

    @property
    def has_whole_body(self) -> bool:
        return self.wire is not None and self.wire.has_whole_body

    def cork(self) -> None:
        if self.wire is not None:
            self.wire.cork()

    def uncork(self) -> None:
        if self.wire is not None:
            self.wire.uncork()

    async def respond(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send a whole JSON response; sets its length and type."""
        defaults = {"content-length": str(len(body)), "content-type": "application/json"}
        self.cork()
        try:
            await self.start(status, {**headers, **defaults})
            await self.end(body)
        finally:
            self.uncork()

    def cancel(self) -> None:
        """End the request on behalf of an operator, as if the client had disconnected."""
        self.is_cancelled = True
        self._mark_disconnected("an operator has canceled the request")

    async def while_connected(self, work: Awaitable[None]) -> bool:
        """Await `work`, but cancel it when the client disconnects; return whether it finished.

        The request's body must have been read before, because `_listen` would drop its messages.
        """
        task = self._waiting = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        stop_watching = self._watch()
        try:
            await work
        except asyncio.CancelledError:
            if not self.departure or task.uncancel():  # not canceled by a disconnect
                raise
            return False
        finally:
            self._waiting = None
            stop_watching()
        return True

    def _watch(self) -> Callable[[], object]:
        """Cancel the work when the client disconnects; return a function that stops watching."""
        loop = asyncio.get_running_loop()
        if self.departure or (self.wire is not None and self.wire.is_gone):
            # the callback cancels the work when it first waits; work that never waits still
            # finishes
            return loop.call_soon(self._mark_disconnected, self.departure or CLIENT_LEFT).cancel
        if self.wire is None:
            return loop.create_task(self._listen()).cancel
        self.wire.watch(partial(self._mark_disconnected, CLIENT_LEFT))
        return partial(self.wire.watch, None)

    async def _listen(self) -> None:
        """Wait for ASGI's disconnect message, under another server."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._mark_disconnected(CLIENT_LEFT)

    def _mark_disconnected(self, reason: str) -> None:
        self.departure = reason
        if self._waiting is not None:
            self._waiting.cancel(reason)


Endpoint: TypeAlias = Callable[[ClientConnection], Awaitable[None]]
