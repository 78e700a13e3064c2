"""Several models: each opened as it is configured, and those with a file sharing the memory."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TypeAlias

from proxy.backends.client import Backend
from proxy.errors import InvalidConfiguration
from proxy.hardware.fit import CacheType, Caching, need
from proxy.processes.fleet import Fleet
from proxy.processes.model_file import size_of
from proxy.processes.supervisor import Supervisor
from proxy.processes.swapping import Budget, LoadableModel, SwapPlanner
from proxy.profiles.known_model import Overrides
from proxy.profiles.profile import Profile
from proxy.serving.assembly import overrides_of
from proxy.serving.managed_server import connect_managed, model_file, supervisor
from proxy.serving.services import ServiceOptions, Services
from proxy.settings import Settings
from proxy.settings.models import ServedModel
from proxy.settings.sections import Address

OpenBackend: TypeAlias = Callable[[Settings], AbstractAsyncContextManager[Backend]]

_MB = 2**20


@asynccontextmanager
async def open_models(
    settings: Settings, serving: ServiceOptions, open_backend: OpenBackend
) -> AsyncGenerator[Services, None]:
    """Open every model of `[models.NAME]`; those with a file are loaded when they are asked for.

    Raises `InvalidConfiguration` and `LaunchFailed` if one of them cannot be served anyway.
    """
    each = {name: settings_of(settings, name) for name in settings.models}
    servers = {
        name: supervisor(own, own.model)
        for name, own in each.items()
        if own.model.source is not None
    }
    fleet = Fleet(servers, _swapping(settings, servers), most_waiting=serving.max_waiting)
    services = []
    async with AsyncExitStack() as stack:
        stack.push_async_callback(fleet.close)
        for name, own in each.items():
            served, server = settings.models[name], servers.get(name)
            kind = open_backend(own) if server is None else connect_managed(own, own.model, server)
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
    """Return the settings of somebody who serves one of several models alone."""
    served = settings.models[name]
    address = {field: getattr(served, field) for field in Address.model_fields}
    thinking = settings.profile.thinking if served.thinking == "auto" else served.thinking
    profile = {"name": served.profile or settings.profile.name, "thinking": thinking}
    changed = {
        "backend": settings.backend.model_copy(update=address),
        "model": served.model_copy(update={"alias": name}),
        "profile": settings.profile.model_copy(update=profile),
        "models": {},
    }
    return settings.model_copy(update=changed)


def overrides_for(settings: Settings, name: str, profiles: tuple[Profile, ...]) -> Overrides:
    """Return what the operator decided about the profile of one model.

    Raises `InvalidConfiguration`, by the name of the setting where the profile was named.
    """
    has_own = settings.models[name].profile is not None
    setting = f"models.{name}.profile" if has_own else "profile.name"
    return overrides_of(settings_of(settings, name).profile, profiles, setting)


def memory_of(served: ServedModel) -> int:
    """Return a model's memory in bytes: what the operator says, or else what it needs.

    That is its weights, the cache of all its slots and what it computes in; where the file does
    not tell, it is the size of the file, and 0 for a model that is still to be downloaded.
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
