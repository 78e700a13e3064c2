"""Ends requests before their time, and tells clients so: for an operator, or with the server.

What answers requests stops all work when its client goes. An operator's wish is told to it as if
the client had left, and the client gets an error where it has seen nothing yet, or the end of what
it has seen. A server that ends cancels what it does not wait for any longer: without a word from
here, the client would be told of a bug and the log hold a traceback, although nothing is wrong.
"""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.api.errors import describe, error_response
from proxy.api.streaming import ENDED_BY_OPERATOR
from proxy.errors import RequestCancelled, ServerStopped

DEPARTURE = "departure"  # the name under which a request's state holds its `CancelScope`
_FAREWELL_SECONDS = 1.0  # a client may not be reading
_GONE: Message = {"type": "http.disconnect", "reason": ENDED_BY_OPERATOR}


class CancelScope:
    """The two ends of one connection, of which the client's may be said to be gone."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._listening: asyncio.Task[object] | None = None
        self.has_begun = False
        self.is_complete = False
        self.is_cancelled = False

    def leave(self) -> None:
        """Say that the client is gone."""
        self.is_cancelled = True
        if self._listening is not None:
            self._listening.cancel(ENDED_BY_OPERATOR)

    async def receive(self) -> Message:
        """Receive what the client sends, or that it is gone."""
        if self.is_cancelled:
            return _GONE
        self._listening = asyncio.current_task()  # in no local: its error would refer to it
        try:
            return await self._receive()
        except asyncio.CancelledError as cut:
            if cut.args != (ENDED_BY_OPERATOR,) or self._listening is None:
                raise
            if self._listening.uncancel():
                raise
            return _GONE
        finally:
            self._listening = None

    async def send(self, message: Message) -> None:
        """Send a part of the answer, noting how far it has come."""
        await self._send(message)
        self.has_begun = True
        self.is_complete = message["type"] == "http.response.body" and not message.get("more_body")


class Cancellable:
    """ASGI middleware: lets an operator end what it serves; see `CancelScope`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        departure = CancelScope(receive, send)
        scope["state"][DEPARTURE] = departure
        try:
            await self._app(scope, departure.receive, departure.send)
        finally:
            scope["state"].pop(DEPARTURE, None)  # which refers back to the scope
        if not departure.is_cancelled or departure.is_complete:
            return
        if departure.has_begun:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            await error_response(describe(RequestCancelled()), scope)(scope, receive, send)


class Stoppable:
    """ASGI middleware, the outermost: a cancelled request ends in good order."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection; nothing is behind it that a cancellation would have to reach."""
        has_begun = False

        async def noting(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except asyncio.CancelledError:
            if scope["type"] != "http" or has_begun:
                return
            refusal = error_response(describe(ServerStopped()), scope)
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await refusal(scope, receive, send)
