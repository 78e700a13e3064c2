"""A managed llama-server for a model: its launch plan, supervisor and connection."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from proxy.backends.client import Backend, Description
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import AUTHORIZATION, BackendClient, Timeouts
from proxy.processes.launch import NAME, LaunchPlan, check_plan, find_program, sampling_flags
from proxy.processes.llama_server import start_llama_server
from proxy.processes.managed import Managed, Supervised
from proxy.processes.model_file import ModelFile, read_model_file
from proxy.processes.process import RunningServer, ServerAddress
from proxy.processes.start_progress import StageListener
from proxy.processes.supervisor import StatusListener, Supervisor
from proxy.profiles.files import load_profiles
from proxy.profiles.known_model import KnownModel, Overrides, introduce
from proxy.profiles.recognition import Evidence
from proxy.serving.assembly import overrides_of
from proxy.serving.window_size import is_measured, plan_window
from proxy.settings import Settings
from proxy.settings.sections import Backend as BackendSettings
from proxy.settings.sections import Model as ModelSettings

logger = logging.getLogger(__name__)


@asynccontextmanager
async def keep_going(
    settings: Settings,
    own: ModelSettings,
    on_stage: StageListener,
    on_change: StatusListener = lambda _status: None,
) -> AsyncGenerator[Supervisor, None]:
    """Keep a server going for a model, from now on.

    The block does not wait for its start. If the first start fails, the block ends with a kind of
    `ProcessFailed`, because there is nothing to serve.
    """
    server = supervisor(settings, own, on_stage, on_change)
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
    own: ModelSettings,
    on_stage: StageListener = lambda _stage: None,
    on_change: StatusListener = lambda _status: None,
) -> Supervisor:
    """Prepare a server for a model; it is started by whoever waits for it.

    Raises `LaunchFailed` if it cannot be started anyway.
    """
    plan = launch_plan(settings, own)
    check_plan(plan)
    logger.info("%s: %s", server_name(own), plan)

    def start() -> AbstractAsyncContextManager[RunningServer]:
        return start_llama_server(plan, ready_seconds=own.load_seconds, on_stage=on_stage)

    return Supervisor(server_name(own), start, on_change=on_change)


@asynccontextmanager
async def connect_managed(
    settings: Settings, own: ModelSettings, server: Supervised
) -> AsyncGenerator[Backend, None]:
    """Speak to a managed server, wherever it is."""
    file = model_file(own)

    def connect(address: ServerAddress) -> LlamaServer:
        connection = connection_to(settings.backend, address)
        load_wait = settings.backend.load_wait_seconds
        return LlamaServer(connection, load_wait=load_wait, architecture=file.architecture)

    names = (alias_of(own), *file.names)
    planned = Description(
        names, file.architecture, file.template, slots=own.slots, window=own.context_tokens
    )
    backend = Managed(server, planned, connect, load_wait=settings.backend.load_wait_seconds)
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
    """Connect to a server, as patiently as the operator wants it.

    The operator's headers come before the `usual` ones of its kind.
    """
    timeouts = Timeouts(
        connect=settings.connect_seconds,
        first_byte=settings.first_byte_seconds,
        idle=settings.idle_seconds,
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
    """Put a number where the window of our model is left to what fits; once that is done, nothing.

    Raises `InvalidConfiguration` if no window fits.
    """
    own = settings.model
    if own.source is None or not is_measured(settings.context):
        return settings
    window = plan_window(own, settings.context, model_file(own))
    model = own.model_copy(update={"context_tokens": window})
    context = settings.context.model_copy(update={"budget": "backend"})
    return settings.model_copy(update={"model": model, "context": context})


def launch_plan(settings: Settings, own: ModelSettings) -> LaunchPlan:
    """Plan a start as the model's profile wants it: what it needs, and its makers' sampling.

    Raises `LaunchFailed` if there is no program for it.
    """
    assert own.source is not None  # noqa: S101 - there is a model to start a server for
    profile = introduce_file(settings, own, model_file(own)).recognition.profile
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


def server_name(own: ModelSettings) -> str:
    """Return what a server is called in headers, logs and errors."""
    return f"{NAME}/{alias_of(own)}"


def alias_of(own: ModelSettings) -> str:
    """Return the name that clients use: by default that of the file or of the repository."""
    if own.alias is not None:
        return own.alias
    if own.path is not None:
        return own.path.stem
    return (own.hf_repo or "").rpartition("/")[2].partition(":")[0]


def introduce_file(
    settings: Settings, own: ModelSettings, file: ModelFile, overrides: Overrides | None = None
) -> KnownModel:
    """Give a model its profile, by what its file tells and the operator has decided."""
    profiles = load_profiles(settings.profile.folder)
    names = (*file.names, *([own.alias] if own.alias else []))
    evidence = Evidence(names, file.architecture, file.template)
    overrides = overrides or overrides_of(settings.profile, profiles)
    return introduce(file.names[0], evidence, profiles, overrides)


def model_file(own: ModelSettings) -> ModelFile:
    """Tell what is known of a model beforehand; of one to download that is its name."""
    source = own.source
    return read_model_file(source) if isinstance(source, Path) else ModelFile((source or "",))
