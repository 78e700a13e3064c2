"""Starts a managed llama-server and waits until it is ready; `supervisor` restarts it.

The server listens on loopback, on a port that the system chooses and the server logs. It requires
a random API key that only the child process receives, so a server that accepts this key is the
child. `download` starts a server only to download a model into its cache. `failures.toml` maps the
output of llama.cpp to error messages.
"""

import asyncio
import logging
import re
import secrets
import signal
import tomllib
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import asynccontextmanager, nullcontext
from http import HTTPStatus
from importlib.resources import files
from pathlib import Path

from proxy.backends.llama_server import LlamaServer
from proxy.backends.transport import BackendClient
from proxy.errors import BackendFailed, LaunchFailed, NeverBecameReady, ProcessFailed
from proxy.processes import launch
from proxy.processes.process import Process, RunningServer
from proxy.processes.slot_cache import SlotCache
from proxy.processes.start_progress import StageListener, StartLog, StartProgress
from proxy.systems import KILL

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.05  # between two requests for /health while the model loads
_RESPONSE_SECONDS = 5.0  # for the response to a request for /health
# the line of the log that contains the port: `main: server is listening on http://127.0.0.1:41234`
_LISTENING = re.compile(rf"listening on http://{re.escape(launch.HOST)}:(\d+)\s*(?:-|$)")


@asynccontextmanager
async def start_llama_server(
    plan: launch.LaunchPlan,
    *,
    ready_seconds: float = 600.0,  # a large model on a slow disk
    on_stage: StageListener = lambda _stage: None,
    slot_cache: SlotCache | None = None,
) -> AsyncGenerator[RunningServer]:
    """Start a server, yield it when it is ready, and stop it after the block.

    A `slot_cache` restores the server's prompt caches before the block, and saves them after the
    block. Raises LaunchFailed if the server exits before it is ready, and NeverBecameReady after
    `ready_seconds`.
    """
    launch.check_plan(plan)
    api_key = secrets.token_urlsafe(32)
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    log = StartLog(plan.alias or str(plan.model))
    is_ready = False

    def listen(line: str) -> None:
        if (match := _LISTENING.search(line)) and not port.done():
            port.set_result(int(match[1]))
        if not is_ready and (progress := log.read(line)) is not None:
            on_stage(progress)

    on_stage(log.progress)
    try:
        process = await Process.start(
            plan.command(),
            name=launch.NAME,
            environment=environment(api_key),
            listener=listen,
            on_terminal=plan.downloads,
        )
        try:
            readiness = _poll_until_ready(port, api_key)
            base_url = await _wait_until_ready(process, readiness, log, ready_seconds)
            is_ready = True
            await _check_window(plan, server := RunningServer(base_url, api_key, process))
            async with slot_cache.keep(plan, server) if slot_cache else nullcontext():
                on_stage(StartProgress(log.progress.name, "ready"))
                yield server
        finally:
            await process.stop()
    except ProcessFailed:
        on_stage(StartProgress(log.progress.name, "failed"))
        raise


def environment(api_key: str) -> dict[str, str]:
    """Return the environment variables of a llama-server.

    The key is not an argument, because every user of the machine can read arguments. The options
    are not arguments, because old builds reject unknown arguments but ignore unknown variables.
    """
    no_colors = {"LLAMA_LOG_COLORS": "off", "LLAMA_ARG_LOG_COLORS": "off", "NO_COLOR": "1"}
    return {"LLAMA_API_KEY": api_key, "LLAMA_ARG_CORS_ORIGINS": "localhost", **no_colors}


async def _wait_until_ready(
    process: Process, readiness: Coroutine[None, None, str], log: StartLog, ready_seconds: float
) -> str:
    """Return the base URL once the model is loaded, within `ready_seconds` after any download."""
    ready = asyncio.create_task(readiness)
    exited = asyncio.create_task(process.wait())
    is_waiting = True
    try:
        # the size of a download is unknown, so the timeout starts again while it makes progress
        while is_waiting:
            previous = log.progress
            either = asyncio.FIRST_COMPLETED
            await asyncio.wait({ready, exited}, timeout=ready_seconds, return_when=either)
            is_download = "downloading" in (previous.stage, log.progress.stage)
            is_over = ready.done() or exited.done()
            is_waiting = is_download and log.progress != previous and not is_over
        if exited.done():
            raise explain_failure(process.name, process.tail)
        if ready.done():
            return ready.result()
        problem = f"was not ready after {ready_seconds:g} seconds"
        raise NeverBecameReady(process.name, problem, process.tail, is_lasting=True)
    finally:
        ready.cancel()
        exited.cancel()
        await asyncio.gather(ready, exited, return_exceptions=True)


async def _check_window(plan: launch.LaunchPlan, server: RunningServer) -> None:
    """Warn if the window is smaller than planned.

    The server silently limits the window to the window for which the model was trained.
    """
    backend = LlamaServer(BackendClient(server.base_url, server.api_key))
    name = plan.alias or str(plan.model)
    window = (await backend.describe(name)).window
    await backend.close()
    if window is None:
        logger.warning("%s: window unknown, /props does not report it", launch.NAME)
    elif window < plan.context_tokens:
        message = "%s: window reduced to %d of %d tokens per slot, the limit of %s"
        logger.warning(message, launch.NAME, window, plan.context_tokens, name)


async def _poll_until_ready(port: asyncio.Future[int], api_key: str) -> str:
    base_url = f"http://{launch.HOST}:{await port}"
    anonymous, authorized = BackendClient(base_url), BackendClient(base_url, api_key)
    try:
        # not /v1/models: it answers 200 while the model is still loading
        while await _status(anonymous, "/health") != HTTPStatus.OK:  # noqa: ASYNC110 - polled
            await asyncio.sleep(_POLL_SECONDS)
        # /health needs no key. That /slots rejects a request without the key, and accepts a
        # request with it, proves that the server is our child process.
        statuses = await _status(anonymous, "/slots"), await _status(authorized, "/slots")
    finally:
        await anonymous.close()
        await authorized.close()
    if statuses != (HTTPStatus.UNAUTHORIZED, HTTPStatus.OK):
        problem = (
            f"was started, but another server answers at {base_url}: "
            "it does not use the API key of this llama-server"
        )
        raise LaunchFailed(launch.NAME, problem, is_lasting=True)
    return base_url


async def _status(client: BackendClient, path: str) -> int | None:
    try:
        return (await client.fetch(path, within=_RESPONSE_SECONDS)).status
    except BackendFailed:
        return None


async def download(program: tuple[str, ...], repository: str, on_stage: StageListener) -> Path:
    """Download a model such as `owner/name:Q4_K_M` with llama-server; return its path.

    Files in the cache are not downloaded again. The embedded server cannot download (see `hub`).
    Raises `LaunchFailed`.
    """
    log = StartLog(repository)
    complete = asyncio.Event()

    def listen(line: str) -> None:
        if (progress := log.read(line)) is not None and not complete.is_set():
            on_stage(progress)
        if log.path:
            complete.set()

    on_stage(log.progress)
    # After the download the server starts to load the model. It is stopped below, but until then
    # a small window saves memory.
    small = ("-c", "256", "-np", "1")
    command = (*program, "-hf", repository, "--host", launch.HOST, "--port", "0", *small)
    process = await Process.start(
        command, name=launch.NAME, environment=environment(""), listener=listen, on_terminal=True
    )
    waiting = asyncio.create_task(complete.wait())
    ended = asyncio.create_task(process.wait())
    try:
        await asyncio.wait({waiting, ended}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        await process.stop()
        await asyncio.gather(waiting, ended, return_exceptions=True)
    if not complete.is_set():
        raise explain_failure(launch.NAME, process.tail)
    return Path(log.path)


# Only the last lines are searched for the cause of a crash: errors in earlier lines are from the
# start of the server.
_LAST_LINES = 20
# in lower case; a line with one of these words probably contains the cause of a crash
_ERROR_WORDS = ("assert", "error", "terminate called", "fatal")


def explain_failure(program: str, log_lines: tuple[str, ...]) -> LaunchFailed:
    """Return the error for a server that wrote `log_lines` and exited before it was ready."""
    meaning, problem = _find_meaning(log_lines), "ended before it was ready, without any output"
    if log_lines:
        problem = f"ended before it was ready; last output: {_last_output(log_lines)}"
    return LaunchFailed(program, meaning or problem, log_lines, is_lasting=meaning is not None)


def explain_exit(exit_code: int, log_lines: Sequence[str]) -> str:
    """Return why a ready server exited; `exit_code` is negative for a signal."""
    if (meaning := _find_meaning(log_lines[-_LAST_LINES:])) is not None:
        return meaning
    if exit_code == -KILL:
        return "was killed (SIGKILL), by a user or because the machine ran out of memory"
    signals = {-each.value: each.name for each in signal.Signals}
    unnamed = f"exit code {exit_code}" if exit_code >= 0 else f"signal {-exit_code}"
    output = f"; last output: {_last_output(log_lines)}" if log_lines else ""
    return f"crashed ({signals.get(exit_code, unnamed)}){output}"


def _find_meaning(log_lines: Sequence[str]) -> str | None:
    text = (files("proxy.processes") / "failures.toml").read_text(encoding="utf-8")
    for needle, meaning in tomllib.loads(text).items():
        for line in log_lines:
            _, match, text_after = line.lower().partition(needle.lower())
            if match:
                # `text_after` is in lower case, so the original text is cut out of `line`
                original = line[len(line) - len(text_after) :].strip(" :")
                return str(meaning).replace("{rest}", original)
    return None


def _last_output(log_lines: Sequence[str]) -> str:
    """Return the last line that reports an error; without such a line, return the last line.

    The line with the error is often not the last line, because a stack trace follows it.
    """
    for line in reversed(log_lines[-_LAST_LINES:]):
        if any(word in line.lower() for word in _ERROR_WORDS):
            return line
    return log_lines[-1]
