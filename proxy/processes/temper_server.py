"""Runs `temper serve` as a child process on a free port: for agents and for evaluations."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

from proxy.conversation import json
from proxy.errors import NeverBecameReady
from proxy.processes.process import Process, python_module

_START_SECONDS = 60.0  # until Temper prints its URL; it does not wait for a model
_NAME = "temper serve"


@asynccontextmanager
async def private_temper(
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    grace_seconds: float = 3.0,
) -> AsyncGenerator[tuple[str, Process], None]:
    """Run `temper serve` with these arguments, and yield its URL and process.

    If Temper does not start, raises `NeverBecameReady` with the end of Temper's log.
    `grace_seconds` is the time between SIGTERM and SIGKILL.
    """
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def listen(line: str) -> None:
        address = _url_in(line)
        if address and not url.done():
            url.set_result(address)

    process = await Process.start(
        (*python_module("proxy"), "serve", *arguments, "--port", "0", "--json"),
        name=_NAME,
        environment={"TEMPER_LOGGING__FORMAT": "json", **(environment or {})},
        listener=listen,
        grace_seconds=grace_seconds,
    )
    try:
        yield await _ready(url, process), process
    finally:
        await process.stop()


async def _ready(url: "asyncio.Future[str]", process: Process) -> str:
    """Wait until the server reports its URL; raises NeverBecameReady."""
    # a crashed process never prints its URL, so the wait also ends at its exit
    ended = asyncio.create_task(process.wait())
    either: set[asyncio.Future[str] | asyncio.Task[int]] = {url, ended}
    await asyncio.wait(either, timeout=_START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    if not url.done():
        raise NeverBecameReady(_NAME, "did not start", process.tail)
    ended.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await ended
    return url.result()


def _url_in(line: str) -> str:
    """Return the URL from `{"url": "http://..."}`; "" for any other line."""
    try:
        document = json.parse(line)
    except ValueError:
        return ""
    return str(document["url"]) if isinstance(document, dict) and "url" in document else ""
