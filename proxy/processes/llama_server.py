"""Start a llama-server of our own and know when it is ready; it does not look after it for longer.

The server listens on loopback, on a port that the system chooses and the server tells, and wants
a random key that only our child has been given: whoever insists on that key is our child.
"""

import asyncio
import importlib.util
import re
import secrets
import shutil
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from enum import Enum
from http import HTTPStatus
from pathlib import Path

import httpx

from proxy.errors import LaunchFailed, NeverBecameReady
from proxy.processes.failures import explain_failure
from proxy.processes.process import LineListener, Process, RunningServer, python_module
from proxy.profiles.profile import Sampling

NAME = "llama-server"
_HOST = "127.0.0.1"
_READY_SECONDS = 600.0  # a large model on a slow disk
_LOOK_SECONDS = 0.05
_ANSWER_SECONDS = 5.0
_SAMPLING_FLAGS = {
    "temperature": "--temp",
    "top_p": "--top-p",
    "top_k": "--top-k",
    "min_p": "--min-p",
    "repeat_penalty": "--repeat-penalty",
    "presence_penalty": "--presence-penalty",
}
_LISTENING = re.compile(rf"listening on http://{re.escape(_HOST)}:(\d+)\s*(?:-|$)")


class Stage(Enum):
    """How far a start has come."""

    STARTING = "starting"
    LOADING = "loading"
    READY = "ready"


StageListener = Callable[[Stage], None]


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """How to start a llama-server.

    `context_tokens` is the window of each of the `slots`. `alias` is the model's name for
    clients; `extra` are further arguments, put last.
    """

    program: tuple[str, ...]
    model: Path
    context_tokens: int
    slots: int = 1
    alias: str | None = None
    extra: tuple[str, ...] = ()

    def command(self) -> tuple[str, ...]:
        """Return the command line; it holds no secret."""
        # by default slots share one pool, and whoever overfills it makes all of them fail
        size = ("-np", str(self.slots), "-c", str(self.slots * self.context_tokens))
        address = ("--host", _HOST, "--port", "0")
        options = ("--jinja", "--no-webui", "--slots", "--metrics")
        alias = ("-a", self.alias) if self.alias else ()
        return (
            *self.program,
            "-m",
            str(self.model),
            *size,
            *address,
            *options,
            *alias,
            *self.extra,
        )


def sampling_flags(sampling: Sampling) -> tuple[str, ...]:
    """Return the flags that make published values the defaults; a client's own still win."""
    published = asdict(sampling)
    return tuple(
        word
        for name, flag in _SAMPLING_FLAGS.items()
        if published[name] is not None
        for word in (flag, format(published[name], "g"))
    )


def find_program() -> tuple[str, ...]:
    """Return the command of the llama-server to use, or raise LaunchFailed if there is none."""
    has_embedded = importlib.util.find_spec("xllamacpp") is not None
    return choose_program(shutil.which(NAME), has_embedded=has_embedded)


def choose_program(on_path: str | None, *, has_embedded: bool) -> tuple[str, ...]:
    """Prefer the llama-server on PATH: it may have been built for the GPU."""
    if on_path:
        return (on_path,)
    if has_embedded:
        return embedded_program()
    raise LaunchFailed(
        NAME,
        "cannot be started: no llama-server on PATH and the embedded one is not installed: "
        "pip install 'temper-proxy[embedded]'",
        is_lasting=True,
    )


def embedded_program() -> tuple[str, ...]:
    """Return the command of the embedded server."""
    return python_module("proxy.processes.embedded")


@asynccontextmanager
async def start_llama_server(
    plan: LaunchPlan,
    *,
    ready_seconds: float = _READY_SECONDS,
    on_stage: StageListener = lambda _stage: None,
    on_line: LineListener = lambda _line: None,
) -> AsyncGenerator[RunningServer]:
    """Start a server, yield it when it is ready, and stop it in the end.

    Raises LaunchFailed if it ends before and NeverBecameReady after `ready_seconds`; both say why
    and carry its last lines.
    """
    check_model_file(plan.model)
    on_stage(Stage.STARTING)
    api_key = secrets.token_urlsafe(32)
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def listen(line: str) -> None:
        if (said := _LISTENING.search(line)) and not port.done():
            port.set_result(int(said[1]))
        on_line(line)

    process = await Process.start(
        plan.command(), name=NAME, environment=_environment(api_key), listener=listen
    )
    try:
        on_stage(Stage.LOADING)
        base_url = await _wait_until_ready(process, port, api_key, ready_seconds)
        on_stage(Stage.READY)
        yield RunningServer(base_url, api_key, process)
    finally:
        await process.stop()


def check_model_file(model: Path) -> None:
    """Raise LaunchFailed if `model` cannot be a model, before anything is started for it."""
    try:
        with model.open("rb") as file:
            magic = file.read(4)
    except FileNotFoundError:
        problem = "does not exist: check the path"
    except IsADirectoryError:
        problem = "is a folder: name the .gguf file in it"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    else:
        if magic == b"GGUF":
            return
        problem = "is not a GGUF file: convert it or download the GGUF version"
    sentence = f"was not started: the model file {model} {problem}"
    raise LaunchFailed(NAME, sentence, is_lasting=True)


def _environment(api_key: str) -> dict[str, str]:
    """Return what does not belong on a command line: a secret, and what old builds do not know."""
    return {"LLAMA_API_KEY": api_key, "LLAMA_ARG_CORS_ORIGINS": "localhost"}


async def _wait_until_ready(
    process: Process, port: asyncio.Future[int], api_key: str, ready_seconds: float
) -> str:
    """Return the base URL as soon as the model is loaded."""
    ready = asyncio.create_task(_become_ready(port, api_key))
    exited = asyncio.create_task(process.wait())
    try:
        await asyncio.wait(
            {ready, exited}, timeout=ready_seconds, return_when=asyncio.FIRST_COMPLETED
        )
        if exited.done():
            cause = explain_failure(process.tail)
            raise LaunchFailed(
                process.name, cause.sentence, process.tail, is_lasting=cause.is_lasting
            )
        if ready.done():
            return ready.result()
        problem = f"was not ready after {ready_seconds:g} seconds"
        raise NeverBecameReady(process.name, problem, process.tail, is_lasting=True)
    finally:
        ready.cancel()
        exited.cancel()
        await asyncio.gather(ready, exited, return_exceptions=True)


async def _become_ready(port: asyncio.Future[int], api_key: str) -> str:
    base_url = f"http://{_HOST}:{await port}"
    async with httpx.AsyncClient(
        base_url=base_url, timeout=_ANSWER_SECONDS, trust_env=False
    ) as client:
        # not /v1/models: it answers 200 while the model is still loading
        while True:
            if await _status(client, "/health", api_key) == HTTPStatus.OK:
                break
            await asyncio.sleep(_LOOK_SECONDS)
        # /health is open to everybody; these two answers prove that it is our child
        refused = await _status(client, "/slots", "")
        granted = await _status(client, "/slots", api_key)
    if (refused, granted) != (HTTPStatus.UNAUTHORIZED, HTTPStatus.OK):
        problem = f"is not what answers at {base_url}: its key is not honoured"
        raise LaunchFailed(NAME, problem, is_lasting=True)
    return base_url


async def _status(client: httpx.AsyncClient, path: str, api_key: str) -> int | None:
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        response = await client.get(path, headers=headers)
    except httpx.TransportError:
        return None
    return response.status_code
