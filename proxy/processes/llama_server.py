"""Starts a managed llama-server and waits until it is ready; `supervisor` restarts it.

The server listens on loopback, on a port that the system chooses and the server logs. It requires
a random key that only the child process receives, so a server that requires this key is the child.
A server can also be started only to download a model into its cache. A failed start or a crash is
reported as a sentence with a remedy; `failures.toml` maps the output of llama.cpp to them.
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

_LOOK_SECONDS = 0.05
_ANSWER_SECONDS = 5.0  # for one request
_LISTENING = re.compile(rf"listening on http://{re.escape(launch.HOST)}:(\d+)\s*(?:-|$)")


@asynccontextmanager
async def start_llama_server(
    plan: launch.LaunchPlan,
    *,
    ready_seconds: float = 600.0,  # a large model on a slow disk
    on_stage: StageListener = lambda _stage: None,
    slot_cache: SlotCache | None = None,
) -> AsyncGenerator[RunningServer]:
    """Start a server, yield it when it is ready, and stop it in the end.

    With a `slot_cache` its prompt caches are restored before it is ready, and saved in the end.
    Raises LaunchFailed if it ends before that, and NeverBecameReady after `ready_seconds`.
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
            becoming = _become_ready(port, api_key)
            base_url = await _wait_until_ready(process, becoming, log, ready_seconds)
            is_ready = True
            await _read_back(plan, server := RunningServer(base_url, api_key, process))
            async with slot_cache.keep(plan, server) if slot_cache else nullcontext():
                on_stage(StartProgress(log.progress.name, "ready"))
                yield server
        finally:
            await process.stop()
    except ProcessFailed:
        on_stage(StartProgress(log.progress.name, "failed"))
        raise


def environment(api_key: str) -> dict[str, str]:
    """Return the settings that are not arguments: a secret, and options that old builds refuse.

    Arguments are visible to every user of the machine.
    """
    no_colours = {"LLAMA_LOG_COLORS": "off", "LLAMA_ARG_LOG_COLORS": "off", "NO_COLOR": "1"}
    return {"LLAMA_API_KEY": api_key, "LLAMA_ARG_CORS_ORIGINS": "localhost", **no_colours}


async def _wait_until_ready(
    process: Process, becoming: Coroutine[None, None, str], log: StartLog, ready_seconds: float
) -> str:
    """Return the base URL as soon as the model is loaded; while it is downloaded no time counts."""
    ready = asyncio.create_task(becoming)
    exited = asyncio.create_task(process.wait())
    goes_on = True
    try:
        # a new wait begins as long as a download makes progress: its size is unknown
        while goes_on:
            before = log.progress
            either = asyncio.FIRST_COMPLETED
            await asyncio.wait({ready, exited}, timeout=ready_seconds, return_when=either)
            downloads = "downloading" in (before.stage, log.progress.stage)
            is_over = ready.done() or exited.done()
            goes_on = downloads and log.progress != before and not is_over
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


async def _read_back(plan: launch.LaunchPlan, server: RunningServer) -> None:
    """Warn if the window is smaller than planned: the server silently caps it to the model's."""
    backend = LlamaServer(BackendClient(server.base_url, server.api_key))
    name = plan.alias or str(plan.model)
    window = (await backend.describe(name)).window
    await backend.close()
    if window is None:
        logger.warning("%s: window unknown, /props does not report it", launch.NAME)
    elif window < plan.context_tokens:
        message = "%s: window reduced to %d of %d tokens per slot, the limit of %s"
        logger.warning(message, launch.NAME, window, plan.context_tokens, name)


async def _become_ready(port: asyncio.Future[int], api_key: str) -> str:
    base_url = f"http://{launch.HOST}:{await port}"
    stranger, owner = BackendClient(base_url), BackendClient(base_url, api_key)
    try:
        # not /v1/models: it answers 200 while the model is still loading
        while await _status(stranger, "/health") != HTTPStatus.OK:  # noqa: ASYNC110 - polled
            await asyncio.sleep(_LOOK_SECONDS)
        # /health needs no key; these two responses prove that the server is our child process
        refused, granted = await _status(stranger, "/slots"), await _status(owner, "/slots")
    finally:
        await stranger.close()
        await owner.close()
    if (refused, granted) != (HTTPStatus.UNAUTHORIZED, HTTPStatus.OK):
        problem = f"is not the server at {base_url}, which rejects its key"
        raise LaunchFailed(launch.NAME, problem, is_lasting=True)
    return base_url


async def _status(client: BackendClient, path: str) -> int | None:
    try:
        return (await client.fetch(path, within=_ANSWER_SECONDS)).status
    except BackendFailed:
        return None


async def download(program: tuple[str, ...], repository: str, on_stage: StageListener) -> Path:
    """Download a repository's model, such as `owner/name:Q4_K_M`; returns its path.

    Files in the cache are not downloaded again. The embedded server cannot download (`hub` can).
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
    # the server loads the model after the download, until it is stopped: the smaller, the better
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


# complaints of a start no longer matter once the server is ready, so only the end is searched
_AT_THE_END = 20
_COMPLAINTS = ("assert", "error", "terminate called", "fatal")


def explain_failure(program: str, log_lines: tuple[str, ...]) -> LaunchFailed:
    """Return the error for a server that ended before it was ready and wrote `log_lines`."""
    meaning, problem = _find_meaning(log_lines), "ended before it was ready, without any output"
    if log_lines:
        problem = f"ended before it was ready; last output: {_last_output(log_lines)}"
    return LaunchFailed(program, meaning or problem, log_lines, is_lasting=meaning is not None)


def explain_exit(exit_code: int, log_lines: Sequence[str]) -> str:
    """Return the reason why a ready server ended; `exit_code` is negative for a signal."""
    if (meaning := _find_meaning(log_lines[-_AT_THE_END:])) is not None:
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
            _, match, rest = line.lower().partition(needle.lower())
            if match:
                # from `line`, as `rest` is in lower case
                original = line[len(line) - len(rest) :].strip(" :")
                return str(meaning).replace("{rest}", original)
    return None


def _last_output(log_lines: Sequence[str]) -> str:
    """Find the line with the error; a crashing program often prints a trace after it."""
    for line in reversed(log_lines[-_AT_THE_END:]):
        if any(word in line.lower() for word in _COMPLAINTS):
            return line
    return log_lines[-1]
