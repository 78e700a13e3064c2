"""A managed llama-server for a model: its window, launch plan, supervisor and connection.

With context.budget `full` or `fast`, the window is chosen to fit into the memory. This module also
chooses the window for models of an Ollama on this machine.
"""

import asyncio
import logging
import os
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
from proxy.processes.slot_cache import SlotCache
from proxy.processes.start_progress import StageListener
from proxy.processes.supervisor import StatusListener, Supervisor
from proxy.profiles.files import load_profiles
from proxy.profiles.known_model import KnownModel, Overrides, identify_model
from proxy.profiles.recognition import Evidence
from proxy.serving.assembly import overrides_of
from proxy.settings import Settings, is_loopback
from proxy.settings.sections import Backend as BackendSettings
from proxy.settings.sections import Context, Model

logger = logging.getLogger(__name__)

_MB = 1_000_000
_MEASURED = ("full", "fast")  # budgets for which the window depends on the hardware


@asynccontextmanager
async def keep_running(
    settings: Settings,
    on_stage: StageListener,
    on_change: StatusListener = lambda _status: None,
) -> AsyncGenerator[Supervisor, None]:
    """Supervise a server for the configured model while the block runs.

    The block starts at once, before the server is ready. If the first start fails, the block is
    canceled with that `ProcessFailed`: Temper would have nothing to serve. Raises
    `InvalidConfiguration` if no model is configured.
    """
    if settings.model.source is None:
        raise nothing_to_serve()
    server = supervisor(settings, on_stage, on_change)
    try:
        async with asyncio.TaskGroup() as group:
            first_start = group.create_task(server.ready())  # a failure cancels the block
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
    """Prepare a server; the first request or `ready` starts it.

    Raises `LaunchFailed`, and `InvalidConfiguration` if the folder for prompt caches is unusable.
    """
    configured, plan = settings.model, launch_plan(settings)
    check_plan(plan)
    logger.info("%s: %s", server_name(configured), plan)
    start = partial(
        start_llama_server,
        plan,
        ready_seconds=configured.load_seconds,
        on_stage=on_stage,
        slot_cache=slot_cache(settings),
    )
    return Supervisor(server_name(configured), start, on_change=on_change)


def slot_cache(settings: Settings) -> SlotCache | None:
    """Return the storage for the prompt caches of a server; None without prompt_cache.folder.

    Raises `InvalidConfiguration` if the folder cannot be created, or other users can access it.
    """
    configured, name = settings.prompt_cache, server_name(settings.model)
    if (folder := configured.folder) is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        is_accessible = os.name == "posix" and folder.stat().st_mode & 0o077
    except OSError as error:
        problem = f"{folder} cannot be used: {error.strerror}"
        raise InvalidConfiguration("prompt_cache.folder", problem) from error
    if is_accessible:
        problem = f"{folder} is open to other users; run chmod 700, or name a folder to create"
        raise InvalidConfiguration("prompt_cache.folder", problem)
    most_bytes = configured.max_mb * _MB
    return SlotCache(name, folder.resolve(), most_bytes, configured.max_seconds)


@asynccontextmanager
async def connect_managed(settings: Settings, server: Supervised) -> AsyncGenerator[Backend, None]:
    """Connect to a managed server, which may be supervised by another process of Temper."""
    configured, file = settings.model, model_file(settings.model)

    def connect(address: ServerAddress) -> LlamaServer:
        connection = connection_to(settings.backend, address)
        load_wait = settings.backend.load_wait_seconds
        return LlamaServer(connection, load_wait=load_wait, architecture=file.architecture)

    names = (alias_of(configured), *file.names)
    planned = Description(
        names,
        file.architecture,
        file.template,
        slots=configured.slots,
        window=configured.context_tokens,
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
    default_headers: Mapping[str, str] | None = None,
) -> BackendClient:
    """Connect to a server; the operator's headers override the default headers."""
    timeouts = Timeouts(
        connect=settings.connect_seconds,
        first_byte=settings.first_byte_seconds,
        idle=settings.idle_seconds,
        lost=settings.lost_seconds,
    )
    configured = {
        name.lower(): value.get_secret_value() for name, value in settings.headers.items()
    }
    return BackendClient(
        address.base_url,
        address.api_key,
        headers={**(default_headers or {}), **configured},
        timeouts=timeouts,
        key_header=key_header,
    )


def choose_window(settings: Settings) -> Settings:
    """Set the window that context.budget requires.

    For `full`, this is the largest window that fits into the free memory; for `fast`, half of it.
    Raises `InvalidConfiguration` if no window fits, and `LaunchFailed` for a file that contains no
    model.
    """
    configured = settings.model
    if configured.source is None or settings.context.budget not in _MEASURED:
        return settings
    if configured.path is not None:
        check_model_file(configured.path)
    from proxy.hardware.snapshot import detect_hardware  # only if needed: the import takes 50 ms

    memory = memory_for(find_program(configured.server), detect_hardware())
    window = fit_window(configured, settings.context, model_file(configured), memory)
    # Budget `backend` uses the window that the server reports, and the server will report `window`.
    model = configured.model_copy(update={"context_tokens": window})
    context = settings.context.model_copy(update={"budget": "backend"})
    return settings.model_copy(update={"model": model, "context": context})


def launch_plan(settings: Settings) -> LaunchPlan:
    """Plan the start of a server with the flags of the model's profile.

    Raises `LaunchFailed` if no llama-server is installed.
    """
    configured = settings.model
    assert configured.source is not None  # noqa: S101 - a server is started only for a model
    profile = recognize_file(settings, model_file(configured)).recognition.profile
    return LaunchPlan(
        program=find_program(configured.server),
        model=configured.source,
        context_tokens=configured.context_tokens,
        slots=configured.slots,
        alias=alias_of(configured),
        gpu_layers=None if configured.gpu_layers == "auto" else configured.gpu_layers,
        flash_attention=configured.flash_attention,
        cache_type_k=configured.cache_type_k,
        cache_type_v=configured.cache_type_v,
        port=configured.port,
        slot_folder=settings.prompt_cache.folder,
        extra=(
            *profile.launch_flags,
            *sampling_flags(profile.sampling),
            # last, so that the operator's values replace the values of the profile
            *configured.extra_arguments,
        ),
    )


def nothing_to_serve() -> InvalidConfiguration:
    """Return the error for settings that name neither a server nor a model."""
    return InvalidConfiguration(
        "backend.url",
        "nothing to serve: give a running server (--backend-url http://127.0.0.1:9931), a model "
        "of Ollama (--ollama NAME) or a model file (--model FILE.gguf); "
        "'temper demo' needs none of these",
    )


def server_name(configured: Model) -> str:
    return f"{NAME}/{alias_of(configured)}"


def alias_of(configured: Model) -> str:
    """Return the name that clients use, by default the name of the file or repository."""
    if configured.alias is not None:
        return configured.alias
    if configured.path is not None:
        return configured.path.stem
    return (configured.hf_repo or "").rpartition("/")[2].partition(":")[0]


def recognize_file(
    settings: Settings, file: ModelFile, overrides: Overrides | None = None
) -> KnownModel:
    """Return the configured model with its profile, from its file and the overrides."""
    profiles, alias = load_profiles(settings.profile.folder), settings.model.alias
    names = (*file.names, *([alias] if alias else []))
    evidence = Evidence(names, file.architecture, file.template)
    overrides = overrides or overrides_of(settings.profile, profiles)
    return identify_model(file.names[0], evidence, profiles, overrides)


def model_file(configured: Model) -> ModelFile:
    """Return the metadata of a model file; for a repository, only the name."""
    source = configured.source
    return read_model_file(source) if isinstance(source, Path) else ModelFile((source or "",))


def memory_for(program: tuple[str, ...], memory: Memory) -> Memory:
    """Return the memory that the program can use, without GPUs if its build cannot use them."""
    return memory if not memory.devices or uses_devices(program) else memory.without_devices()


def ollama_fitting(settings: Settings, url: str) -> Fitting | None:
    """Return the function that chooses the window of Ollama's models; None if Ollama chooses it.

    Temper chooses only for an Ollama on this machine, because it cannot read the memory of another
    machine. For `fast`, Ollama gets the same window as for `full`, and prompts use half of it.
    """
    is_local = is_loopback(urlsplit(url).hostname or "")
    return ollama_window if is_local and settings.context.budget in _MEASURED else None


def ollama_window(model_info: JsonObject, size: int, memory: Memory | None = None) -> int | None:
    """Return the largest window for a model of Ollama; None if its dimensions are unknown.

    The window is at least Ollama's default. `memory` is by default the free memory of this machine.
    """
    from proxy.hardware.snapshot import detect_hardware

    prefix = f"{model_info.get('general.architecture')}."
    # Ollama omits the contents of lists. The number of heads is a list if it differs by layer.
    is_incomplete = any(
        name.startswith(prefix) and value in (None, []) for name, value in model_info.items()
    )
    shape = shape_of(model_info, size)
    if shape is None or is_incomplete:
        return None
    memory = memory or detect_hardware()
    default = ollama_default_window(sum(device.total for device in memory.devices))
    # at least the window that Ollama would use without Temper
    least = min(default, shape.trained_context)
    return max(least, largest_window(shape, memory, Caching()).window)


def fit_window(model: Model, context: Context, file: ModelFile, memory: Memory) -> int:
    """Return the window in tokens: the largest that fits, or half of it for budget `fast`.

    Raises InvalidConfiguration if no window fits.
    """
    if file.shape is None:
        raise InvalidConfiguration(
            "context.budget",
            f"{context.budget!r} requires the model's dimensions, which {file.names[0]} lacks; "
            "set model.context_tokens and budget = 'backend'",
        )
    keys, values = CacheType[model.cache_type_k.upper()], CacheType[model.cache_type_v.upper()]
    fit = largest_window(file.shape, memory, Caching(model.slots, keys, values))
    if not fit.window:
        raise InvalidConfiguration(
            "context.budget",
            f"no window fits: {file.names[0]} needs {amount(fit.need.total)}, but only "
            f"{amount(fit.room)} is available; use a smaller quantization, or budget = 'backend'",
        )
    window = fit.window if context.budget == "full" else max(STEP, fit.window // 2 // STEP * STEP)
    window = min(window, context.window_tokens or window)
    logger.info("chose a window of %d tokens for each of %d slots", window, model.slots)
    return window
