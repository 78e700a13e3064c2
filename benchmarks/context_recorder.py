"""Stands between Temper and the server, and keeps what was sent and what the server counted."""

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field

import httpx
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from proxy.api.server import listen, serving, url_of
from proxy.conversation import json
from proxy.conversation.json import JsonObject

_CHAT = "/v1/chat/completions"
_PATIENCE_SECONDS = 300.0
_KEPT = ("content-type", "authorization")


@dataclass(frozen=True, slots=True)
class Sent:
    """A prompt that reached the server: its messages, and how the server served it.

    `prompt` and `cached` are its own counts of tokens, both 0 where it refused; `seconds` from
    the first byte of the question to the last one of the answer.
    """

    messages: tuple[bytes, ...]
    status: int
    prompt: int
    cached: int
    seconds: float


@dataclass(slots=True)
class Recorder:
    """A server in front of the one at `url`."""

    url: str
    sent: list[Sent] = field(default_factory=list)
    counting_seconds: float = 0.0

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[str, None]:
        """Serve on a free port and yield the address."""
        # llama-server closes idle connections unannounced, which a new one for each never notices
        limits = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(
            base_url=self.url, timeout=_PATIENCE_SECONDS, trust_env=False, limits=limits
        ) as client:
            app = FastAPI()

            async def forward(request: Request) -> Response:
                return await self._forward(client, request)

            app.router.routes.append(Route("/{path:path}", forward, methods=["GET", "POST"]))
            with closing(listen("127.0.0.1", 0)) as listening:
                async with serving(app, listening, 1.0):
                    yield url_of(listening)

    async def _forward(self, client: httpx.AsyncClient, request: Request) -> Response:
        began = time.perf_counter()
        body = await request.body()
        headers = {name: request.headers[name] for name in _KEPT if name in request.headers}
        asked = client.build_request(
            request.method, request.url.path, content=body, headers=headers
        )
        answer = await client.send(asked, stream=True)
        kind = answer.headers.get("content-type")

        async def passing() -> AsyncGenerator[bytes, None]:
            parts: list[bytes] = []
            try:
                async for part in answer.aiter_bytes():
                    parts.append(part)
                    yield part
            finally:
                await answer.aclose()
                seconds = time.perf_counter() - began
                if request.url.path == _CHAT:
                    self._note(body, answer.status_code, b"".join(parts), seconds)
                elif request.method == "POST":
                    self.counting_seconds += seconds

        return StreamingResponse(passing(), answer.status_code, media_type=kind)

    def _note(self, body: bytes, status: int, answer: bytes, seconds: float) -> None:
        messages = tuple(json.split_array(json.split_object(body)["messages"]))
        timings = _timings(answer)
        cached, new = (timings.get(name, 0) for name in ("cache_n", "prompt_n"))
        assert isinstance(cached, int)  # noqa: S101 - llama-server's own counters
        assert isinstance(new, int)  # noqa: S101 - the same
        self.sent.append(Sent(messages, status, cached + new, cached, seconds))


def _timings(answer: bytes) -> JsonObject:
    """Find the counters in the last event of a stream that has them, or in a whole answer."""
    lines = [line.removeprefix(b"data: ") for line in answer.splitlines()]
    for line in reversed(lines):
        if b'"timings"' in line:
            document = json.parse(line)
            found = document.get("timings") if isinstance(document, dict) else None
            if isinstance(found, dict):
                return found
    return {}
