"""The lower bound for a Python proxy: it only parses JSON and writes it again.

A FastAPI route that uses an aiohttp session, run as `python bare.py BACKEND_URL PORT` in a separate
environment. It has no guardrails, timeouts, limits, logs or retries.
"""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import StreamingResponse

_CHAT = "/v1/chat/completions"
_DATA, _DONE, _END = b"data: ", b"[DONE]", b"\n\n"


def make_app(backend_url: str) -> FastAPI:
    sessions: list[aiohttp.ClientSession] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None, None]:
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
        ) as session:
            sessions.append(session)
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post(_CHAT)
    async def chat(request: Request) -> Response:
        document = msgspec.json.decode(await request.body(), type=dict[str, object])
        body = msgspec.json.encode(document)
        if document.get("stream"):
            streamed = _streamed(sessions[0], backend_url + _CHAT, body)
            return StreamingResponse(streamed, media_type="text/event-stream")
        async with sessions[0].post(backend_url + _CHAT, data=body) as answer:
            completion = msgspec.json.decode(await answer.read(), type=dict[str, object])
            return Response(
                msgspec.json.encode(completion), answer.status, None, "application/json"
            )

    return app


async def _streamed(
    session: aiohttp.ClientSession, url: str, body: bytes
) -> AsyncGenerator[bytes, None]:
    rest = b""
    async with session.post(url, data=body) as answer:
        async for piece in answer.content.iter_any():
            *events, rest = (rest + piece).split(_END)
            if events:
                yield b"".join(map(_rewritten, events))


def _rewritten(event: bytes) -> bytes:
    data = event.removeprefix(_DATA)
    if data == _DONE:
        return event + _END
    return _DATA + msgspec.json.encode(msgspec.json.decode(data, type=dict[str, object])) + _END


if __name__ == "__main__":
    uvicorn.run(make_app(sys.argv[1]), port=int(sys.argv[2]), log_level="error", access_log=False)
