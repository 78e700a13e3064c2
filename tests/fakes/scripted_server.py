"""A look-alike of llama-server that plays prepared answers and remembers what it was sent."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue

CHAT = "/v1/chat/completions"


@dataclass
class Played:
    """One prepared answer: the pieces of a body; at a `None` it waits until `gate` is set."""

    pieces: Sequence[bytes | None]
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    has_arrived: asyncio.Event = field(default_factory=asyncio.Event)
    has_lost_its_client: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Seen:
    """A request as it arrived."""

    raw: bytes
    headers: dict[str, str]

    @property
    def body(self) -> JsonObject:
        value = json.parse(self.raw)
        assert isinstance(value, dict)
        return value


class ScriptedServer:
    """Plays one answer for each chat request, in order; other paths have fixed answers."""

    def __init__(self, *answers: Played, health: int = 200) -> None:
        self._answers = iter(answers)
        self.health = health
        self.seen: list[Seen] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        match request.url.path:
            case "/v1/chat/completions":
                self.seen.append(Seen(await request.body(), dict(request.headers)))
                await self._play(next(self._answers), receive, send)
            case "/v1/models":
                models: JsonValue = {"data": [{"id": "one", "owned_by": "llamacpp"}]}
                await _send_whole(send, 200, json.dump(models))
            case _:
                await _send_whole(send, self.health, b"{}")

    async def _play(self, answer: Played, receive: Receive, send: Send) -> None:
        answer.has_arrived.set()
        watching = asyncio.create_task(_watch(receive, answer))
        try:
            await _start(send, answer.status, answer.headers)
            for piece in answer.pieces:
                if piece is None:
                    await answer.gate.wait()
                else:
                    body = {"type": "http.response.body", "body": piece, "more_body": True}
                    await send(body)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            watching.cancel()


async def _watch(receive: Receive, answer: Played) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    answer.has_lost_its_client.set()
    answer.gate.set()


async def _start(send: Send, status: int, headers: dict[str, str]) -> None:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})


async def _send_whole(send: Send, status: int, body: bytes) -> None:
    await _start(send, status, {"content-type": "application/json"})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def refusal(status: int, message: str, kind: str = "server_error", **more: JsonValue) -> Played:
    """Prepare an error as llama-server sends it."""
    error: JsonObject = {"code": status, "message": message, "type": kind, **more}
    return Played([json.dump({"error": error})], status, {"content-type": "application/json"})
