"""Runs a demonstration: a real llama-server with the model to be shown, and Temper before it.

It tells its listeners how far it is and what it saw; how that is shown is none of its business.
"""

import contextlib
import importlib.util
import socket
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx

from proxy.api.app import ServerOptions, create_app
from proxy.api.server import listen, serving, url_of
from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.errors import ExitedUnexpectedly, InvalidConfiguration, LaunchFailed
from proxy.processes.launch import NAME, LaunchPlan, embedded_program
from proxy.processes.llama_server import start_llama_server
from proxy.processes.process import RunningServer
from temper_evals.demo.answers import ClientAnswer, Comparison, read_answer
from temper_evals.demo.scenarios import SCRIPTED, SCRIPTS, Demonstration

_SLOTS = 2
_ANSWER_SECONDS = 60.0
_GRACE_SECONDS = 2.0
_HOST = "127.0.0.1"
_SERVER = "xllamacpp"
_BUILDING = ("gguf", "numpy")


@dataclass(frozen=True, slots=True)
class CallsCompared:
    """All that was asked, and where Temper serves now; `port_was_taken` if not where wished."""

    comparisons: tuple[Comparison, ...]
    url: str
    port_was_taken: bool


async def demonstrate(
    on_step: Callable[[str], None],
    on_seen: Callable[[CallsCompared], None],
    *,
    port: int,
    keeps_serving: bool = True,
    shown: Demonstration = SCRIPTED,
) -> bool:
    """Ask everything twice, then serve on until a signal ends it.

    A taken `port` is replaced by a free one. Reports whether all was asked before a signal came.
    Raises `ProcessFailed` kinds of errors, also where the `embedded` extra is missing.
    """
    check_libraries((_SERVER,) if shown.model_file else (_SERVER, *_BUILDING))
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="temper-demo-"))
        on_step("Writing the model")
        # in no thread: one that is left alone would write into a folder that is being removed
        model = shown.model_file or _write_model(Path(folder) / "demo.gguf", shown.window)
        plan = _plan(shown, model)
        on_step("Starting llama-server")
        running = await stack.enter_async_context(start_llama_server(plan))
        listening = stack.enter_context(contextlib.closing(listen_somewhere(port)))
        backend = LlamaServer(BackendClient(running.base_url, running.api_key))
        stack.push_async_callback(backend.close)
        serves = ServerOptions()
        app = create_app(serves.alone(backend), serves)
        server = await stack.enter_async_context(serving(app, listening, _GRACE_SECONDS))
        comparisons = await _compare(running, listening, on_step, shown)
        if comparisons is None:
            return False
        was_taken = port not in (0, listening.getsockname()[1])
        on_seen(CallsCompared(comparisons, url_of(listening), was_taken))
        if keeps_serving:
            await server
        return True


def check_libraries(needed: Sequence[str]) -> None:
    """Raise LaunchFailed if a library of the `embedded` extra is missing."""
    if missing := [name for name in needed if importlib.util.find_spec(name) is None]:
        problem = (
            f"cannot run without {', '.join(missing)}: install Temper with its embedded extra, "
            "in its folder by: pip install '.[embedded]'"
        )
        raise LaunchFailed("The demonstration", problem)


def listen_somewhere(port: int) -> socket.socket:
    """Listen on `port`, or on a free one where that is impossible."""
    try:
        return listen(_HOST, port)
    except InvalidConfiguration:
        return listen(_HOST, 0)


def _plan(shown: Demonstration, model: Path) -> LaunchPlan:
    program, flags = embedded_program(), shown.flags
    return LaunchPlan(program, model, shown.window, slots=_SLOTS, alias="demo", extra=flags)


def _write_model(path: Path, window: int) -> Path:
    from temper_evals.demo.scripted_model import build_scripted_model  # needs the embedded extra

    build_scripted_model(path, SCRIPTS, context_tokens=window)
    return path


async def _compare(
    running: RunningServer,
    listening: socket.socket,
    on_step: Callable[[str], None],
    shown: Demonstration,
) -> tuple[Comparison, ...] | None:
    """Ask everything twice; None if a signal ended our server meanwhile."""
    key = {"authorization": f"Bearer {running.api_key}"}
    url = url_of(listening)
    seen: list[Comparison] = []
    try:
        for scenario in shown.scenarios:
            on_step(f"Asking {len(seen) + 1} of {len(shown.scenarios)}: {scenario.prompt}")
            without = await _ask(running.base_url, scenario.prompt, key, shown)
            through = await _ask(url, scenario.prompt, {}, shown)
            seen.append(Comparison(scenario, without, through))
    except httpx.TransportError as error:
        if listening.fileno() == -1:  # uvicorn closes it first of all
            return None
        problem = f"stopped answering ({type(error).__name__}): try it again"
        raise ExitedUnexpectedly(NAME, problem, running.process.tail) from error
    return tuple(seen)


async def _ask(
    url: str, prompt: str, headers: dict[str, str], shown: Demonstration
) -> ClientAnswer:
    asked = shown.request_for(prompt)
    async with httpx.AsyncClient(timeout=_ANSWER_SECONDS, trust_env=False) as client:
        answer = await client.post(f"{url}/v1/chat/completions", json=asked, headers=headers)
    return read_answer(answer.content, answer.headers, shown.tools)
