"""An endpoint that sends the last piece of its response on command."""

import asyncio
from dataclasses import dataclass, field

from starlette.types import Receive, Scope, Send

JSON = b"application/json"
STREAM = b"text/event-stream; charset=utf-8"


@dataclass
class GatedEndpoint:
    """Sends all pieces except the last one at once; the last piece waits for the gate."""

    status: int = 200
    kind: bytes = JSON
    pieces: tuple[bytes, ...] = (b"{", b"}")
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    begun: int = 0
    left: int = 0  # clients that disconnected before the last piece
    sent: int = 0  # responses sent except for the last piece

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        self.begun += 1
        assert (await receive())["type"] == "http.request"
        headers = [(b"content-type", self.kind)]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        *first, last = self.pieces
        for piece in first:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        self.sent += 1
        if await self._is_waited_for(receive):
            await send({"type": "http.response.body", "body": last, "more_body": False})
        else:
            self.left += 1

    async def _is_waited_for(self, receive: Receive) -> bool:
        leaving = asyncio.ensure_future(receive())
        opening = asyncio.create_task(self.gate.wait())
        await asyncio.wait((leaving, opening), return_when=asyncio.FIRST_COMPLETED)
        for gate in (leaving, opening):
            gate.cancel()
        return self.gate.is_set()
