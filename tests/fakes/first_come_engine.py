"""An engine that serves requests in order of arrival, as many concurrently as it has slots.

A test or a clock ends each round: the running requests are answered, and the next ones begin.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from starlette.types import Message, Receive, Scope, Send

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from tests.fakes import sse

_HEADERS = [(b"content-type", b"text/event-stream")]


@dataclass
class FirstComeEngine:
    """The engine; `longest_queue` is the largest number of requests that waited in it."""

    slots: int
    longest_queue: int = 0
    rounds: int = 0
    _asked: deque[asyncio.Event] = field(default_factory=deque)

    @property
    def load(self) -> int:
        """The number of its requests, including those that wait."""
        return len(self._asked)

    def end_round(self) -> None:
        """Answer all running requests; the next requests in the queue then start."""
        self.rounds += 1
        for _ in range(min(self.slots, len(self._asked))):
            self._asked.popleft().set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, answered at the end of its round."""
        match scope["path"]:
            case "/v1/chat/completions":
                await self._work(receive)
                await _send(sse.says("Done."), send)
            case "/props":
                about: JsonObject = {"model_alias": "m", "total_slots": self.slots}
                window: JsonObject = {"n_ctx": 4096}
                await _send(json.dump({**about, "default_generation_settings": window}), send)
            case _:
                await _send(b'{"data": []}', send)

    async def _work(self, receive: Receive) -> None:
        while (await receive()).get("more_body", False):
            pass
        is_done = asyncio.Event()
        self._asked.append(is_done)
        self.longest_queue = max(self.longest_queue, len(self._asked) - self.slots)
        await is_done.wait()


async def _send(body: bytes, send: Send) -> None:
    start: Message = {"type": "http.response.start", "status": 200, "headers": _HEADERS}
    await send(start)
    await send({"type": "http.response.body", "body": body, "more_body": False})
