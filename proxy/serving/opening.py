"""Opens what the settings name: each kind of backend in a function of its own.

Anthropic's language is imported only when it is used, because imports delay every start.
"""

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from proxy.backends.adaptive import AdaptiveEngine
from proxy.backends.client import Backend
from proxy.backends.detection import (
    DetectedBackend,
    EngineKind,
    FoundServer,
    find_running,
    likely_urls,
    ollama_url,
)
from proxy.backends.llama_server import LlamaServer
from proxy.backends.ollama import Ollama, OllamaOverrides
from proxy.backends.pool import Pool, PoolTimeouts
from proxy.backends.transport import BackendClient
from proxy.errors import InvalidConfiguration
from proxy.processes.managed import Supervised
from proxy.processes.process import ServerAddress
from proxy.processes.start_progress import StageListener
from proxy.processes.supervisor import StatusListener, Supervisor
from proxy.serving.managed_server import connect_managed, connection_to, keep_going, settle_window
from proxy.serving.model_set import open_models
from proxy.serving.services import ServiceOptions, Services
from proxy.serving.window_size import ollama_fitting
from proxy.settings import Settings
from proxy.settings.sections import Ollama as OllamaSettings


@asynccontextmanager
async def open_services(
    settings: Settings,
    serving: ServiceOptions,
    on_stage: StageListener,
    *,
    remote: Supervised | None = None,
) -> AsyncGenerator[Services, None]:
    """Open every model that the settings name; raises `InvalidConfiguration` if there is none.

    A server that has to be started is being started meanwhile, unless another process looks after
    it: then it is `remote`.
    """
    if settings.models:
        several = open_models(settings, serving, lambda own: open_backend(own, on_stage))
        async with several as services:
            yield services
    else:
        async with open_backend(settle_window(settings), on_stage, remote=remote) as backend:
            yield serving.alone(backend)


@asynccontextmanager
async def open_backend(
    settings: Settings, on_stage: StageListener, *, remote: Supervised | None = None
) -> AsyncGenerator[Backend, None]:
    """Connect to the server that is configured, or look after one for the model that is."""
    urls = server_urls(settings)
    if len(urls) == 1:
        kind = _connect_to_server(settings, urls[0])
    elif urls:
        kind = _connect_to_servers(settings, urls)
    elif settings.model.source is None:
        raise nothing_to_serve()
    elif remote is not None:
        kind = connect_managed(settings, settings.model, remote)
    else:
        kind = _start_server(settings, on_stage)
    async with kind as backend:
        yield backend


def server_urls(settings: Settings) -> tuple[str, ...]:
    """Return where the running servers are, if there are any.

    An Ollama is somewhere always, and Anthropic's API where it is.
    """
    is_ollama = (
        settings.backend.kind == EngineKind.OLLAMA.value or settings.ollama.model is not None
    )
    if is_ollama and not settings.backend.addresses:
        return (ollama_url(os.environ.get("OLLAMA_HOST", "")),)
    if settings.backend.kind == EngineKind.ANTHROPIC.value and not settings.backend.addresses:
        from proxy.backends.anthropic import ADDRESS

        return (ADDRESS,)
    return settings.backend.addresses


def names_nothing(settings: Settings) -> bool:
    """Return whether an operator has named nothing to serve."""
    return not (server_urls(settings) or settings.models or settings.model.source)


@asynccontextmanager
async def open_shared_server(
    settings: Settings,
    on_stage: StageListener,
    on_change: StatusListener = lambda _status: None,
) -> AsyncGenerator[Supervisor | None, None]:
    """Look after a server that several use together; None where it is somebody else's."""
    if server_urls(settings):
        yield None
    elif settings.model.source is not None:
        async with keep_going(settings, settings.model, on_stage, on_change) as server:
            yield server
    else:
        raise nothing_to_serve()


def address_of(settings: Settings, url: str | None = None) -> ServerAddress:
    """Return where a server is that somebody else looks after, the first one or that at `url`."""
    key = settings.backend.api_key
    where = url or server_urls(settings)[0]
    return ServerAddress(where, key.get_secret_value() if key is not None else "")


def nothing_to_serve() -> InvalidConfiguration:
    """Say what an operator has to name who has named nothing."""
    return InvalidConfiguration(
        "backend.url",
        "nothing to serve: name a running server (--backend-url http://127.0.0.1:9931), a model "
        "of an Ollama (--ollama NAME) or one to start a server for (--model FILE.gguf); "
        "'temper demo' needs none of them",
    )


@asynccontextmanager
async def _connect_to_server(settings: Settings, url: str) -> AsyncGenerator[Backend, None]:
    named = settings.backend.kind
    kind = None if named == "auto" else EngineKind(named)
    async with _connect(settings, address_of(settings, url), kind) as backend:
        yield backend


@asynccontextmanager
async def _connect_to_servers(
    settings: Settings, urls: Sequence[str]
) -> AsyncGenerator[Backend, None]:
    """Connect to several servers of one model; while one loads, another may be ready."""
    impatient = settings.backend.model_copy(update={"load_wait_seconds": 0})
    alone = settings.model_copy(update={"backend": impatient})
    async with AsyncExitStack() as stack:
        members = [await stack.enter_async_context(_connect_to_server(alone, url)) for url in urls]
        pace = PoolTimeouts(load_wait=settings.backend.load_wait_seconds)
        process_count = settings.server.workers * settings.backend.replicas
        pool = Pool(members, pace, process_count=process_count)
        yield await stack.enter_async_context(pool.watch_members())


@asynccontextmanager
async def _start_server(
    settings: Settings, on_stage: StageListener
) -> AsyncGenerator[Backend, None]:
    async with (
        keep_going(settings, settings.model, on_stage) as server,
        connect_managed(settings, settings.model, server) as backend,
    ):
        yield backend


@asynccontextmanager
async def _connect(
    settings: Settings, found: ServerAddress, kind: EngineKind | None
) -> AsyncGenerator[Backend, None]:
    """Speak to a server as its kind wants it; without one it is recognised."""
    connection = _connection(settings, found, kind)
    ollamas: list[Ollama] = []

    def adapter_for(kind: EngineKind) -> Backend:
        match kind:
            case EngineKind.LLAMA_SERVER:
                wait = settings.backend.load_wait_seconds
                return LlamaServer(connection, load_wait=wait)
            case EngineKind.OLLAMA:
                overrides = replace(
                    ollama_overrides(settings.ollama),
                    fitting=ollama_fitting(settings, found.base_url),
                )
                ollamas.append(Ollama(connection, overrides))
                return ollamas[-1]
            case EngineKind.OPENAI:
                return AdaptiveEngine(connection)
            case EngineKind.ANTHROPIC:
                from proxy.backends.anthropic import Anthropic

                return Anthropic(connection)

    try:
        yield DetectedBackend(connection, adapter_for) if kind is None else adapter_for(kind)
    finally:
        for ollama in ollamas:
            await ollama.unload()
        await connection.close()


def _connection(settings: Settings, found: ServerAddress, kind: EngineKind | None) -> BackendClient:
    if kind is EngineKind.ANTHROPIC:
        from proxy.backends.anthropic import KEY_HEADER, VERSION_HEADER

        return connection_to(settings.backend, found, key_header=KEY_HEADER, usual=VERSION_HEADER)
    return connection_to(settings.backend, found)


def ollama_overrides(settings: OllamaSettings) -> OllamaOverrides:
    """Translate what the operator decided; Ollama wants a number where there is no unit."""
    stays: str | int | None = settings.keep_alive or None
    if settings.keep_alive.removeprefix("-").isdecimal():
        stays = int(settings.keep_alive)
    return OllamaOverrides(settings.model, settings.context_tokens or None, stays)


_PATIENCE = 1.5  # seconds for each question to a server on this machine

_HOW = (
    ("--backend-url http://127.0.0.1:8080", "for a server that runs elsewhere"),
    ("--model path/to/model.gguf", "starts a llama-server for the file"),
    ("--ollama qwen3:8b", "for an Ollama that runs elsewhere (OLLAMA_HOST)"),
)


def ways_to_name(command: str) -> str:
    """List how a server is named for a command, one way in each line."""
    ways = [*((f"temper {command} {flags}", what) for flags, what in _HOW)]
    ways.append(("temper demo", "needs neither"))
    width = max(len(way) for way, _ in ways)
    return "".join(f"\n  {way:{width}}   {what}" for way, what in ways)


async def find_backend(
    settings: Settings, urls: Sequence[str], command: str = "serve"
) -> FoundServer | None:
    """Look for a server if there is a need to: at `urls`, or else where servers usually are.

    The first of them counts. Raises `InvalidConfiguration`, with what to do for `command`, where
    nothing is named and nothing is found.
    """
    if not names_nothing(settings):
        return None
    urls = urls or tuple(likely_urls(os.environ.get("OLLAMA_HOST", "")))
    found = await find_running(urls, BackendClient, _PATIENCE)
    if found is None:
        places = ", ".join(urls)
        problem = f"nothing is named, and no server answers at {places}. Do one of these:"
        raise InvalidConfiguration("backend.url", problem + ways_to_name(command))
    return found


def with_backend(settings: Settings, found: FoundServer | None) -> Settings:
    """Return the settings of an operator who names what was found where there is nothing else."""
    if found is None or not names_nothing(settings):
        return settings
    named = {"url": found.url, "kind": found.kind.value}
    return settings.model_copy(update={"backend": settings.backend.model_copy(update=named)})
