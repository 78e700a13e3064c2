"""Finds out which kind of server answers at an address, and which of several addresses has one.

A server is recognised by an answer that only its kind gives. Anything else, such as a web page, is
no known server.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias
from urllib.parse import urlsplit

from proxy.backends.client import (
    Backend,
    BackendModel,
    Description,
    Health,
    PassthroughRequest,
    Pieces,
    ReplyEvents,
)
from proxy.backends.engines import ANY_ENGINE, engine_of
from proxy.backends.http_backend import MODELS, models_in
from proxy.backends.transport import BackendClient, WholeResponse
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import EventSink
from proxy.conversation.requests import Question
from proxy.errors import BackendFailed, BackendUnavailable

PROPERTIES = "/props"
OLLAMA_VERSION = "/api/version"

_PROPERTIES_OF_ONE = frozenset({"default_generation_settings", "total_slots", "model_path"})
_LLAMA_SERVER_HEADER = "llama.cpp"
_LLAMA_SERVER_OWNER = "llamacpp"
_OLLAMA_PORT = 11434
_DEFAULT_PORTS = {"http": 80, "https": 443}
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what a server listens on


class EngineKind(Enum):
    """The kinds of servers that have an adapter of their own; OPENAI is any other engine.

    ANTHROPIC is never found: who means it names it.
    """

    LLAMA_SERVER = "llama-server"
    OLLAMA = "ollama"
    OPENAI = "openai"
    ANTHROPIC = "anthropic"


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server that was found running."""

    url: str
    kind: EngineKind


async def kind_at(connection: BackendClient, patience: float | None = None) -> EngineKind | None:
    """Return what answers, None if it is no known server; each question has `patience` seconds.

    Raises BackendFailed if nothing answers.
    """
    listed = await connection.get(MODELS, patience=patience)
    # all that a llama-server tells strangers where it wants a key (build 11669)
    if listed.server == _LLAMA_SERVER_HEADER:
        return EngineKind.LLAMA_SERVER
    said = _object(listed)
    served = models_in(said) if listed.status == 200 else None
    entries = [one.details for one in served or ()]
    if _is_loading(listed.status, said) or any(map(_is_of_llama_server, entries)):
        return EngineKind.LLAMA_SERVER
    if engine_of(entries) is not ANY_ENGINE:
        return EngineKind.OPENAI
    # a llamafile, or a llama-server behind something that lists its models
    if not _PROPERTIES_OF_ONE.isdisjoint(await _ask_object(connection, PROPERTIES, patience)):
        return EngineKind.LLAMA_SERVER
    if isinstance((await _ask_object(connection, OLLAMA_VERSION, patience)).get("version"), str):
        return EngineKind.OLLAMA
    wants_key = listed.status in (401, 403) and bool(said)
    return EngineKind.OPENAI if served is not None or wants_key else None


async def find_running(
    urls: Sequence[str], connect: Callable[[str], BackendClient], patience: float
) -> FoundServer | None:
    """Look at addresses all at once; the first in their order that has a server is the one."""
    looked = await asyncio.gather(*(_look_at(url, connect, patience) for url in urls))
    return next((found for found in looked if found is not None), None)


async def _look_at(
    url: str, connect: Callable[[str], BackendClient], patience: float
) -> FoundServer | None:
    connection = connect(url)
    try:
        kind = await kind_at(connection, patience)
    except BackendFailed:
        return None
    finally:
        await connection.close()
    return None if kind is None else FoundServer(url, kind)


def likely_urls(ollama_host: str = "") -> Iterator[str]:
    """List where servers usually are: llama-server's ports, then Ollama's.

    9931 is llama-server's default now, 8080 was it before.
    """
    yield "http://127.0.0.1:9931"
    yield "http://127.0.0.1:8080"
    yield ollama_url(ollama_host)


def ollama_url(host: str) -> str:
    """Read OLLAMA_HOST as Ollama's own client does (envconfig/config.go).

    That is a host, a port or both, with or without a scheme and a path; a scheme changes the
    default port. An address that servers listen on stands for this machine.
    """
    scheme, has_scheme, rest = host.strip().strip("\"'").rpartition("://")
    scheme = scheme if has_scheme else "http"
    where, _, path = rest.partition("/")
    name, port = _host_and_port(where)
    port = port or (_DEFAULT_PORTS.get(scheme, _OLLAMA_PORT) if has_scheme else _OLLAMA_PORT)
    name = _ANY_ADDRESS.get(name, name) or "127.0.0.1"
    shown = f"[{name}]" if ":" in name else name
    return f"{scheme}://{shown}:{port}/{path}".rstrip("/")


def _host_and_port(where: str) -> tuple[str, int | None]:
    if where.count(":") > 1 and not where.startswith("["):
        return where, None  # a bare IPv6 address
    parts = urlsplit(f"//{where}")
    try:
        return parts.hostname or "", parts.port
    except ValueError:  # Ollama takes its own port then
        return parts.hostname or "", None


async def _ask_object(connection: BackendClient, path: str, patience: float | None) -> JsonObject:
    try:
        document = await connection.get(path, patience=patience)
    except BackendFailed:
        return {}
    return _object(document) if document.status == 200 else {}


def _object(document: WholeResponse) -> JsonObject:
    try:
        value = json.parse(document.body)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _is_of_llama_server(entry: JsonObject) -> bool:
    return entry.get("owned_by") == _LLAMA_SERVER_OWNER


def _is_loading(status: int, said: JsonObject) -> bool:
    error = said.get("error")
    kind = error.get("type") if isinstance(error, dict) else None
    return status == 503 and kind == "unavailable_error"


logger = logging.getLogger(__name__)

_PATIENCE = 5.0
_STRANGE = "lists no models and names no engine: is that the address of a server for models?"

Adapters: TypeAlias = Callable[[EngineKind], Backend]


class DetectedBackend:
    """Whatever answers at an address; `adapter_for` makes the adapter for a kind of server.

    All adapters share one connection, which is closed here.
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

    def ask(
        self, question: Question, headers: dict[str, str], sink: EventSink | None = None
    ) -> ReplyEvents:
        known = self._adapter
        if known is None:
            return self._ask(question, headers, sink)
        return known.ask(question, headers, sink)

    async def _ask(
        self, question: Question, headers: dict[str, str], sink: EventSink | None = None
    ) -> ReplyEvents:
        """Put a question to whatever it is."""
        adapter = await self._find_adapter()
        async with aclosing(adapter.ask(question, headers, sink)) as batches:
            async for batch in batches:
                yield batch

    async def relay(self, passage: PassthroughRequest, headers: dict[str, str]) -> Pieces:
        async with aclosing((await self._find_adapter()).relay(passage, headers)) as pieces:
            async for piece in pieces:
                yield piece

    async def count(self, question: Question, headers: dict[str, str]) -> int | None:
        adapter = self._adapter
        return None if adapter is None else await adapter.count(question, headers)

    async def count_texts(
        self, texts: Sequence[str], headers: dict[str, str]
    ) -> tuple[int, ...] | None:
        adapter = self._adapter
        return None if adapter is None else await adapter.count_texts(texts, headers)

    async def models(self) -> tuple[BackendModel, ...]:
        return await (await self._find_adapter()).models()

    async def describe(self, model: str) -> Description:
        """Tell what it knows of a model, after a look at what answers now; never raises."""
        try:
            adapter = await self._look()
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
        """Return the adapter; raises BackendUnavailable while nothing ever answered.

        A server that is too busy to identify itself gets the adapter for any engine.
        """
        try:
            return self._adapter or await self._look()
        except BackendUnavailable:
            raise
        except BackendFailed:
            return self._adapter_for(EngineKind.OPENAI)

    async def _look(self) -> Backend:
        found = await kind_at(self._connection, _PATIENCE)
        kind = found or self._kind or EngineKind.OPENAI
        if self._adapter is None or kind is not self._kind:
            if found is None:
                logger.warning("%s %s", self.name, _STRANGE)
            logger.info("%s is served as %s", self.name, kind.value)
            self._kind, self._adapter = kind, self._adapter_for(kind)
        return self._adapter
