"""Temper and a scripted backend on real sockets, and a client of Temper."""

import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from proxy.api.app import ServerOptions, create_app
from proxy.backends.client import Backend
from proxy.backends.http_backend import HttpBackend
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient, Timeouts
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.mcp.hosting import ToolHosting
from proxy.observability.observers import Observers
from proxy.processes.managed import ManagedBackend
from proxy.serving.opening import open_services
from proxy.serving.services import Services
from proxy.settings import Settings
from tests.fakes.answers import Answer, read_answer
from tests.fakes.scripted_backend import Script, ScriptedBackend
from tests.fakes.sockets import Listening, listening
from tests.timeouts import TIMEOUT_SECONDS

CHAT = "/v1/chat/completions"
_JSON = {"content-type": "application/json"}

# no certificates: loading them would take longer than most tests
PLAIN = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def plain_transport() -> httpx.AsyncHTTPTransport:
    """Return a plain HTTP transport that is cheap to open: it creates no TLS context."""
    return httpx.AsyncHTTPTransport(verify=PLAIN)


@dataclass(frozen=True)
class RunningProxy:
    """A client of Temper; `backend` receives no request if the test supplied another engine."""

    client: httpx.AsyncClient
    backend: ScriptedBackend
    server: Listening

    async def ask(
        self, request: JsonObject, *, stream: bool = False, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Request a chat completion and read the whole response."""
        body: JsonObject = {**request, "stream": stream} if stream else request
        return await self.send(json.dump(body), headers)

    async def send(self, body: bytes, headers: Mapping[str, str] | None = None) -> Answer:
        """Post a body unchanged to the chat endpoint."""
        return read_answer(await self.client.post(CHAT, content=body, headers=headers))


@asynccontextmanager
async def temper(
    *scripts: Script | bytes,
    serving: ServerOptions | None = None,
    timeouts: Timeouts | None = None,
    load_wait: float = 0.0,
    api_key: str = "",
    observers: Observers | None = None,
    tools: ToolHosting | None = None,
) -> AsyncGenerator[RunningProxy, None]:
    """Run Temper in front of a backend that plays `scripts`; `api_key` is Temper's key for it."""
    backend = ScriptedBackend(*scripts)
    async with listening(backend) as upstream:
        connection = BackendClient(upstream.url, api_key, timeouts=timeouts)
        engine = LlamaServer(connection, load_wait=load_wait, poll_seconds=0.001)
        async with in_front_of(engine, serving, backend, observers, tools=tools) as proxy:
            yield proxy


@asynccontextmanager
async def temper_at(
    url: str,
    *,
    serving: ServerOptions | None = None,
    timeouts: Timeouts | None = None,
    api_key: str = "",
) -> AsyncGenerator[RunningProxy, None]:
    """Run Temper in front of the server at `url`; `api_key` is Temper's key for it."""
    engine = LlamaServer(BackendClient(url, api_key, timeouts=timeouts))
    async with in_front_of(engine, serving, ScriptedBackend()) as proxy:
        yield proxy


@asynccontextmanager
async def in_front_of(
    engine: Backend,
    serving: ServerOptions | None,
    backend: ScriptedBackend,
    observers: Observers | None = None,
    *,
    tools: ToolHosting | None = None,
) -> AsyncGenerator[RunningProxy, None]:
    """Run Temper in front of an engine, which is closed at the end if it is an adapter."""
    serves = serving or ServerOptions()
    try:
        alone = serves.services_for(engine)
        async with serving_all(alone, serves, backend, observers, tools=tools) as proxy:
            yield proxy
    finally:
        if isinstance(engine, HttpBackend | ManagedBackend):
            await engine.close()


@asynccontextmanager
async def served(settings: Settings) -> AsyncGenerator[httpx.AsyncClient, None]:
    """Open the models of settings and serve them; yields a client."""
    options = ServerOptions()
    async with (
        open_services(settings, options, lambda _: None) as services,
        listening(create_app(services, options)) as server,
        httpx.AsyncClient(
            base_url=server.url,
            transport=plain_transport(),
            trust_env=False,
            timeout=TIMEOUT_SECONDS,
        ) as client,
    ):
        yield client


@asynccontextmanager
async def serving_all(
    services: Services,
    serving: ServerOptions,
    backend: ScriptedBackend,
    observers: Observers | None = None,
    *,
    tools: ToolHosting | None = None,
) -> AsyncGenerator[RunningProxy, None]:
    """Run Temper in front of several models; at the end, close the recording of `observers`."""
    async with (
        listening(create_app(services, serving, observers, tools=tools)) as server,
        httpx.AsyncClient(
            base_url=server.url,
            transport=plain_transport(),
            trust_env=False,
            timeout=TIMEOUT_SECONDS,
            headers=_JSON,
        ) as client,
    ):
        yield RunningProxy(client, backend, server)
    if observers is not None and observers.recording is not None:
        observers.recording.close()


TOOLS: list[JsonValue] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Tell the weather.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    },
    {"type": "function", "function": {"name": "get_time", "parameters": None}},
]


def request(**others: JsonValue) -> JsonObject:
    """Build a chat request with two tools; arguments add or replace members."""
    plain: JsonObject = {
        "model": "m",
        "messages": [{"role": "user", "content": "How is the weather in Paris?"}],
        "tools": TOOLS,
    }
    return {**plain, **others}
