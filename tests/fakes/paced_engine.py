"""An engine that streams at the pace that a request selects, and counts early disconnects.

`[[tokens=40;ms=25]]` in a message selects a stream of 40 tokens, 25 ms apart; `bytes=9` sets their
length. `[[silence]]` sends nothing. Without a mark, it sends three tokens at once.
"""

import asyncio
import re
import threading
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.scripted_backend import read_body
from tests.fakes.upstream_requests import chunk

_MARK = re.compile(rb"\[\[tokens=(\d+);ms=(\d+)(?:;bytes=(\d+))?\]\]")
_SILENCE = b"[[silence]]"
_BEGINNING: JsonObject = {"role": "assistant"}
MODELS: JsonValue = {"object": "list", "data": [{"id": "m", "object": "model"}]}


@dataclass
class PacedEngine:
    """The engine; it counts the `sent` bytes and stores the headers of every request.

    While it `is_silent`, it does not respond. `arrived` is released for each request, and `left`
    for each client that disconnects early.
    """

    is_silent: bool = False
    received_headers: list[Headers] = field(default_factory=list)
    sent: int = 0
    left: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        if not scope["path"].endswith("/chat/completions"):
            await _whole(send, MODELS)
            return
        self.received_headers.append(Headers(scope=scope))
        self.arrived.release()
        speaking = asyncio.create_task(self._speak(body, send))
        leaving = asyncio.create_task(_leaves(receive))
        try:
            await asyncio.wait((speaking, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not speaking.done():
                self.left.release()
        finally:
            leaving.cancel()
            speaking.cancel()
            await asyncio.gather(speaking, leaving, return_exceptions=True)

    async def _speak(self, body: bytes, send: Send) -> None:
        if self.is_silent or _SILENCE in body:
            await asyncio.Event().wait()
        marks = _MARK.findall(body)
        tokens, pause, size = (int(part or 0) for part in marks[-1]) if marks else (3, 0, 0)
        if b'"stream":true' not in body.replace(b" ", b""):
            await asyncio.sleep(tokens * pause / 1000)
            await _whole(send, _completion(tokens))
            return
        await send(_head(b"text/event-stream"))
        text = "x" * size or "word "
        token: JsonObject = {"content": text}
        for delta in (_BEGINNING, *([token] * tokens)):
            await self._say(send, json.dump(chunk(delta)))
            await asyncio.sleep(pause / 1000)
        await self._say(send, json.dump(chunk({}, "stop")))
        await self._say(send, b"[DONE]")
        await send({"type": "http.response.body"})

    async def _say(self, send: Send, event: bytes) -> None:
        body = b"data: %b\n\n" % event
        await send({"type": "http.response.body", "body": body, "more_body": True})
        self.sent += len(body)


async def _leaves(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _completion(tokens: int) -> JsonValue:
    message: JsonValue = {"role": "assistant", "content": "word " * tokens}
    choice: JsonValue = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "choices": [choice]}


def _head(kind: bytes) -> Message:
    return {"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]}


async def _whole(send: Send, document: JsonValue) -> None:
    await send(_head(b"application/json"))
    await send({"type": "http.response.body", "body": json.dump(document)})
