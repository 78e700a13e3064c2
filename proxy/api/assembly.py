"""What the settings come to: the backend that they name, and how clients are served."""

import difflib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from proxy.api.app import Serving
from proxy.api.fitting import ContextPolicy, FittingMode, Strategy
from proxy.api.recognition import KnownModel, Wishes, introduce
from proxy.api.streaming import Pace
from proxy.backends.client import Backend
from proxy.backends.llama_server import LlamaServer
from proxy.backends.openai_compatible import OpenAICompatible
from proxy.backends.transport import Connection, Timeouts
from proxy.context.replay import Rules
from proxy.dialects.openai_chat.decode import workflow_of
from proxy.errors import InvalidConfiguration
from proxy.guardrails.offer import Mode, TextPolicy
from proxy.guardrails.traits import Replay
from proxy.guardrails.transcript import has_failed
from proxy.inference.preparation import Policy
from proxy.processes.llama_server import (
    LaunchPlan,
    StageListener,
    find_program,
    sampling_flags,
    start_llama_server,
)
from proxy.processes.model_file import ModelFile, read_model_file
from proxy.profiles.files import load_profiles
from proxy.profiles.profile import GENERIC, Profile
from proxy.profiles.recognition import Evidence
from proxy.sections import Backend as BackendSettings
from proxy.sections import Context as ContextSettings
from proxy.sections import Profile as ProfileSettings
from proxy.settings import Settings


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
        model = settings.model.model_copy(update={"path": None})
        return settings.model_copy(update={"backend": backend, "model": model})


@asynccontextmanager
async def backend_address(
    settings: Settings, on_stage: StageListener
) -> AsyncGenerator[BackendAddress, None]:
    """Find the server that is configured, or start one for the model that is."""
    own = settings.backend
    if own.url is not None:
        key = own.api_key.get_secret_value() if own.api_key is not None else ""
        yield BackendAddress(own.url, key)
    elif settings.model.path is not None:
        file = read_model_file(settings.model.path)
        starting = start_llama_server(
            _launch_plan(settings, settings.model.path, file),
            ready_seconds=settings.model.load_seconds,
            on_stage=on_stage,
        )
        async with starting as running:
            yield BackendAddress(running.base_url, running.api_key, file.architecture)
    else:
        raise nothing_to_serve()


@asynccontextmanager
async def open_backend(
    settings: Settings, on_stage: StageListener
) -> AsyncGenerator[Backend, None]:
    """Connect to the server that is configured, or start one for the model that is."""
    waits = settings.backend
    timeouts = Timeouts(
        connect=waits.connect_seconds, first_byte=waits.first_byte_seconds, idle=waits.idle_seconds
    )
    async with backend_address(settings, on_stage) as found:
        connection = Connection(found.url, found.api_key, timeouts=timeouts)
        async with _connected(connection, waits, found.architecture) as backend:
            yield backend


def nothing_to_serve() -> InvalidConfiguration:
    """Say what an operator has to name who has named nothing."""
    return InvalidConfiguration(
        "backend.url",
        "nothing to serve: name a running server (--backend-url http://127.0.0.1:9931) "
        "or a model to start one for (--model FILE.gguf); 'temper demo' needs neither",
    )


@asynccontextmanager
async def _connected(
    connection: Connection, settings: BackendSettings, architecture: str
) -> AsyncGenerator[Backend, None]:
    backend: LlamaServer | OpenAICompatible
    if settings.kind == "llama-server":
        backend = LlamaServer(
            connection, load_wait=settings.load_wait_seconds, architecture=architecture
        )
    else:
        backend = OpenAICompatible(connection)
    try:
        yield backend
    finally:
        await backend.close()


def _launch_plan(settings: Settings, model: Path, file: ModelFile) -> LaunchPlan:
    """Plan a start as the model's profile wants it: what it needs, and its makers' sampling."""
    profile = introduce_file(settings, file).recognition.profile
    return LaunchPlan(
        program=find_program(),
        model=model,
        context_tokens=settings.model.context_tokens,
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


def serving_of(settings: Settings) -> Serving:
    """Translate the settings into what the application takes; raises InvalidConfiguration."""
    profiles = load_profiles(settings.profile.folder)
    guardrails, server = settings.guardrails, settings.server
    prose = guardrails.text_policy
    key = server.api_key
    return Serving(
        policy=Policy(
            mode=Mode(guardrails.mode),
            text_policy=None if prose == "auto" else TextPolicy(prose),
            attempts=guardrails.max_attempts,
            is_strict=guardrails.strict,
            most_repeats=guardrails.max_repeats,
            most_rounds=guardrails.max_tool_rounds,
            workflows={name: workflow_of(rules) for name, rules in settings.workflows.items()},
        ),
        pace=Pace(
            keep_alive=server.keep_alive_seconds,
            deadline=settings.backend.deadline_seconds,
            grace=server.grace_seconds,
        ),
        context=_context(settings.context),
        profiles=profiles,
        wishes=wishes_of(settings.profile, profiles),
        api_key=key.get_secret_value() if key is not None else None,
        max_body_bytes=server.max_body_bytes,
        max_waiting=server.max_waiting,
        parallel=settings.backend.parallel_requests or None,
        workers=server.workers,
        forwards_authorization=key is None,
    )


def _context(settings: ContextSettings) -> ContextPolicy:
    rules = Rules(
        has_failed,
        never_clear=frozenset(settings.never_clear),
        recent=settings.recent_groups,
        high=settings.high,
        low=settings.low,
    )
    return ContextPolicy(
        FittingMode(settings.compaction),
        Strategy(settings.strategy),
        settings.window_tokens or None,
        rules,
    )


def wishes_of(settings: ProfileSettings, profiles: tuple[Profile, ...]) -> Wishes:
    """Translate what the operator decided about profiles; raises InvalidConfiguration."""
    known = {profile.name: profile for profile in (*profiles, GENERIC)}
    if settings.name is not None and settings.name not in known:
        near = difflib.get_close_matches(settings.name, known, 1) or [GENERIC.name]
        problem = f"there is no profile {settings.name!r}; did you mean {near[0]!r}?"
        raise InvalidConfiguration("profile.name", f"{problem} 'temper models --known' lists all")
    convention, replay = settings.tools_in_prompt, settings.replay
    return Wishes(
        known[settings.name] if settings.name is not None else None,
        None if convention == "auto" else "" if convention == "never" else convention,
        None if replay == "auto" else Replay(replay),
    )
