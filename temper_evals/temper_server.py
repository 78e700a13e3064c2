"""Runs `temper serve` in a separate process in front of a backend, as users do."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from proxy.conversation import json
from proxy.errors import NeverBecameReady
from proxy.processes.process import Process, python_module
from temper_evals.loop import ModelTarget

_READY_SECONDS = 60.0
# No client waits any more. On a busy machine two Tempers each took the default of 3 s, so that
# Ctrl-C seemed to have no effect.
_GRACE_SECONDS = 0.5
_NAME = "temper serve"


@asynccontextmanager
async def temper_in_front(
    backend: ModelTarget, environment: Mapping[str, str], *, takes_tuned: bool = False
) -> AsyncGenerator[ModelTarget, None]:
    """Start Temper with its defaults and the given environment; it ends with the block.

    Settings that were tuned on this machine apply only with `takes_tuned`.
    """
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def listen(line: str) -> None:
        address = _url_in(line)
        if address and not url.done():
            url.set_result(address)

    with tempfile.TemporaryDirectory(prefix="temper-eval-") as folder:
        # an empty file, so that the user's temper.toml does not affect the measurement
        settings = Path(folder) / "temper.toml"
        settings.write_text("", encoding="utf-8")
        command = (
            *python_module("proxy"),
            "serve",
            *("--backend-url", backend.url, "--port", "0", "--json"),
            *("--config", str(settings), "--log-format", "json"),
        )
        quiet = {"TEMPER_LOGGING__LEVEL": "error"}
        # tuned settings are in the cache folder; an empty one hides them
        state = {} if takes_tuned else {"XDG_CACHE_HOME": folder}
        process = await Process.start(
            command,
            name=_NAME,
            environment={**quiet, **state, **environment},
            listener=listen,
            grace_seconds=_GRACE_SECONDS,
        )
        try:
            yield ModelTarget(await _ready(url, process), backend.model, backend.headers)
        finally:
            await process.stop()


async def _ready(url: "asyncio.Future[str]", process: Process) -> str:
    """Wait until it serves; raises NeverBecameReady."""
    # wait for the exit as well: a crashed process would never print its URL
    ended = asyncio.create_task(process.wait())
    either: set[asyncio.Future[str] | asyncio.Task[int]] = {url, ended}
    await asyncio.wait(either, timeout=_READY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    if not url.done():
        raise NeverBecameReady(_NAME, "did not say where it serves", process.tail)
    ended.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await ended
    return url.result()


def _url_in(line: str) -> str:
    """Return the URL from the line in which Temper reports it; "" for any other line."""
    try:
        document = json.parse(line)
    except ValueError:
        return ""
    return str(document["url"]) if isinstance(document, dict) and "url" in document else ""
