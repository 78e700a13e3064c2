"""A managed llama-server for a model: its window, launch plan, supervisor and connection.

A window that is not configured is chosen to fit the memory, also for Ollama's models.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from proxy.backends.client import Backend, Description
from proxy.backends.llama_server import LlamaServer
from proxy.backends.ollama_models import Fitting
from proxy.backends.transport import AUTHORIZATION, BackendClient, Timeouts
from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from proxy.hardware.fit import (
    STEP,
    CacheType,
    Caching,
    Memory,
    largest_window,
    ollama_default_window,
)
from proxy.hardware.shape import shape_of
from proxy.hardware.summary import amount
from proxy.processes.launch import (
    NAME,
    LaunchPlan,
    check_model_file,
    check_plan,
    find_program,
    sampling_flags,
    uses_devices,
)
from proxy.processes.llama_server import start_llama_server
from proxy.processes.managed import ManagedBackend, Supervised
from proxy.processes.model_file import ModelFile, read_model_file
from proxy.processes.process import ServerAddress
from proxy.processes.start_progress import StageListener
from proxy.processes.supervisor import StatusListener, Supervisor
from proxy.profiles.files import load_profiles
from proxy.profiles.known_model import KnownModel, Overrides, introduce
from proxy.profiles.recognition import Evidence
from proxy.serving.assembly import overrides_of
from proxy.settings import Settings, is_loopback
from proxy.settings.sections import Backend as BackendSettings
from proxy.settings.sections import Context, Model

logger = logging.getLogger(__name__)

_MEASURED = ("full", "fast")  # budgets for which the hardware decides


@asynccontextmanager
async def keep_going(
    settings: Settings,
    on_stage: StageListener,
    on_change: StatusListener = lambda _status: None,
) -> AsyncGenerator[Supervisor, None]:
    """Keep a server for our model running while the block runs.

    The block does not wait for its start. If the first start fails, the block ends with a kind of
    `ProcessFailed`, because there is nothing to serve. Raises `InvalidConfiguration` without a
    model.
    """
    if settings.model.source is None:
        raise nothing_to_serve()
    server = supervisor(settings, on_stage, on_change)
    try:
        async with asyncio.TaskGroup() as group:
            first_start = group.create_task(server.ready())
            yield server
            first_start.cancel()
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        await server.close()


def supervisor(
    settings: Settings,
    on_stage: StageListener = lambda _stage: None,
    on_change: StatusListener = lambda _status: None,
) -> Supervisor:
    """Prepare a server that the first request starts; raises `LaunchFailed`."""
    own, plan = settings.model, launch_plan(settings)
    check_plan(plan)
    logger.info("%s: %s", server_name(own), plan)
    start = partial(start_llama_server, plan, ready_seconds=own.load_seconds, on_stage=on_stage)
    return Supervisor(server_name(own), start, on_change=on_change)


@asynccontextmanager
async def connect_managed(settings: Settings, server: Supervised) -> AsyncGenerator[Backend, None]:
    """Connect to a managed server, wherever it is."""
    own, file = settings.model, model_file(settings.model)

    def connect(address: ServerAddress) -> LlamaServer:
        connection = connection_to(settings.backend, address)
        load_wait = settings.backend.load_wait_seconds
        return LlamaServer(connection, load_wait=load_wait, architecture=file.architecture)

    names = (alias_of(own), *file.names)
    planned = Description(
        names, file.architecture, file.template, slots=own.slots, window=own.context_tokens
    )
    backend = ManagedBackend(server, planned, connect, load_wait=settings.backend.load_wait_seconds)
    try:
        yield backend
    finally:
        await backend.close()


def connection_to(
    settings: BackendSettings,
    address: ServerAddress,
    *,
    key_header: str = AUTHORIZATION,
    usual: Mapping[str, str] | None = None,
) -> BackendClient:
    """Connect to a server; the operator's headers take precedence over the `usual` ones."""
    timeouts = Timeouts(
        connect=settings.connect_seconds,
        first_byte=settings.first_byte_seconds,
        idle=settings.idle_seconds,
        lost=settings.lost_seconds,
    )
    own = {name.lower(): value.get_secret_value() for name, value in settings.headers.items()}
    return BackendClient(
        address.base_url,
        address.api_key,
        headers={**(usual or {}), **own},
        timeouts=timeouts,
        key_header=key_header,
    )


def settle_window(settings: Settings) -> Settings:
    """Choose our model's window if it is to be what fits, by what memory there is now.

    Raises `InvalidConfiguration` if none fits, and `LaunchFailed` for a file that is no model.
    """
    own = settings.model
    if own.source is None or settings.context.budget not in _MEASURED:
        return settings
    if own.path is not None:
        check_model_file(own.path)
    from proxy.hardware.snapshot import snapshot  # takes 50 ms that most starts can save

    memory = usable_by(find_program(own.server), snapshot())
    window = fit_window(own, settings.context, model_file(own), memory)
    model = own.model_copy(update={"context_tokens": window})
    context = settings.context.model_copy(update={"budget": "backend"})
    return settings.model_copy(update={"model": model, "context": context})


def launch_plan(settings: Settings) -> LaunchPlan:
    """Plan a start according to the model's profile; raises `LaunchFailed` without a program."""
    own = settings.model
    assert own.source is not None  # noqa: S101 - there is a model to start a server for
    profile = introduce_file(settings, model_file(own)).recognition.profile
    return LaunchPlan(
        program=find_program(own.server),
        model=own.source,
        context_tokens=own.context_tokens,
        slots=own.slots,
        alias=alias_of(own),
        gpu_layers=None if own.gpu_layers == "auto" else own.gpu_layers,
        flash_attention=own.flash_attention,
        cache_type_k=own.cache_type_k,
        cache_type_v=own.cache_type_v,
        port=own.port,
        extra=(*profile.launch_flags, *sampling_flags(profile.sampling), *own.extra_arguments),
    )


def nothing_to_serve() -> InvalidConfiguration:
    """Say what an operator who has named nothing has to name."""
    return InvalidConfiguration(
        "backend.url",
        "nothing to serve: name a running server (--backend-url http://127.0.0.1:9931), a model "
        "of an Ollama (--ollama NAME) or one to start a server for (--model FILE.gguf); "
        "'temper demo' needs none of them",
    )


def server_name(own: Model) -> str:
    return f"{NAME}/{alias_of(own)}"


def alias_of(own: Model) -> str:
    """Return the name that clients use, by default that of the file or of the repository."""
    if own.alias is not None:
        return own.alias
    if own.path is not None:
        return own.path.stem
    return (own.hf_repo or "").rpartition("/")[2].partition(":")[0]


def introduce_file(
    settings: Settings, file: ModelFile, overrides: Overrides | None = None
) -> KnownModel:
    """Give our model its profile, from its file and the operator's decisions."""
    profiles, alias = load_profiles(settings.profile.folder), settings.model.alias
    names = (*file.names, *([alias] if alias else []))
    evidence = Evidence(names, file.architecture, file.template)
    overrides = overrides or overrides_of(settings.profile, profiles)
    return introduce(file.names[0], evidence, profiles, overrides)


def model_file(own: Model) -> ModelFile:
    """Return what is known of a model beforehand: its name if it is still to be downloaded."""
    source = own.source
    return read_model_file(source) if isinstance(source, Path) else ModelFile((source or "",))


def usable_by(program: tuple[str, ...], memory: Memory) -> Memory:
    """Leave out the devices if the program was built without support for any."""
    return memory if not memory.devices or uses_devices(program) else memory.without_devices()


def ollama_fitting(settings: Settings, url: str) -> Fitting | None:
    """Return how to choose the window of an Ollama's models, if the hardware decides it.

    Only for an Ollama on this machine, because the memory of another one is unknown. `fast`
    requests the same window as `full` and uses half of it.
    """
    is_near = is_loopback(urlsplit(url).hostname or "")
    return ollama_window if is_near and settings.context.budget in _MEASURED else None


def ollama_window(told: JsonObject, size: int, memory: Memory | None = None) -> int | None:
    """Return the largest window for an Ollama's model, by its `model_info`; None to leave it.

    It is at least what Ollama would choose. Without a `memory` it is that of this machine, now.
    """
    from proxy.hardware.snapshot import snapshot

    own_keys = f"{told.get('general.architecture')}."
    # lists are left out, and one of them may be the numbers of heads
    is_cut = any(name.startswith(own_keys) and value in (None, []) for name, value in told.items())
    shape = shape_of(told, size)
    if shape is None or is_cut:
        return None
    memory = memory or snapshot()
    own = ollama_default_window(sum(device.total for device in memory.devices))
    least = min(own, shape.trained_context)
    return max(least, largest_window(shape, memory, Caching()).window)


def fit_window(model: Model, context: Context, file: ModelFile, memory: Memory) -> int:
    """Return the largest window that fits, half of it for `fast`; raises InvalidConfiguration."""
    if file.shape is None:
        raise InvalidConfiguration(
            "context.budget",
            f"{context.budget!r} needs to know what the model needs, and {file.names[0]} does not "
            "say; set model.context_tokens and budget = 'backend'",
        )
    keys, values = CacheType[model.cache_type_k.upper()], CacheType[model.cache_type_v.upper()]
    fit = largest_window(file.shape, memory, Caching(model.slots, keys, values))
    if not fit.window:
        raise InvalidConfiguration(
            "context.budget",
            f"no window fits: {file.names[0]} needs {amount(fit.need.total)} and "
            f"{amount(fit.room)} can be used; take a smaller quantisation, or budget = 'backend'",
        )
    window = fit.window if context.budget == "full" else max(STEP, fit.window // 2 // STEP * STEP)
    window = min(window, context.window_tokens or window)
    logger.info("a window of %d tokens for each of %d slots was chosen", window, model.slots)
    return window
