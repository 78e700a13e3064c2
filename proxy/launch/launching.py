"""Finds or starts Temper, and runs a coding agent with it in the foreground.

    flags name a server or model     start a private Temper on a free port; it ends with the agent
    a Temper runs at server.port     use it
    another model server runs        start a private Temper in front of it
    none of these                    an error that lists the alternatives

While the agent runs, Temper's log lines are not shown, and only the agent handles Ctrl-C.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from proxy.backends.transport import BackendClient
from proxy.conversation import json
from proxy.dialects.lenient_json import as_list, as_object, as_positive
from proxy.errors import BackendFailed, InvalidConfiguration, LaunchFailed, NeverBecameReady
from proxy.launch.agents import FOLDER, NO_KEY, Agent, Endpoint, Profile
from proxy.processes.process import Process
from proxy.processes.temper_server import private_temper
from proxy.serving.opening import find_backend, selects_no_server
from proxy.settings import Settings
from proxy.systems import handle_signals

_LOOKUP_SECONDS = 1.5  # for the response of a Temper on this machine
_POLL_SECONDS = 0.25  # between two requests for /readyz while the model loads
_START_SECONDS = 60.0  # for each response of a Temper that may be loading a model

Report = Callable[[str], None]
"""A function that shows the current activity."""


@asynccontextmanager
async def temper_for(
    settings: Settings, options: Sequence[str], model: str, report: Report
) -> AsyncGenerator[Endpoint, None]:
    """Find or start a Temper, and yield it when it is ready.

    A Temper that was started here is stopped after the block. `options` are flags of `temper
    serve`; `model` selects one of several models. Raises `InvalidConfiguration`, `LaunchFailed` and
    `NeverBecameReady`.
    """
    key = _key_of(settings)
    if selects_no_server(settings):
        url = _default_url(settings)
        report(f"looking for Temper at {url}")
        if await _is_temper(url):
            yield await _endpoint(url, model, key, report=report)
            return
        report("looking for a model server")
        server = await find_backend(settings, (), "launch AGENT")
        assert server is not None  # noqa: S101 - the settings name no server, so it was searched
        options = (*options, "--backend-url", server.url)
    report("starting Temper")
    async with private_temper(options) as (address, process):
        yield await _endpoint(address, model, key, report=report, process=process)


async def running_temper(settings: Settings, model: str) -> Endpoint:
    """Return the Temper that runs at `server.port`; raises `InvalidConfiguration` if there is none.

    A permanent configuration needs the address of a Temper that continues to run.
    """
    url = _default_url(settings)
    if not await _is_temper(url):
        raise InvalidConfiguration(
            "server.port", f"no Temper is running at {url}. Start it with temper serve."
        )
    return await _endpoint(url, model, _key_of(settings))


def find_program(agent: Agent) -> str:
    """Return the path of an agent's program; raises `LaunchFailed` if it is not installed."""
    program = shutil.which(agent.program)
    if program is None:
        problem = f"was not started: {agent.program} is not on the PATH. Install it: "
        raise LaunchFailed(agent.title, problem + agent.package, is_lasting=True)
    return program


async def run_agent(program: str, profile: Profile, arguments: Sequence[str]) -> int:
    """Run an agent in the foreground and return its exit code, 128 + N after signal N."""
    with tempfile.TemporaryDirectory(prefix="temper-launch-") as folder:
        environment = {**os.environ, **_write_files(profile, folder)}
        child = await asyncio.create_subprocess_exec(
            program, *profile.arguments, *arguments, env=environment
        )
        # The terminal sends Ctrl-C to both processes. Temper ignores it, because agents use it to
        # interrupt a reply, and continue to run.
        with handle_signals([signal.SIGINT], lambda _number: None):
            try:
                code = await child.wait()
            except asyncio.CancelledError:
                with contextlib.suppress(ProcessLookupError):
                    child.terminate()
                await child.wait()
                raise
    return code if code >= 0 else 128 - code


def _write_files(profile: Profile, folder: str) -> dict[str, str]:
    """Write the files of a profile; return its environment variables, with the paths filled in."""
    for name, content in profile.files.items():
        Path(folder, name).write_text(content, encoding="utf-8")
    return {name: value.replace(FOLDER, folder) for name, value in profile.environment.items()}


def _default_url(settings: Settings) -> str:
    return f"http://127.0.0.1:{settings.server.port}"


def _key_of(settings: Settings) -> str:
    key = settings.server.api_key
    return NO_KEY if key is None else key.get_secret_value()


async def _is_temper(url: str) -> bool:
    """Return whether the server at `url` is Temper: its response to `/` starts with "Temper "."""
    client = BackendClient(url)
    try:
        return (await client.fetch("/", within=_LOOKUP_SECONDS)).body.startswith(b"Temper ")
    except BackendFailed:
        return False
    finally:
        await client.close()


async def _endpoint(
    url: str,
    model: str,
    key: str,
    *,
    report: Report = lambda _activity: None,
    process: Process | None = None,
) -> Endpoint:
    """Wait until the model is loaded, and return it with its window."""
    client = BackendClient(url, "" if key == NO_KEY else key)
    try:
        report("loading the model")
        while True:
            readiness = await client.fetch("/readyz", within=_START_SECONDS)
            state = as_object(json.parse(readiness.body)).get("status")
            if state != "loading":
                break
            await asyncio.sleep(_POLL_SECONDS)
        if state != "ready":
            log = process.tail if process is not None else ()
            raise NeverBecameReady("the model server", "is unreachable", log)
        listed = await client.fetch("/v1/models", within=_START_SECONDS)
    finally:
        await client.close()
    models = {
        str(entry.get("id")): as_positive(entry.get("context_length"))
        for entry in map(as_object, as_list(as_object(json.parse(listed.body)).get("data")))
    }
    name = model or next(iter(models), "")
    if name not in models:
        known = ", ".join(models) or "none"
        problem = f"the model {name!r} does not exist. Available: {known}"
        raise InvalidConfiguration("--name", problem)
    return Endpoint(url, name, models[name], key)
