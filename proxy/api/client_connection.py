"""One request's connection to its client: what was sent on it, and whether anybody is still there.

It is made once, at the edge, and everybody asks it; nobody else wraps `send` to find out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias

from starlette.types import Message, Receive, Scope, Send

Headers: TypeAlias = list[tuple[bytes, bytes]]

WIRE = "temper.wire"  # the name of an ASGI extension, see `Wire`
CLIENT_LEFT = "the client has left"
ENDED_BY_OPERATOR = "an operator has ended the request"  # which counts as if it had left
_GONE: Message = {"type": "http.disconnect"}


class Wire(Protocol):
    """What our own server tells and does for a request, beside ASGI."""

    @property
    def is_gone(self) -> bool:
        """Whether the client has gone."""

    @property
    def has_whole_body(self) -> bool:
        """Whether all of the request's body has come."""

    def watch(self, on_leave: Callable[[], None] | None) -> None:
        """Call something when the client goes, from now on; None for nothing any more."""

    def cork(self) -> None:
        """Hold what is sent back until `uncork`: a client wakes up for each piece that it gets."""

    def uncork(self) -> None:
        """Let out in one piece what was held back."""

    @property
    def is_writable(self) -> bool:
        """Whether an answer has begun, and the client has taken enough of it for more."""

    def write(self, body: bytes) -> None:
        """Write a part of the body at once, while the wire is writable."""


class ClientConnection:
    """What a request is read from and its answer is sent through.

    `has_begun` and `is_over` say how far the answer is, `status` is the one it began with. With
    `is_cancelled` an operator wants it to end; its client is treated as if it had left. The answer
    gets `own_headers` besides those that it has.
    """

    __slots__ = (
        "_receive",
        "_send",
        "_waiting",
        "_wire",
        "departure",
        "has_begun",
        "is_cancelled",
        "is_over",
        "own_headers",
        "scope",
        "status",
    )

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, own_headers: Headers | None = None
    ) -> None:
        self.scope = scope
        self.has_begun = False
        self.is_over = False
        self.is_cancelled = False
        self.status = 0
        self.departure = ""
        self._receive = receive
        self._send = send
        self.own_headers = own_headers or []
        self._waiting: asyncio.Task[object] | None = None
        extensions = scope.get("extensions")
        self._wire: Wire | None = (
            extensions[WIRE]["wire"] if extensions and WIRE in extensions else None
        )

    def behind(
        self, receive: Receive | None = None, send: Send | None = None
    ) -> "ClientConnection":
        """Make one for somebody between the client and those who answer; see `serve`."""
        return ClientConnection(self.scope, receive or self.receive, send or self.send)

    @property
    def request_id(self) -> str:
        """The id that answers and logs carry."""
        own: str = self.scope["state"]["request_id"]
        return own

    @property
    def owner(self) -> str:
        """Whose key was sent, "" where nobody needs one."""
        owner: str = self.scope["state"].get("owner", "")
        return owner

    @property
    def has_left(self) -> bool:
        """Whether the client has gone, as far as somebody has looked."""
        return bool(self.departure)

    @property
    def is_of_own_server(self) -> bool:
        """Whether our own server has it, which cancels what it does not wait for any longer."""
        return self._wire is not None

    @property
    def is_writable(self) -> bool:
        """Whether a part of the body can be written at once, see `write_now`."""
        wire = self._wire
        return wire is not None and wire.is_writable

    def write_now(self, body: bytes) -> None:
        """Write a part of the body past everybody, while the connection is writable."""
        assert self._wire is not None  # noqa: S101 - it was writable
        self._wire.write(body)

    async def receive(self) -> Message:
        """Receive what the client sends, or that it is gone."""
        if self.has_left:
            return _GONE
        self._waiting = asyncio.current_task()  # in no local: its error would refer to it
        try:
            return await self._receive()
        except asyncio.CancelledError:
            if not self.departure or self._waiting is None or self._waiting.uncancel():
                raise  # somebody else wants an end
            return _GONE
        finally:
            self._waiting = None

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
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
        """Send the head of an answer."""
        raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": raw})

    async def write(self, body: bytes) -> None:
        """Send a part of the body, behind which there is more."""
        await self.send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self, body: bytes = b"") -> None:
        """Send the rest of the body."""
        await self.send({"type": "http.response.body", "body": body, "more_body": False})

    @property
    def has_whole_body(self) -> bool:
        """Whether nothing of the request's body has to be waited for, as far as that is known."""
        return self._wire is not None and self._wire.has_whole_body

    def cork(self) -> None:
        """Hold what is sent back until `uncork`, where that is possible."""
        if self._wire is not None:
            self._wire.cork()

    def uncork(self) -> None:
        if self._wire is not None:
            self._wire.uncork()

    async def respond(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send a whole answer of JSON."""
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
        self._leave(ENDED_BY_OPERATOR)

    async def while_connected(self, work: Awaitable[None]) -> bool:
        """Do some work, but cancel it as soon as the client has gone; tells whether it was done.

        The request's body must have been read before.
        """
        working = self._waiting = asyncio.current_task()
        assert working is not None  # noqa: S101 - of a coroutine that runs
        stop_watching = self._watch()
        try:
            await work
        except asyncio.CancelledError:
            if not self.departure or working.uncancel():  # somebody else wants an end
                raise
            return False
        finally:
            self._waiting = None
            stop_watching()
        return True

    def _watch(self) -> Callable[[], object]:
        """Have the work cancelled when the client leaves; returns what ends that."""
        loop = asyncio.get_running_loop()
        if self.departure or (self._wire is not None and self._wire.is_gone):
            # as soon as the work waits for something: what needs no waiting is done all the same
            return loop.call_soon(self._leave, self.departure or CLIENT_LEFT).cancel
        if self._wire is None:
            return loop.create_task(self._listen()).cancel
        self._wire.watch(self._note_departure)
        return self._stop_watching

    def _stop_watching(self) -> None:
        assert self._wire is not None  # noqa: S101 - it was watched
        self._wire.watch(None)

    async def _listen(self) -> None:
        """Wait until the client has gone, where only ASGI's messages tell."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._note_departure()

    def _note_departure(self) -> None:
        self._leave(CLIENT_LEFT)

    def _leave(self, reason: str) -> None:
        self.departure = reason
        if self._waiting is not None:
            self._waiting.cancel(reason)


Endpoint: TypeAlias = Callable[[ClientConnection], Awaitable[None]]
