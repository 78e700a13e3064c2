"""Runs a demonstration: sends each prompt to an engine directly, then through Temper.

Callbacks receive the progress and the result.
"""

import asyncio
import contextlib
import importlib.util
import socket
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import httpx
from starlette.types import ASGIApp

from proxy.api.app import ServerOptions, create_app
from proxy.api.hosted import open_app
from proxy.api.server import listen, serving, url_of
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.errors import ExitedUnexpectedly, InvalidConfiguration, LaunchFailed
from proxy.processes.launch import NAME, LaunchPlan, embedded_program
from proxy.processes.llama_server import start_llama_server
from proxy.processes.process import ServerAddress
from proxy.processes.start_progress import StartProgress
from proxy.serving.managed_server import alias_of, choose_window, keep_running
from proxy.settings import Settings
from temper_evals.demo.answers import ClientAnswer, Comparison, read_answer
from temper_evals.demo.own_model import demonstration_of
from temper_evals.demo.scenarios import SCRIPTED, SCRIPTS, Demonstration
from temper_evals.endpoints import find_target

_SLOTS = 2
_WINDOW = 4096
_CONNECT_SECONDS = (
    10.0  # no limit for the reply itself: slow models take minutes, and the user sees the seconds
)
_GRACE_SECONDS = 2.0
_HOST = "127.0.0.1"
_LIBRARIES = ("xllamacpp", "gguf", "numpy")

OnStep: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Subject:
    """A model to demonstrate: an engine with its name and address, and a Temper app for it."""

    name: str
    address: ServerAddress
    app: ASGIApp
    shown: Demonstration


# Starts the engine and the app of a demonstration, and reports each step.
Opening: TypeAlias = Callable[[OnStep], AbstractAsyncContextManager[Subject]]


@dataclass(frozen=True, slots=True)
class CallsCompared:
    """All comparisons, and Temper's URL; `port_was_taken` if the requested port was in use."""

    shown: Demonstration
    comparisons: tuple[Comparison, ...]
    url: str
    port_was_taken: bool


async def demonstrate(
    opening: Opening,
    on_step: OnStep,
    on_result: Callable[[CallsCompared], None],
    *,
    port: int,
    keeps_serving: bool = True,
) -> bool:
    """Send every prompt directly and through Temper, then serve until canceled; returns True.

    If `port` is in use, a free port is used. A cancellation while prompts are sent propagates.
    Raises `InvalidConfiguration` and subclasses of `ProcessFailed`.
    """
    async with AsyncExitStack() as stack:
        subject = await stack.enter_async_context(opening(on_step))
        listening = stack.enter_context(contextlib.closing(listen_somewhere(port)))
        # no signal handlers: the command cancels this task on a signal
        opened = serving(subject.app, listening, _GRACE_SECONDS, signals=())
        server = await stack.enter_async_context(opened)
        comparisons = await _compare(subject, url_of(listening), on_step)
        was_taken = port not in (0, listening.getsockname()[1])
        on_result(CallsCompared(subject.shown, comparisons, url_of(listening), was_taken))
        if keeps_serving:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(server)
    return True


@asynccontextmanager
async def open_scripted(on_step: OnStep) -> AsyncGenerator[Subject, None]:
    """Build the handwritten model and start the embedded llama-server with it.

    Raises subclasses of `ProcessFailed`, also if the `embedded` extra is missing.
    """
    check_libraries(_LIBRARIES)
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="temper-demo-"))
        on_step("Writing the model")
        # not in a thread: after a cancellation it would write into a removed folder
        model = _write_model(Path(folder) / "demo.gguf")
        plan = LaunchPlan(embedded_program(), model, _WINDOW, slots=_SLOTS, alias=SCRIPTED.name)
        on_step("Starting llama-server")
        running = await stack.enter_async_context(start_llama_server(plan))
        backend = LlamaServer(BackendClient(running.base_url, running.api_key))
        stack.push_async_callback(backend.close)
        serves = ServerOptions()
        app = create_app(serves.services_for(backend), serves)
        yield Subject(NAME, ServerAddress(running.base_url, running.api_key), app, SCRIPTED)


def model_opening(settings: Settings) -> Opening:
    """Return a function that starts a supervised llama-server, as `temper serve` does."""

    @asynccontextmanager
    async def opening(on_step: OnStep) -> AsyncGenerator[Subject, None]:
        def on_stage(progress: StartProgress) -> None:
            share = "" if progress.share is None else f" {progress.share:.0%}"
            on_step(f"{NAME}: {progress.stage} {progress.name}{share}")

        settled, name = choose_window(settings), alias_of(settings.model)
        async with (
            keep_running(settled, on_stage) as server,
            open_app(settled, remote=server) as app,
        ):
            running = await server.ready()
            address = ServerAddress(running.base_url, running.api_key)
            yield Subject(NAME, address, app, demonstration_of(name))

    return opening


def running_opening(settings: Settings, model: str) -> Opening:
    """Return a function that uses a running engine; `model` may be "" if it has only one model."""

    @asynccontextmanager
    async def opening(on_step: OnStep) -> AsyncGenerator[Subject, None]:
        url, key = settings.backend.addresses[0], settings.backend.api_key
        on_step(f"Looking for a model at {url}")
        secret = key.get_secret_value() if key is not None else ""
        target = await find_target("--backend-url", url, model, secret)
        async with open_app(settings) as app:
            address = ServerAddress(target.url, secret)
            yield Subject(target.url, address, app, demonstration_of(target.model))

    return opening


def check_libraries(needed: Sequence[str]) -> None:
    """Raise LaunchFailed if a library of the `embedded` extra is missing."""
    if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
        problem = (
            f"cannot run without {', '.join(missing)}: install Temper with its embedded extra, "
            "in its folder by: pip install '.[embedded]'"
        )
        raise LaunchFailed("The demonstration", problem)


def listen_somewhere(port: int) -> socket.socket:
    """Listen on `port`, or on a free port if that fails."""
    try:
        return listen(_HOST, port)
    except InvalidConfiguration:
        return listen(_HOST, 0)


def _write_model(path: Path) -> Path:
    from temper_evals.demo.scripted_model import build_scripted_model  # needs the embedded extra

    build_scripted_model(path, SCRIPTS, context_tokens=_WINDOW)
    return path


async def _compare(subject: Subject, url: str, on_step: OnStep) -> tuple[Comparison, ...]:
    """Send every prompt directly and through Temper.

    Raises ExitedUnexpectedly if the engine does not answer.
    """
    shown, engine = subject.shown, subject.address
    key = {"authorization": f"Bearer {engine.api_key}"} if engine.api_key else {}
    comparisons: list[Comparison] = []
    for number, scenario in enumerate(shown.scenarios, 1):
        step = f"Prompt {number} of {len(shown.scenarios)} {{}} Temper: {scenario.prompt}"
        try:
            on_step(step.format("without"))
            without = await _send_prompt(engine.base_url, scenario.prompt, key, shown)
            on_step(step.format("with"))
            through = await _send_prompt(url, scenario.prompt, {}, shown)
        except httpx.TransportError as error:
            problem = f"does not answer ({type(error).__name__}): check its log, then try again"
            raise ExitedUnexpectedly(subject.name, problem) from error
        comparisons.append(Comparison(scenario, without, through))
    return tuple(comparisons)


async def _send_prompt(
    url: str, prompt: str, headers: dict[str, str], shown: Demonstration
) -> ClientAnswer:
    body, timeout = shown.request_for(prompt), httpx.Timeout(None, connect=_CONNECT_SECONDS)
    async with httpx.AsyncClient(timeout=timeout, trust_env=False) as client:
        answer = await client.post(f"{url}/v1/chat/completions", json=body, headers=headers)
    return read_answer(answer.content, answer.headers, shown.tools)
