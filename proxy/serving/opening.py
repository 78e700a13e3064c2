"""Opens the configured backends, of any kind of engine; several models can share the memory.

Anthropic's adapter is imported only when it is used, because each import slows down the start.
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
from proxy.serving.fallback import Fallback
from proxy.serving.managed_server import (
    choose_window,
    connect_managed,
    connection_to,
    keep_running,
    model_file,
    ollama_fitting,
    supervisor,
)
from proxy.serving.presets import defaults_of
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
    """Open every configured model; raises `InvalidConfiguration` if no model is configured.

    A managed server starts in the background. `remote` is a server that another process manages.
    """
    if settings.models:
        async with open_models(settings, serving, on_stage) as services:
            yield services
    else:
        async with open_backend(choose_window(settings), on_stage, remote=remote) as backend:
            yield serving.services_for(backend)


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
            starting = keep_running(settings, on_stage)
            server = remote if remote is not None else await enter(starting)
            yield await enter(connect_managed(settings, server))


def server_urls(settings: Settings) -> tuple[str, ...]:
    """Return the addresses of running servers; Ollama and Anthropic have default addresses."""
    is_ollama = settings.backend.kind == "ollama" or settings.ollama.model is not None
    if is_ollama and not settings.backend.addresses:
        return (ollama_url(os.environ.get("OLLAMA_HOST", "")),)
    if settings.backend.kind == "anthropic" and not settings.backend.addresses:
        from proxy.backends.anthropic import ADDRESS

        return (ADDRESS,)
    return settings.backend.addresses


def selects_no_server(settings: Settings) -> bool:
    """Return whether the settings name neither a server nor a model."""
    return not (server_urls(settings) or settings.models or settings.model.source)


@asynccontextmanager
async def open_shared_server(
    settings: Settings,
    on_stage: StageListener,
    on_change: StatusListener = lambda _status: None,
) -> AsyncGenerator[Supervisor | None, None]:
    """Run a managed server that several workers share; yields None if Temper manages none."""
    if server_urls(settings):
        yield None
    else:
        async with keep_running(settings, on_stage, on_change) as server:
            yield server


def address_of(settings: Settings, url: str | None = None) -> ServerAddress:
    """Return the address and key of the server at `url`, or else of the first configured server."""
    key = settings.backend.api_key
    url = url or server_urls(settings)[0]
    return ServerAddress(url, key.get_secret_value() if key is not None else "")


@asynccontextmanager
async def _connect_to_servers(
    settings: Settings, urls: Sequence[str]
) -> AsyncGenerator[Backend, None]:
    """Connect to several servers of one model."""
    # A member of the pool that is loading its model refuses requests at once, because another
    # member may be ready. If no member is ready, the pool waits for a member.
    without_wait = settings.backend.model_copy(update={"load_wait_seconds": 0})
    member_settings = settings.model_copy(update={"backend": without_wait})
    async with AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(_connect_to_server(member_settings, url))
            for url in urls
        ]
        timeouts = PoolTimeouts(load_wait=settings.backend.load_wait_seconds)
        process_count = settings.server.workers * settings.backend.replicas
        pool = Pool(members, timeouts, process_count=process_count)
        yield await stack.enter_async_context(pool.watch_members())


@asynccontextmanager
async def _connect_to_server(settings: Settings, url: str) -> AsyncGenerator[Backend, None]:
    """Connect to a server with the adapter for its kind; `auto` detects the kind."""
    configured, address = settings.backend.kind, address_of(settings, url)
    kind = None if configured == "auto" else configured
    connection = _connection(settings, address, kind)
    ollamas: list[Ollama] = []

    def adapter_for(kind: EngineKind) -> Backend:
        match kind:
            case "llama-server":
                return LlamaServer(connection, load_wait=settings.backend.load_wait_seconds)
            case "ollama":
                ollamas.append(Ollama(connection, ollama_overrides(settings, address.base_url)))
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
            # otherwise, a model that was loaded with Temper's window would stay in memory
            await ollama.unload()
        await connection.close()


def _connection(
    settings: Settings, address: ServerAddress, kind: EngineKind | None
) -> BackendClient:
    if kind == "anthropic":
        from proxy.backends.anthropic import KEY_HEADER, VERSION_HEADER

        return connection_to(
            settings.backend, address, key_header=KEY_HEADER, default_headers=VERSION_HEADER
        )
    return connection_to(settings.backend, address)


def ollama_overrides(settings: Settings, url: str) -> OllamaOverrides:
    """Translate the settings of [ollama] for the server at `url`."""
    ollama, fitting = settings.ollama, ollama_fitting(settings, url)
    keep_alive: str | int | None = ollama.keep_alive or None
    # Ollama requires a duration without a unit to be a number, not a string
    if ollama.keep_alive.removeprefix("-").isdecimal():
        keep_alive = int(ollama.keep_alive)
    return OllamaOverrides(ollama.model, ollama.context_tokens or None, keep_alive, fitting)


_LOOKUP_SECONDS = 1.5  # for each request to a server on this machine

# flags that name a server or model, with the purpose that the error message states
_ALTERNATIVES = (
    ("--backend-url http://127.0.0.1:8080", "for a server that runs elsewhere"),
    ("--model path/to/model.gguf", "starts a llama-server for the file"),
    ("--ollama qwen3:8b", "for an Ollama that runs elsewhere (OLLAMA_HOST)"),
)


# These commands also look for a running Temper and use it, because Temper's backend may be a
# managed server, which only Temper can reach.
_THROUGH_TEMPER = ("doctor", "chat")


def ways_to_name(command: str) -> str:
    """List the command lines that name a server or a model, one per line."""
    lines = [*((f"temper {command} {flags}", purpose) for flags, purpose in _ALTERNATIVES)]
    lines.append(("temper demo", "needs neither"))
    width = max(len(line) for line, _ in lines)
    return "".join(f"\n  {line:{width}}   {purpose}" for line, purpose in lines)


async def find_backend(
    settings: Settings, urls: Sequence[str], command: str = "serve"
) -> FoundServer | None:
    """Look for a running server, if the settings name neither a server nor a model.

    Tries `urls`, or the default addresses if `urls` is empty; the doctor and the chat also look for
    a running Temper. Returns the first server that responds. Raises `InvalidConfiguration` if no
    server responds; the message lists the flags of `command` that name a server or a model.
    """
    if not selects_no_server(settings):
        return None
    if not urls:
        urls = tuple(likely_urls(os.environ.get("OLLAMA_HOST", "")))
        if command in _THROUGH_TEMPER and settings.server.port:
            urls = (*urls, f"http://127.0.0.1:{settings.server.port}")
    server = await find_running(urls, BackendClient, _LOOKUP_SECONDS)
    if server is None:
        problem = f"no backend is configured, and no server responds at {', '.join(urls)}."
        remedy = f" Do one of these:{ways_to_name(command)}"
        raise InvalidConfiguration("backend.url", problem + remedy)
    return server


def with_backend(settings: Settings, server: FoundServer | None) -> Settings:
    """Add the found server to settings that name neither a server nor a model."""
    if server is None or not selects_no_server(settings):
        return settings
    address = {"url": server.url, "kind": server.kind}
    return settings.model_copy(update={"backend": settings.backend.model_copy(update=address)})


_MB = 2**20


@asynccontextmanager
async def open_models(
    settings: Settings, serving: ServiceOptions, on_stage: StageListener
) -> AsyncGenerator[Services, None]:
    """Open every model of `[models.NAME]`; models with a file are loaded on demand.

    Raises `InvalidConfiguration` and `LaunchFailed` if a model can never be served.
    """
    settings_by_name = {name: settings_of(settings, name) for name in settings.models}
    # `supervisor` checks the launch plan, so that a wrong file is an error at startup
    servers = {
        name: supervisor(single)
        for name, single in settings_by_name.items()
        if single.model.source is not None
    }
    fleet = Fleet(servers, _swapping(settings, servers), most_waiting=serving.max_waiting)
    services = []
    async with AsyncExitStack() as stack:
        stack.push_async_callback(fleet.close)
        for name, single in settings_by_name.items():
            served, server = settings.models[name], servers.get(name)
            backend = (
                open_backend(single, on_stage)
                if server is None
                else connect_managed(single, server)
            )
            service = serving.service(
                await stack.enter_async_context(backend),
                name=name,
                aliases=tuple(served.aliases),
                overrides=overrides_for(settings, name, serving.profiles),
                upstream=served.upstream_model or "",
                fleet=None if server is None else fleet,
            )
            presets = {preset: defaults_of(values) for preset, values in served.presets.items()}
            parallel = served.parallel_requests or service.parallel
            fallback = (
                Fallback(served.fallback, served.fallback_per_hour) if served.fallback else None
            )
            services.append(replace(service, parallel=parallel, presets=presets, fallback=fallback))
            if served.preload:
                fleet.preload(name)
        yield Services(services, serving.patterns)


def settings_of(settings: Settings, name: str) -> Settings:
    """Return settings in which [models.NAME] is the only model, as [backend] and [model]."""
    served = settings.models[name]
    address = {field: getattr(served, field) for field in Address.model_fields}
    thinking = settings.profile.thinking if served.thinking == "auto" else served.thinking
    effort = settings.profile.effort if served.effort == "auto" else served.effort
    profile_name = served.profile or settings.profile.name
    profile = {"name": profile_name, "thinking": thinking, "effort": effort}
    changed = {
        "backend": settings.backend.model_copy(update=address),
        "model": served.model_copy(update={"alias": name}),
        "profile": settings.profile.model_copy(update=profile),
        "models": {},  # otherwise `open_services` would open all models again
    }
    return settings.model_copy(update=changed)


def overrides_for(settings: Settings, name: str, profiles: tuple[Profile, ...]) -> Overrides:
    """Return the operator's overrides of one model's profile; raises `InvalidConfiguration`."""
    is_named = settings.models[name].profile is not None
    setting = f"models.{name}.profile" if is_named else "profile.name"
    return overrides_of(settings_of(settings, name).profile, profiles, setting)


def memory_of(served: ServedModel) -> int:
    """Return the memory of a model in bytes: as configured, or else calculated.

    The calculation adds weights, the KV cache of all slots and compute buffers. If the file does
    not contain the model's dimensions, the size of the file is returned. For a model of a
    repository, the result is 0, because its file may not be downloaded yet.
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
        # this model alone would exceed the operator's limit
        if 0 < budget.memory_mb * _MB < needed:
            problem = (
                f"the model takes {-(-needed // _MB)} MB with its window, but swapping.memory_mb "
                f"is {budget.memory_mb}; raise swapping.memory_mb, reduce "
                f"models.{name}.context_tokens or slots, or set models.{name}.memory_mb to the "
                "measured size"
            )
            raise InvalidConfiguration(f"models.{name}.path", problem)
    models = [
        LoadableModel(name, memory[name], settings.models[name].ttl_seconds or None)
        for name in servers
    ]
    return SwapPlanner(models, Budget(budget.memory_mb * _MB or None, budget.max_loaded or None))
