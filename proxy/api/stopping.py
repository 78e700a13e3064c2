"""What a client is told whose answer had not begun when the server had to end.

A server cancels what it does not wait for any longer. It would tell the client of a bug and write a
traceback, although nothing is wrong.
"""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.api.errors import describe, error_response
from proxy.errors import ServerStopped

_FAREWELL_SECONDS = 1.0  # a client may not be reading


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
