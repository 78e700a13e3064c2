"""Opens what the settings name: each kind of backend, and several models that share the memory.

Anthropic's language is imported only when it is used, because imports slow down every start.
"""

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

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
from proxy.backends.openai_compatible import AdaptiveEngine
from proxy.backends.pool import Pool, PoolTimeouts
from proxy.backends.transport import BackendClient
from proxy.errors import InvalidConfiguration
from proxy.hardware.fit import CacheType, Caching, need
from proxy.processes.fleet import Fleet
from proxy.processes.managed import Supervised
from proxy.processes.model_file import size_of
from proxy.processes.process import ServerAddress
from proxy.processes.start_progress import StageListener
from proxy.processes.supervisor import StatusListener, Supervisor
from proxy.processes.swapping import Budget, LoadableModel, SwapPlanner
from proxy.profiles.known_model import Overrides
from proxy.profiles.profile import Profile
from proxy.serving.assembly import overrides_of
from proxy.serving.managed_server import (
    connect_managed,
    connection_to,
    keep_going,
    model_file,
    ollama_fitting,
    settle_window,
    supervisor,
)
from proxy.serving.services import ServiceOptions, Services
from proxy.settings import Settings
from proxy.settings.models import ServedModel
from proxy.settings.sections import Address


@asynccontextmanager
async def open_services(
    settings: Settings,
    serving: ServiceOptions,
    on_stage: StageListener,
    *,
    remote: Supervised | None = None,
) -> AsyncGenerator[Services, None]:
    """Open every model that the settings name; raises `InvalidConfiguration` if there is none.

    A server that has to be started starts in the background. If another process manages it, it is
    `remote`.
    """
    if settings.models:
        async with open_models(settings, serving, on_stage) as services:
            yield services
    else:
        async with open_backend(settle_window(settings), on_stage, remote=remote) as backend:
            yield serving.alone(backend)


@asynccontextmanager
async def open_backend(
    settings: Settings, on_stage: StageListener, *, remote: Supervised | None = None
) -> AsyncGenerator[Backend, None]:
    """Connect to the configured server, or start one for the configured model."""
    urls = server_urls(settings)
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        if len(urls) == 1:
            yield await enter(_connect_to_server(settings, urls[0]))
        elif urls:
            yield await enter(_connect_to_servers(settings, urls))
        else:
            starting = keep_going(settings, on_stage)
            server = remote if remote is not None else await enter(starting)
            yield await enter(connect_managed(settings, server))


def server_urls(settings: Settings) -> tuple[str, ...]:
    """Return where the running servers are; Ollama and Anthropic's API have default addresses."""
    is_ollama = settings.backend.kind == "ollama" or settings.ollama.model is not None
    if is_ollama and not settings.backend.addresses:
        return (ollama_url(os.environ.get("OLLAMA_HOST", "")),)
    if settings.backend.kind == "anthropic" and not settings.backend.addresses:
        from proxy.backends.anthropic import ADDRESS

        return (ADDRESS,)
    return settings.backend.addresses


def names_nothing(settings: Settings) -> bool:
    return not (server_urls(settings) or settings.models or settings.model.source)


@asynccontextmanager
async def open_shared_server(
    settings: Settings,
    on_stage: StageListener,
    on_change: StatusListener = lambda _status: None,
) -> AsyncGenerator[Supervisor | None, None]:
    """Run a server that several workers share; None if it is not ours."""
    if server_urls(settings):
        yield None
    else:
        async with keep_going(settings, on_stage, on_change) as server:
            yield server


def address_of(settings: Settings, url: str | None = None) -> ServerAddress:
    """Return the address of a server that is not ours, the first one or that at `url`."""
    key = settings.backend.api_key
    where = url or server_urls(settings)[0]
    return ServerAddress(where, key.get_secret_value() if key is not None else "")


@asynccontextmanager
async def _connect_to_servers(
    settings: Settings, urls: Sequence[str]
) -> AsyncGenerator[Backend, None]:
    """Connect to several servers of one model; while one loads, another may be ready."""
    impatient = settings.backend.model_copy(update={"load_wait_seconds": 0})
    alone = settings.model_copy(update={"backend": impatient})
    async with AsyncExitStack() as stack:
        members = [await stack.enter_async_context(_connect_to_server(alone, url)) for url in urls]
        timeouts = PoolTimeouts(load_wait=settings.backend.load_wait_seconds)
        process_count = settings.server.workers * settings.backend.replicas
        pool = Pool(members, timeouts, process_count=process_count)
        yield await stack.enter_async_context(pool.watch_members())


@asynccontextmanager
async def _connect_to_server(settings: Settings, url: str) -> AsyncGenerator[Backend, None]:
    """Connect to a server of its kind; without a kind it is detected."""
    named, found = settings.backend.kind, address_of(settings, url)
    kind = None if named == "auto" else named
    connection = _connection(settings, found, kind)
    ollamas: list[Ollama] = []

    def adapter_for(kind: EngineKind) -> Backend:
        match kind:
            case "llama-server":
                return LlamaServer(connection, load_wait=settings.backend.load_wait_seconds)
            case "ollama":
                ollamas.append(Ollama(connection, ollama_overrides(settings, found.base_url)))
                return ollamas[-1]
            case "openai":
                return AdaptiveEngine(connection)
            case "anthropic":
                from proxy.backends.anthropic import Anthropic

                return Anthropic(connection)

    try:
        yield DetectedBackend(connection, adapter_for) if kind is None else adapter_for(kind)
    finally:
        for ollama in ollamas:
            await ollama.unload()
        await connection.close()


def _connection(settings: Settings, found: ServerAddress, kind: EngineKind | None) -> BackendClient:
    if kind == "anthropic":
        from proxy.backends.anthropic import KEY_HEADER, VERSION_HEADER

        return connection_to(settings.backend, found, key_header=KEY_HEADER, usual=VERSION_HEADER)
    return connection_to(settings.backend, found)


def ollama_overrides(settings: Settings, url: str) -> OllamaOverrides:
    """Translate the operator's decisions; Ollama wants a number if there is no unit."""
    own, fitting = settings.ollama, ollama_fitting(settings, url)
    stays: str | int | None = own.keep_alive or None
    if own.keep_alive.removeprefix("-").isdecimal():
        stays = int(own.keep_alive)
    return OllamaOverrides(own.model, own.context_tokens or None, stays, fitting)


_PATIENCE = 1.5  # seconds for each question to a server on this machine

_HOW = (
    ("--backend-url http://127.0.0.1:8080", "for a server that runs elsewhere"),
    ("--model path/to/model.gguf", "starts a llama-server for the file"),
    ("--ollama qwen3:8b", "for an Ollama that runs elsewhere (OLLAMA_HOST)"),
)


_DOCTOR = "doctor"


def ways_to_name(command: str) -> str:
    """List how to name a server for a command, one way per line."""
    ways = [*((f"temper {command} {flags}", what) for flags, what in _HOW)]
    ways.append(("temper demo", "needs neither"))
    width = max(len(way) for way, _ in ways)
    return "".join(f"\n  {way:{width}}   {what}" for way, what in ways)


async def find_backend(
    settings: Settings, urls: Sequence[str], command: str = "serve"
) -> FoundServer | None:
    """Look for a server if needed: at `urls`, or else where servers usually are.

    The first one counts. The doctor also looks for a running Temper, whose managed server it can
    only examine through it. If nothing is named and nothing is found, raises
    `InvalidConfiguration` with what to do for `command`.
    """
    if not names_nothing(settings):
        return None
    if not urls:
        urls = tuple(likely_urls(os.environ.get("OLLAMA_HOST", "")))
        if command == _DOCTOR and settings.server.port:
            urls = (*urls, f"http://127.0.0.1:{settings.server.port}")
    found = await find_running(urls, BackendClient, _PATIENCE)
    if found is None:
        problem = f"nothing is named, and no server answers at {', '.join(urls)}. Do one of these:"
        raise InvalidConfiguration("backend.url", problem + ways_to_name(command))
    return found


def with_backend(settings: Settings, found: FoundServer | None) -> Settings:
    """Return the settings with the server that was found, if they name nothing else."""
    if found is None or not names_nothing(settings):
        return settings
    named = {"url": found.url, "kind": found.kind}
    return settings.model_copy(update={"backend": settings.backend.model_copy(update=named)})


_MB = 2**20


@asynccontextmanager
async def open_models(
    settings: Settings, serving: ServiceOptions, on_stage: StageListener
) -> AsyncGenerator[Services, None]:
    """Open every model of `[models.NAME]`; those with a file are loaded on demand.

    Raises `InvalidConfiguration` and `LaunchFailed` if one of them cannot be served at all.
    """
    each = {name: settings_of(settings, name) for name in settings.models}
    servers = {name: supervisor(own) for name, own in each.items() if own.model.source is not None}
    fleet = Fleet(servers, _swapping(settings, servers), most_waiting=serving.max_waiting)
    services = []
    async with AsyncExitStack() as stack:
        stack.push_async_callback(fleet.close)
        for name, own in each.items():
            served, server = settings.models[name], servers.get(name)
            kind = open_backend(own, on_stage) if server is None else connect_managed(own, server)
            service = serving.service(
                await stack.enter_async_context(kind),
                name=name,
                aliases=tuple(served.aliases),
                overrides=overrides_for(settings, name, serving.profiles),
                upstream=served.upstream_model or "",
                fleet=None if server is None else fleet,
            )
            services.append(replace(service, parallel=served.parallel_requests or service.parallel))
            if served.preload:
                fleet.preload(name)
        yield Services(services, serving.patterns)


def settings_of(settings: Settings, name: str) -> Settings:
    """Return the settings for serving one of several models alone."""
    served = settings.models[name]
    address = {field: getattr(served, field) for field in Address.model_fields}
    thinking = settings.profile.thinking if served.thinking == "auto" else served.thinking
    effort = settings.profile.effort if served.effort == "auto" else served.effort
    chosen = served.profile or settings.profile.name
    profile = {"name": chosen, "thinking": thinking, "effort": effort}
    changed = {
        "backend": settings.backend.model_copy(update=address),
        "model": served.model_copy(update={"alias": name}),
        "profile": settings.profile.model_copy(update=profile),
        "models": {},
    }
    return settings.model_copy(update=changed)


def overrides_for(settings: Settings, name: str, profiles: tuple[Profile, ...]) -> Overrides:
    """Return the operator's overrides of one model's profile; raises `InvalidConfiguration`."""
    has_own = settings.models[name].profile is not None
    setting = f"models.{name}.profile" if has_own else "profile.name"
    return overrides_of(settings_of(settings, name).profile, profiles, setting)


def memory_of(served: ServedModel) -> int:
    """Return a model's memory in bytes: as configured, or what it needs.

    That is its weights, the cache of all slots and the compute buffers. If the file does not say,
    it is the size of the file, and 0 for a model that is still to be downloaded.
    """
    if served.memory_mb or served.path is None:
        return served.memory_mb * _MB
    shape = model_file(served).shape
    if shape is None:
        return size_of(served.path)
    keys, values = CacheType[served.cache_type_k.upper()], CacheType[served.cache_type_v.upper()]
    window = min(served.context_tokens, shape.trained_context)
    return need(shape, window, Caching(served.slots, keys, values)).total


def _swapping(settings: Settings, servers: Mapping[str, Supervisor]) -> SwapPlanner:
    budget = settings.swapping
    memory = {name: memory_of(settings.models[name]) for name in servers}
    for name, needed in memory.items():
        if 0 < budget.memory_mb * _MB < needed:
            problem = (
                f"it takes {-(-needed // _MB)} MB with its window, and swapping.memory_mb is "
                f"{budget.memory_mb}: raise that, take less with models.{name}.context_tokens or "
                f"slots, or say with models.{name}.memory_mb what it really takes"
            )
            raise InvalidConfiguration(f"models.{name}.path", problem)
    models = [
        LoadableModel(name, memory[name], settings.models[name].ttl_seconds or None)
        for name in servers
    ]
    return SwapPlanner(models, Budget(budget.memory_mb * _MB or None, budget.max_loaded or None))
