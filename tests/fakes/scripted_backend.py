"""A fake llama-server that sends scripted responses and stores the requests.

An ASGI application for a real socket (`tests.fakes.sockets`), so that a disconnect is noticed as a
real server notices it.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TypeAlias

import anyio
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from tests.fakes.whole_replies import completion_of
from tests.timeouts import TIMEOUT_SECONDS


class Ending(Enum):
    """Ends a response in the middle: the server closes the connection, or sends nothing more."""

    BREAKS = "breaks"
    NEVER = "never"


Step: TypeAlias = bytes | asyncio.Event | Ending


@dataclass(frozen=True)
class Script:
    """One response; at an `asyncio.Event` in it, the server waits until the test sets the event."""

    steps: tuple[Step, ...]
    status: int = 200
    headers: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({"content-type": "text/event-stream"})
    )


def refuses(status: int, error: JsonValue, *, headers: Mapping[str, str] | None = None) -> Script:
    """Return a script of an error response."""
    return Script((json.dump({"error": error}),), status, headers or {})


@dataclass
class ReceivedRequest:
    """A request; `left` is set if the client disconnects before the response is complete."""

    body: bytes
    headers: Headers
    left: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def fields(self) -> JsonObject:
        """The parsed body."""
        value = json.parse(self.body)
        assert isinstance(value, dict)
        return value

    @property
    def raw(self) -> dict[str, bytes]:
        """The members of the body as raw JSON."""
        return json.split_object(self.body)

    @property
    def messages(self) -> list[bytes]:
        """The messages as raw JSON."""
        return json.split_array(self.raw["messages"])

    @property
    def tools(self) -> list[bytes]:
        """The tools as raw JSON."""
        return json.split_array(self.raw["tools"])


class ScriptedBackend:
    """The server; the n-th request receives the n-th script, and further requests status 418."""

    def __init__(self, *scripts: Script | bytes) -> None:
        self.upstream_requests: list[ReceivedRequest]
        self.health = 200
        self.models: JsonValue = {"object": "list", "data": []}
        self.properties: JsonObject | None = None
        self.documents: dict[str, JsonValue] = {}
        self.play(*scripts)
        self._arrivals: asyncio.Queue[ReceivedRequest] = asyncio.Queue()
        self._probes: asyncio.Queue[int] = asyncio.Queue()

    def play(self, *scripts: Script | bytes) -> None:
        """Start again with these scripts."""
        self.upstream_requests = []
        self._scripts = [
            Script((script,)) if isinstance(script, bytes) else script for script in scripts
        ]

    async def next_request(self) -> ReceivedRequest:
        """Wait for the next request that was not returned yet."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await self._arrivals.get()

    async def next_probe(self) -> None:
        """Wait for a health probe."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await self._probes.get()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["path"]:
            case "/v1/chat/completions" | "/v1/completions" | "/v1/embeddings" | "/api/chat":
                await self._answer(scope, receive, send)
            case "/health":
                self._probes.put_nowait(self.health)
                await _play(Script((b"{}",), self.health), send)
            case "/v1/models":
                await _play(Script((json.dump(self.models),)), send)
            case "/props" if self.properties is not None:
                await _play(Script((json.dump(self.properties),)), send)
            case path if path in self.documents:
                await _play(Script((json.dump(self.documents[path]),)), send)
            case _:
                await _play(refuses(404, "no such route"), send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = ReceivedRequest(await read_body(receive), Headers(scope=scope))
        self.upstream_requests.append(request)
        number = len(self.upstream_requests)
        is_scripted = number <= len(self._scripts)
        script = self._scripts[number - 1] if is_scripted else refuses(418, "not in the script")
        if "chat" in scope["path"] and request.raw.get("stream") != b"true":
            script = _as_whole(script)
        self._arrivals.put_nowait(request)
        async with anyio.create_task_group() as group:
            group.start_soon(_watch, receive, request, group.cancel_scope)
            await _play(script, send)
            group.cancel_scope.cancel()


def _as_whole(script: Script) -> Script:
    """Convert a streamed script into the response to a request without `stream`."""
    completion = completion_of(b"".join(step for step in script.steps if isinstance(step, bytes)))
    if script.status != 200 or completion is None:
        return script
    if not isinstance(completion, bytes):
        code = completion.get("code")
        return refuses(code if isinstance(code, int) else 500, completion)
    others = tuple(step for step in script.steps if not isinstance(step, bytes))
    return Script((completion, *others), headers={"content-type": "application/json"})


async def read_body(receive: Receive) -> bytes:
    """Read a whole request body."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return bytes(body)


async def _watch(receive: Receive, request: ReceivedRequest, playing: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    request.left.set()
    playing.cancel()


async def _play(script: Script, send: Send) -> None:
    head: Message | None = {
        "type": "http.response.start",
        "status": script.status,
        "headers": [(name.encode(), value.encode()) for name, value in script.headers.items()],
    }
    for step in script.steps:
        match step:
            case asyncio.Event():
                await step.wait()
            case Ending.BREAKS:
                return
            case Ending.NEVER:
                await anyio.sleep_forever()
            case bytes():
                if head is not None:
                    await send(head)
                    head = None
                await send({"type": "http.response.body", "body": step, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
