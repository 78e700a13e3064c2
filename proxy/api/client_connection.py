"""One request's connection to its client: what was sent, and whether the client is still there.

The edge makes it once for each request, so nothing else has to wrap `send`.
"""

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, cast

from starlette.types import Message, Receive, Scope, Send

if TYPE_CHECKING:  # another server may run us
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

Headers: TypeAlias = list[tuple[bytes, bytes]]

WIRE = "temper.wire"  # the name of an ASGI extension, see `Wire`
CLIENT_LEFT = "the client has left"
_GONE: Message = {"type": "http.disconnect"}
_HEADERS = "temper.headers"


def headers_of(scope: Scope) -> Mapping[str, str]:
    """Return a request's headers by lower-case name; if one is repeated, the first counts.

    They are parsed once: starlette's `Headers` walk through all of them for each name.
    """
    found: Mapping[str, str] | None = scope.get(_HEADERS)
    if found is None:
        found = scope[_HEADERS] = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in reversed(scope["headers"])
        }
    return found


def with_headers(scope: Scope, headers: Headers) -> Scope:
    """Return a copy of a request with other headers."""
    copied = {**scope, "headers": headers}
    copied.pop(_HEADERS, None)
    return copied


class _Cork:
    """Stands in for a transport for a moment, to send several writes as one."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, piece: bytes) -> None:
        self.written.append(piece)

    def close(self) -> None:
        self.is_closed = True


class Wire:
    """What our own server offers for a request beyond ASGI."""

    def __init__(self, cycle: "RequestResponseCycle") -> None:
        self._cycle = weakref.ref(cycle)  # whose scope holds this
        self._transport = cycle.transport
        self._on_leave: Callable[[], None] | None = None

    @property
    def is_over(self) -> bool:
        cycle = self._cycle()
        return cycle is None or cycle.response_complete

    @property
    def is_gone(self) -> bool:
        """Whether the client has disconnected."""
        cycle = self._cycle()
        return cycle is None or cycle.disconnected

    def watch(self, on_leave: Callable[[], None] | None) -> None:
        """Call `on_leave` when the client disconnects; None removes the callback."""
        self._on_leave = on_leave
        cycle = self._cycle()
        if on_leave is not None and cycle is not None:
            cycle.flow.resume_reading()  # which a long body may have paused

    def notice_end(self) -> None:
        """Note that the connection is lost; uvicorn notes it only for the latest request."""
        cycle = self._cycle()
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if self._on_leave is not None:
            self._on_leave()

    @property
    def is_writable(self) -> bool:
        """Whether an answer has begun and its client reads fast enough."""
        cycle = self._cycle()
        if cycle is None:
            return False
        is_open = not (cycle.disconnected or cycle.response_complete or cycle.flow.write_paused)
        return is_open and cycle.chunked_encoding is True

    @property
    def has_whole_body(self) -> bool:
        """Whether the whole request body has arrived."""
        cycle = self._cycle()
        return cycle is not None and not cycle.more_body

    def cork(self) -> None:
        """Buffer output until `uncork`, because a client wakes up for each write."""
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

    def break_off(self) -> None:
        """Close the connection after what was written, so that the response has no end."""
        if (cycle := self._cycle()) is not None:
            cycle.disconnected = True  # else uvicorn reports an application that forgot the end
        self._transport.close()

    def write(self, body: bytes) -> None:
        """Write a part of the body at once, in chunked coding, while the wire is writable."""
        self._transport.write(b"%x\r\n%b\r\n" % (len(body), body))


class ClientConnection:
    """Reads one request and sends its answer.

    `has_begun` and `is_over` say how far the answer is; `status` is its HTTP status, 0 before it
    begins. `is_cancelled` means that an operator ended it, which counts as a client that left.
    `refusal` is the message of the error that was the answer, "" where there was none.
    `own_headers` are added to the answer's headers. `wire` is None behind another server than ours.
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

    def behind(
        self, receive: Receive | None = None, send: Send | None = None
    ) -> "ClientConnection":
        """Make a connection for middleware that replaces `receive` or `send`; see `serve`."""
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
        """Whether our own server runs the request: it cancels requests when it stops."""
        return self.wire is not None

    async def receive(self) -> Message:
        """Receive an ASGI message; `http.disconnect` if the client has left."""
        if self.is_disconnected:
            return _GONE
        self._waiting = asyncio.current_task()  # a local would make a reference cycle
        try:
            return await self._receive()
        except asyncio.CancelledError:
            if not self.departure or self._waiting is None or self._waiting.uncancel():
                raise  # cancelled for another reason
            return _GONE
        finally:
            self._waiting = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.has_begun = True
            if own := self.own_headers:
                written = message["headers"]
                message["headers"] = [*written, *(one for one in own if one not in written)]
            await self._send(message)
        else:
            await self._send(message)
            self.is_over = not message.get("more_body", False)

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": raw})

    async def write(self, body: bytes) -> None:
        """Send a part of the body that is not the last."""
        await self.send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self, body: bytes = b"") -> None:
        await self.send({"type": "http.response.body", "body": body, "more_body": False})

    def break_off(self) -> None:
        """Leave the response without an end, so that its client takes it for broken.

        Other servers than ours close a connection whose application has not ended its response.
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
        """Send a whole JSON answer; sets its length and type."""
        own = {"content-length": str(len(body)), "content-type": "application/json"}
        self.cork()
        try:
            await self.start(status, {**headers, **own})
            await self.end(body)
        finally:
            self.uncork()

    def cancel(self) -> None:
        """End the request for an operator, as if its client had left."""
        self.is_cancelled = True
        self._leave("an operator has ended the request")

    async def while_connected(self, work: Awaitable[None]) -> bool:
        """Await `work`, but cancel it if the client leaves; return whether it finished.

        The request's body must have been read before.
        """
        working = self._waiting = asyncio.current_task()
        assert working is not None  # noqa: S101 - of a coroutine that runs
        stop_watching = self._watch()
        try:
            await work
        except asyncio.CancelledError:
            if not self.departure or working.uncancel():  # cancelled for another reason
                raise
            return False
        finally:
            self._waiting = None
            stop_watching()
        return True

    def _watch(self) -> Callable[[], object]:
        """Cancel the work when the client leaves; return a function that stops watching."""
        loop = asyncio.get_running_loop()
        if self.departure or (self.wire is not None and self.wire.is_gone):
            # only when the work first waits: work that needs no waiting still finishes
            return loop.call_soon(self._leave, self.departure or CLIENT_LEFT).cancel
        if self.wire is None:
            return loop.create_task(self._listen()).cancel
        self.wire.watch(partial(self._leave, CLIENT_LEFT))
        return partial(self.wire.watch, None)

    async def _listen(self) -> None:
        """Wait for ASGI's disconnect message, under somebody else's server."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave(CLIENT_LEFT)

    def _leave(self, reason: str) -> None:
        self.departure = reason
        if self._waiting is not None:
            self._waiting.cancel(reason)


Endpoint: TypeAlias = Callable[[ClientConnection], Awaitable[None]]
