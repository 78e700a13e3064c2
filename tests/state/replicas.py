"""Replicas of Temper in the event loop of the test, which share a backend and a store."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass

import httpx

from proxy.api.server import listen, open_server
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.settings import load_settings
from tests.fakes import sse
from tests.fakes.running_proxy import plain_transport
from tests.fakes.scripted_backend import Script, ScriptedBackend
from tests.fakes.sockets import listening
from tests.timeouts import TIMEOUT_SECONDS

SECRET = "a-secret-that-replicas-share"
SAID = "It is warm in Graz."
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
PATIENT_MS = 10_000  # long, so that a busy machine does not make a running store seem unavailable
_MANY = 40


@dataclass(frozen=True)
class Replica:
    """One Temper and its client."""

    client: httpx.AsyncClient

    async def ask(
        self, text: str, *, key: str = "", stream: bool = False, path: str = CHAT
    ) -> httpx.Response:
        """Send a message, with an idempotency key if one is given."""
        messages: JsonValue = [{"role": "user", "content": text}]
        headers = {"idempotency-key": key} if key else {}
        body: JsonObject = {"model": "m", "messages": messages, "stream": stream}
        return await self.client.post(path, json=body, headers=headers)

    async def respond(self, text: str, **others: JsonValue) -> httpx.Response:
        """Request a response of the Responses API."""
        return await self.client.post(RESPONSES, json={"model": "m", "input": text, **others})

    async def metric(self, name: str) -> float:
        """Return the sum of a metric's series."""
        lines = (await self.client.get("/metrics")).text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    async def until(self, name: str, value: float) -> None:
        """Wait until a metric has a value."""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while await self.metric(name) != value:  # noqa: ASYNC110 - the metric has no event
                await asyncio.sleep(0.01)


def field_of(answer: httpx.Response, name: str) -> str:
    """Return a member of an answer or of its error."""
    document = json.parse(answer.content)
    assert isinstance(document, dict)
    error = document.get("error")
    return str((error if isinstance(error, dict) else document)[name])


@asynccontextmanager
async def replica(
    backend: str,
    store: str,
    *,
    secret: str = SECRET,
    store_ms: int = PATIENT_MS,
    **server: JsonValue,
) -> AsyncGenerator[Replica]:
    """Run a Temper in front of a backend; `server` has settings of the section with that name."""
    sections: dict[str, dict[str, object]] = {
        "backend": {"url": backend},
        "server": {"port": 0, **server},
        "state": {"url": store, "secret": secret, "timeout_ms": store_ms} if store else {},
    }
    settings = load_settings(None, sections)
    with closing(listen("127.0.0.1", 0)) as socket:
        async with (
            open_server([socket], settings, signals=()) as (_, address),
            httpx.AsyncClient(
                base_url=address.url,
                transport=plain_transport(),
                trust_env=False,
                timeout=TIMEOUT_SECONDS,
            ) as client,
        ):
            yield Replica(client)


@asynccontextmanager
async def replicas(
    store: str,
    *scripts: Script | bytes,
    secrets: Sequence[str] = (SECRET, SECRET),
    store_ms: int = PATIENT_MS,
    **server: JsonValue,
) -> AsyncGenerator[tuple[ScriptedBackend, Replica, Replica]]:
    """Run a backend and two replicas in front of it, each with a secret."""
    backend = ScriptedBackend(*(scripts or [sse.says(SAID)] * _MANY))
    async with AsyncExitStack() as stack:
        upstream = await stack.enter_async_context(listening(backend))
        first, other = [
            await stack.enter_async_context(
                replica(upstream.url, store, secret=secret, store_ms=store_ms, **server)
            )
            for secret in secrets
        ]
        yield backend, first, other
