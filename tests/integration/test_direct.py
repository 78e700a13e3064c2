"""Content that bypasses the queue of events, over HTTP."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from proxy.api.app import ServerOptions, create_app
from proxy.api.server import listen, serving, url_of
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonObject
from proxy.observability.observers import Observers
from proxy.observability.recording import Recording, read_recording
from tests.fakes import sse
from tests.fakes.running_proxy import CHAT, request
from tests.fakes.scripted_backend import Ending, Script, ScriptedBackend
from tests.fakes.sockets import listening
from tests.timeouts import TIMEOUT_SECONDS

WORDS = ("It", " is", " sunny", ' "in"', " Paris", " today", ".")
PLAIN = request(tools=None)
ACCEPTING = {"x-temper-text-policy": "accept"}


@dataclass
class Watched:
    """An application, and the parts of response bodies that pass through its ASGI interface."""

    app: ASGIApp
    sent: list[bytes] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def noted(message: Message) -> None:
            if message["type"] == "http.response.body":
                self.sent.append(message["body"])
            await send(message)

        await self.app(scope, receive, noted)


@dataclass
class Steps:
    """A script of a reply in which each step waits until the client has seen the previous step."""

    gates: list[asyncio.Event]
    script: Script

    @classmethod
    def of(cls, *pieces: bytes | Ending) -> "Steps":
        gates = [asyncio.Event() for _ in pieces]
        gates[0].set()
        steps = [step for pair in zip(gates, pieces, strict=True) for step in pair]
        return cls(gates, Script(tuple(steps)))

    def passed(self) -> Iterator[None]:
        for gate in self.gates[1:]:
            gate.set()
            yield


@asynccontextmanager
async def temper(
    steps: Steps, observers: Observers | None = None
) -> AsyncGenerator[tuple[Watched, httpx.AsyncClient], None]:
    async with listening(ScriptedBackend(steps.script)) as upstream:
        engine = LlamaServer(BackendClient(upstream.url))
        app = Watched(create_app(ServerOptions().services_for(engine), ServerOptions(), observers))
        with contextlib.closing(listen("127.0.0.1", 0)) as socket:
            async with (
                serving(app, socket, 1),
                httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_SECONDS) as client,
            ):
                client.base_url = httpx.URL(url_of(socket))
                yield app, client
        await engine.close()


async def answer(
    client: httpx.AsyncClient, steps: Steps, sent: JsonObject, headers: dict[str, str]
) -> tuple[int, bytes]:
    """Stream an answer; each received piece lets the backend send the next one."""
    going_on, received = steps.passed(), b""
    body = {**sent, "stream": True}
    async with client.stream("POST", CHAT, json=body, headers=headers) as response:
        async for piece in response.aiter_bytes():
            received += piece
            next(going_on, None)
    return response.status_code, received


def plain_steps() -> Steps:
    return Steps.of(sse.START + sse.text("So: "), *map(sse.text, WORDS), sse.end())


@pytest.mark.parametrize(
    ("body", "headers", "is_direct"),
    [(PLAIN, {}, True), (request(), ACCEPTING, True), (PLAIN, {"idempotency-key": "k"}, False)],
)
async def test_content_bypasses_the_queue_except_with_an_idempotency_key(
    body: JsonObject, headers: dict[str, str], *, is_direct: bool
) -> None:
    steps = plain_steps()
    async with temper(steps) as (app, client):
        status, received = await answer(client, steps, body, headers)
    assert status == 200
    chunks = [line for line in received.split(b"\n\n") if b'"content":"' in line]
    assert len(chunks) == len(WORDS) + 2  # two more chunks: the role, and "So: "
    assert received.endswith(b"data: [DONE]\n\n")
    assert b"outcome=clean" in received
    words = [word.strip(' "').encode() for word in WORDS]
    directly = [word for word in words if not any(word in sent for sent in app.sent)]
    assert bool(directly) is is_direct


async def test_a_recording_contains_content_that_bypassed_the_queue(tmp_path: Path) -> None:
    steps, file = plain_steps(), tmp_path / "recording.jsonl"
    recording = Recording(file, 1_000_000, ())
    async with temper(steps, Observers((), recording=recording)) as (_, client):
        await answer(client, steps, PLAIN, {})
    recording.close()
    (exchange,) = read_recording(file)
    assert exchange.answer.text == "So: " + "".join(WORDS)
    assert exchange.generations[0][0] == ["text", "So: " + "".join(WORDS)]


async def test_a_failure_after_content_that_bypassed_the_queue_is_an_error_event() -> None:
    steps = Steps.of(sse.START + sse.text("So: "), *map(sse.text, WORDS), Ending.BREAKS)
    async with temper(steps) as (_, client):
        status, received = await answer(client, steps, PLAIN, {})
    assert status == 200
    assert b'"content":"."' in received
    assert b"backend_unavailable" in received
    assert b"[DONE]" not in received


async def test_max_tokens_limits_content_that_bypasses_the_queue() -> None:
    endless = [sse.text(f" and then {number} more words") for number in range(200)]
    steps = Steps.of(sse.START + sse.text("So: "), *endless, Ending.NEVER)
    async with temper(steps) as (_, client):
        _, received = await answer(client, steps, request(tools=None, max_tokens=20), {})
    assert b'"finish_reason":"length"' in received
    assert received.count(b" more words") <= 60


async def test_a_disconnect_during_content_that_bypasses_the_queue_cancels_the_generation() -> None:
    steps = Steps.of(sse.START + sse.text("So: "), *map(sse.text, WORDS), Ending.NEVER)
    async with listening(backend := ScriptedBackend(steps.script)) as upstream:
        engine = LlamaServer(BackendClient(upstream.url))
        with contextlib.closing(listen("127.0.0.1", 0)) as socket:
            async with serving(
                create_app(ServerOptions().services_for(engine), ServerOptions()), socket, 1
            ):
                async with (
                    httpx.AsyncClient(trust_env=False, timeout=TIMEOUT_SECONDS) as client,
                    client.stream(
                        "POST", url_of(socket) + CHAT, json={**PLAIN, "stream": True}
                    ) as response,
                ):
                    going_on = steps.passed()
                    async for piece in response.aiter_bytes():
                        next(going_on, None)
                        if b'"content":"."' in piece:
                            break
                await backend.upstream_requests[0].left.wait()
        await engine.close()
