"""Opens what the settings name: each kind of backend in a function of its own."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import SecretStr

from proxy.api.app import Serving
from proxy.api.assembly import wishes_of
from proxy.api.recognition import KnownModel, introduce
from proxy.api.services import Services
from proxy.api.windows import ollama_fitting, planned_window
from proxy.backends.adaptive import AdaptiveEngine
from proxy.backends.client import Backend
from proxy.backends.detected import DetectedBackend
from proxy.backends.detection import Kind, ollama_url
from proxy.backends.llama_server import LlamaServer
from proxy.backends.ollama import Ollama, OllamaWishes
from proxy.backends.transport import Connection, Timeouts
from proxy.errors import InvalidConfiguration
from proxy.processes.llama_server import (
    LaunchPlan,
    StageListener,
    find_program,
    sampling_flags,
    start_llama_server,
)
from proxy.processes.model_file import ModelFile, read_model_file
from proxy.profiles.files import load_profiles
from proxy.profiles.recognition import Evidence
from proxy.sections import Backend as BackendSettings
from proxy.sections import Ollama as OllamaSettings
from proxy.settings import Settings


@asynccontextmanager
async def open_services(
    settings: Settings, serving: Serving, on_stage: StageListener
) -> AsyncGenerator[Services, None]:
    """Open every model that the settings name; raises `InvalidConfiguration` if there is none."""
    async with open_backend(settings, on_stage) as backend:
        yield serving.alone(backend)


@asynccontextmanager
async def open_backend(
    settings: Settings, on_stage: StageListener
) -> AsyncGenerator[Backend, None]:
    """Connect to the server that is configured, or start one for the model that is."""
    if (url := server_url(settings)) is not None:
        kind = _running_server(settings, url)
    elif settings.model.path is not None:
        kind = _started_server(settings, settings.model.path, on_stage)
    else:
        raise nothing_to_serve()
    async with kind as backend:
        yield backend


def server_url(settings: Settings) -> str | None:
    """Return where the running server is, None if there is none; an Ollama is somewhere always."""
    is_ollama = settings.backend.kind == Kind.OLLAMA.value or settings.ollama.model is not None
    if settings.backend.url is None and is_ollama:
        return ollama_url(os.environ.get("OLLAMA_HOST", ""))
    return settings.backend.url


def nothing_to_serve() -> InvalidConfiguration:
    """Say what an operator has to name who has named nothing."""
    return InvalidConfiguration(
        "backend.url",
        "nothing to serve: name a running server (--backend-url http://127.0.0.1:9931), a model "
        "of an Ollama (--ollama NAME) or one to start a server for (--model FILE.gguf); "
        "'temper demo' needs none of them",
    )


@asynccontextmanager
async def _running_server(settings: Settings, url: str) -> AsyncGenerator[Backend, None]:
    """Connect to a server that somebody else looks after."""
    named = settings.backend.kind
    kind = None if named == "auto" else Kind(named)
    address = BackendAddress(url, _key_of(settings))
    async with _connected(settings, address, kind) as backend:
        yield backend


@asynccontextmanager
async def _started_server(
    settings: Settings, model: Path, on_stage: StageListener
) -> AsyncGenerator[Backend, None]:
    """Start a llama-server for the model in a file."""
    async with (
        _started(settings, model, on_stage) as found,
        _connected(settings, found, Kind.LLAMA_SERVER) as backend,
    ):
        yield backend


@dataclass(frozen=True, slots=True)
class BackendAddress:
    """Where the backend is; `architecture` is that of the model's file, where we started it."""

    url: str
    api_key: str = field(default="", repr=False)
    architecture: str = ""

    def given_to(self, settings: Settings) -> Settings:
        """Return the settings of somebody who finds this backend running."""
        key = SecretStr(self.api_key) if self.api_key else None
        backend = settings.backend.model_copy(update={"url": self.url, "api_key": key})
        changed: dict[str, object] = {"backend": backend}
        if settings.model.path is not None:  # its window is the one that was chosen at the start
            changed["model"] = settings.model.model_copy(update={"path": None})
            changed["context"] = settings.context.model_copy(update={"budget": "backend"})
        return settings.model_copy(update=changed)


@asynccontextmanager
async def backend_address(
    settings: Settings, on_stage: StageListener
) -> AsyncGenerator[BackendAddress, None]:
    """Find the server that is configured, or start one, for workers that connect to it."""
    if (url := server_url(settings)) is not None:
        yield BackendAddress(url, _key_of(settings))
    elif settings.model.path is not None:
        async with _started(settings, settings.model.path, on_stage) as found:
            yield found
    else:
        raise nothing_to_serve()


@asynccontextmanager
async def _started(
    settings: Settings, model: Path, on_stage: StageListener
) -> AsyncGenerator[BackendAddress, None]:
    file = read_model_file(model)
    starting = start_llama_server(
        _launch_plan(settings, model, file),
        ready_seconds=settings.model.load_seconds,
        on_stage=on_stage,
    )
    async with starting as running:
        yield BackendAddress(running.base_url, running.api_key, file.architecture)


@asynccontextmanager
async def _connected(
    settings: Settings, found: BackendAddress, kind: Kind | None
) -> AsyncGenerator[Backend, None]:
    """Speak to a server as its kind wants it; without one it is recognised."""
    connection = _connection(settings.backend, found)
    ollamas: list[Ollama] = []

    def adapter_for(kind: Kind) -> Backend:
        match kind:
            case Kind.LLAMA_SERVER:
                wait = settings.backend.load_wait_seconds
                return LlamaServer(connection, load_wait=wait, architecture=found.architecture)
            case Kind.OLLAMA:
                wishes = replace(
                    ollama_wishes(settings.ollama), fitting=ollama_fitting(settings, found.url)
                )
                ollamas.append(Ollama(connection, wishes))
                return ollamas[-1]
            case Kind.OPENAI:
                return AdaptiveEngine(connection)

    try:
        yield DetectedBackend(connection, adapter_for) if kind is None else adapter_for(kind)
    finally:
        for ollama in ollamas:
            await ollama.unload()
        await connection.close()


def _connection(settings: BackendSettings, found: BackendAddress) -> Connection:
    timeouts = Timeouts(
        connect=settings.connect_seconds,
        first_byte=settings.first_byte_seconds,
        idle=settings.idle_seconds,
    )
    headers = {name: value.get_secret_value() for name, value in settings.headers.items()}
    return Connection(found.url, found.api_key, headers=headers, timeouts=timeouts)


def ollama_wishes(settings: OllamaSettings) -> OllamaWishes:
    """Translate what the operator decided; Ollama wants a number where there is no unit."""
    stays: str | int | None = settings.keep_alive or None
    if settings.keep_alive.removeprefix("-").isdecimal():
        stays = int(settings.keep_alive)
    return OllamaWishes(settings.model, settings.context_tokens or None, stays)


def _key_of(settings: Settings) -> str:
    key = settings.backend.api_key
    return key.get_secret_value() if key is not None else ""


def _launch_plan(settings: Settings, model: Path, file: ModelFile) -> LaunchPlan:
    """Plan a start as the model's profile wants it: what it needs, and its makers' sampling."""
    profile = introduce_file(settings, file).recognition.profile
    return LaunchPlan(
        program=find_program(),
        model=model,
        context_tokens=planned_window(settings.model, settings.context, file),
        slots=settings.model.slots,
        alias=settings.model.alias or model.stem,
        extra=(*profile.launch_flags, *sampling_flags(profile.sampling)),
    )


def introduce_file(settings: Settings, file: ModelFile) -> KnownModel:
    """Give the model in a file its profile, by what the file tells."""
    profiles = load_profiles(settings.profile.folder)
    names = (*file.names, *([settings.model.alias] if settings.model.alias else []))
    evidence = Evidence(names, file.architecture, file.template)
    return introduce(file.names[0], evidence, profiles, wishes_of(settings.profile, profiles))
