"""Recognizes the engine at an address, and searches the usual addresses for an engine.

    GET /v1/models     "owned_by": "llamacpp", "vllm", ...    most engines
    GET /props         "default_generation_settings": ...     a llama-server behind a proxy
    GET /api/version   "version": "0.34.0"                    Ollama

An engine is recognized by a response that no other engine gives. A web page matches no engine.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from proxy.backends.client import (
    Backend,
    BackendModel,
    DeferredBackend,
    Description,
    Health,
    Part,
    Send,
)
from proxy.backends.engines import ANY_ENGINE, engine_of
from proxy.backends.http_backend import MODELS, models_in
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonObject
from proxy.dialects.lenient_json import as_object, parse_object
from proxy.errors import BackendFailed, BackendUnavailable

PROPERTIES = "/props"
OLLAMA_VERSION = "/api/version"

# members of the response to GET /props, which only a llama-server has
_LLAMA_SERVER_PROPERTIES = frozenset({"default_generation_settings", "total_slots", "model_path"})
_OLLAMA_PORT = 11434
_DEFAULT_PORTS = {"http": 80, "https": 443}
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - addresses of servers


# The engines with a separate adapter. "openai" is any other engine; "anthropic" is never detected,
# because the operator configures it, and its address is never probed.
EngineKind: TypeAlias = Literal["llama-server", "ollama", "openai", "anthropic"]


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A running server."""

    url: str
    kind: EngineKind


async def detect_kind(connection: BackendClient, within: float | None = None) -> EngineKind | None:
    """Return the kind of the engine at an address, None if no engine is recognized.

    Each probe has to be answered `within` seconds. Raises BackendFailed if the first probe fails.
    """
    models_response = await connection.fetch(MODELS, within=within)
    # without its API key, a llama-server is recognizable only by this header (build 11669)
    if models_response.server == "llama.cpp":
        return "llama-server"
    document = parse_object(models_response.body) or {}
    served = models_in(document) if models_response.status == 200 else None
    entries = [entry.details for entry in served or ()]
    kind = as_object(document.get("error")).get("type")
    is_loading = models_response.status == 503 and kind == "unavailable_error"
    if is_loading or any(entry.get("owned_by") == "llamacpp" for entry in entries):
        return "llama-server"
    if engine_of(entries) is not ANY_ENGINE:
        return "openai"
    # a llamafile, or a llama-server behind a proxy that rewrites the list of models
    if not _LLAMA_SERVER_PROPERTIES.isdisjoint(await _fetch_object(connection, PROPERTIES, within)):
        return "llama-server"
    if isinstance((await _fetch_object(connection, OLLAMA_VERSION, within)).get("version"), str):
        return "ollama"
    # a web page that requires a login has these statuses too, but its body is not a JSON object
    wants_key = models_response.status in (401, 403) and bool(document)
    return "openai" if served is not None or wants_key else None


async def find_running(
    urls: Sequence[str], connect: Callable[[str], BackendClient], within: float
) -> FoundServer | None:
    """Probe all addresses at once; return the first address, in list order, with a server."""
    servers = await asyncio.gather(*(_probe_address(url, connect, within) for url in urls))
    return next((server for server in servers if server is not None), None)


async def _probe_address(
    url: str, connect: Callable[[str], BackendClient], within: float
) -> FoundServer | None:
    connection = connect(url)
    try:
        kind = await detect_kind(connection, within)
    except BackendFailed:
        return None
    finally:
        await connection.close()
    return None if kind is None else FoundServer(url, kind)


def likely_urls(ollama_host: str = "") -> Iterator[str]:
    """List the default addresses: llama-server's ports, then those of other engines."""
    yield "http://127.0.0.1:9931"
    yield "http://127.0.0.1:8080"
    yield ollama_url(ollama_host)
    yield "http://127.0.0.1:1234"  # LM Studio
    yield "http://127.0.0.1:8000"  # vLLM


def ollama_url(host: str) -> str:
    """Read OLLAMA_HOST as Ollama's own client does (envconfig/config.go).

    The value is a host, a port or both, with or without a scheme and a path; a scheme changes the
    default port. A wildcard address (0.0.0.0) becomes 127.0.0.1.
    """
    scheme, has_scheme, address_and_path = host.strip().strip("\"'").rpartition("://")
    scheme = scheme if has_scheme else "http"
    address, _, path = address_and_path.partition("/")
    name, port = _host_and_port(address)
    port = port or (_DEFAULT_PORTS.get(scheme, _OLLAMA_PORT) if has_scheme else _OLLAMA_PORT)
    name = _ANY_ADDRESS.get(name, name) or "127.0.0.1"
    host_text = f"[{name}]" if ":" in name else name
    return f"{scheme}://{host_text}:{port}/{path}".rstrip("/")


def _host_and_port(address: str) -> tuple[str, int | None]:
    if address.count(":") > 1 and not address.startswith("["):
        return address, None  # a bare IPv6 address
    parts = urlsplit(f"//{address}")
    try:
        return parts.hostname or "", parts.port
    except ValueError:  # Ollama uses its default port for an invalid port
        return parts.hostname or "", None


async def _fetch_object(connection: BackendClient, path: str, within: float | None) -> JsonObject:
    try:
        document = await connection.fetch(path, within=within)
    except BackendFailed:
        return {}
    return (parse_object(document.body) or {}) if document.status == 200 else {}


logger = logging.getLogger(__name__)

_PROBE_SECONDS = 5.0  # seconds for each probe
_UNRECOGNIZED = "%s: unknown engine that lists no models; check backend.url"

Adapters: TypeAlias = Callable[[EngineKind], Backend]


class DetectedBackend(DeferredBackend):
    """The backend at an address, whose engine is detected at the first request.

    `adapter_for` returns the adapter of an engine. All adapters share the `connection`, so `close`
    only has to close the connection.
    """

    def __init__(self, connection: BackendClient, adapter_for: Adapters) -> None:
        self._connection = connection
        self._adapter_for = adapter_for
        self._kind: EngineKind | None = None
        self._adapter: Backend | None = None

    @property
    def name(self) -> str:
        return self._connection.name

    async def close(self) -> None:
        await self._connection.close()

    def _stream(self, send: Send[Part]) -> AsyncGenerator[Part, None]:
        return self._detect_and_stream(send) if self._adapter is None else send(self._adapter)

    async def _detect_and_stream(self, send: Send[Part]) -> AsyncGenerator[Part, None]:
        async with aclosing(send(await self._find_adapter())) as parts:
            async for part in parts:
                yield part

    async def _present(self) -> Backend | None:
        return self._adapter

    async def models(self) -> tuple[BackendModel, ...]:
        return await (await self._find_adapter()).models()

    async def describe(self, model: str) -> Description:
        """Detect the engine again, then describe a model; never raises."""
        try:
            # another engine may have started at this address
            adapter = await self._detect()
        except BackendFailed:
            if self._adapter is None:
                return Description((model,), is_provisional=True)
            adapter = self._adapter
        return await adapter.describe(model)

    async def health(self) -> Health:
        try:
            adapter = await self._find_adapter()
        except BackendFailed:
            return Health.UNREACHABLE
        return await adapter.health()

    async def _find_adapter(self) -> Backend:
        """Return the adapter; raises BackendUnavailable until a server has answered once."""
        try:
            return self._adapter or await self._detect()
        except BackendUnavailable:
            raise
        # a server that is too busy to answer the probes may still answer chats
        except BackendFailed:
            return self._adapter_for("openai")

    async def _detect(self) -> Backend:
        detected = await detect_kind(self._connection, _PROBE_SECONDS)
        # a server that was recognized before keeps its kind
        kind = detected or self._kind or "openai"
        if self._adapter is None or kind != self._kind:
            if detected is None:
                logger.warning(_UNRECOGNIZED, self.name)
            logger.info("%s: engine recognized as %s", self.name, kind)
            self._kind, self._adapter = kind, self._adapter_for(kind)
        return self._adapter
