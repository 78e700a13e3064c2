"""Temper, or a peer in its place, in front of a scripted backend: what fault tests speak to."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.load.candidates import LAUNCHES, Situation
from benchmarks.load.peers import default_folder
from benchmarks.load.processes import free_port, started
from tests.fakes.answers import Answer, read_answer
from tests.fakes.front import CHAT, plain_transport, temper
from tests.fakes.scripted_backend import Script, ScriptedBackend
from tests.fakes.sockets import listening

_LOOKS = 200
_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Subject:
    """What a test speaks to: a client of the proxy, and the backend behind it."""

    client: httpx.AsyncClient
    backend: ScriptedBackend

    async def send(self, body: bytes) -> Answer:
        """Post a body as it is to the chat endpoint."""
        return read_answer(await self.client.post(CHAT, content=body))


@asynccontextmanager
async def before(name: str, *scripts: Script | bytes) -> AsyncGenerator[Subject, None]:
    """Run Temper, or the peer of that name, before a backend that plays `scripts`."""
    if name == "temper":
        async with temper(*scripts) as front:
            yield Subject(front.client, front.backend)
        return
    backend = ScriptedBackend(*scripts)
    with tempfile.TemporaryDirectory() as folder:
        async with listening(backend) as behind, _peer(name, behind.url, Path(folder)) as client:
            yield Subject(client, backend)


@asynccontextmanager
async def _peer(name: str, backend: str, folder: Path) -> AsyncGenerator[httpx.AsyncClient, None]:
    port = free_port()
    launch = LAUNCHES[name](Situation(backend, port, "respond", folder, default_folder()))
    command = launch.command
    log = folder / "peer.log"
    with started(command, folder=folder, environment=launch.environment, log=log):
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            transport=plain_transport(),
            trust_env=False,
            timeout=10,
            headers={"content-type": "application/json"},
        ) as client:
            await _until_it_listens(port)
            yield client


async def _until_it_listens(port: int) -> None:
    for _ in range(_LOOKS):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(_LOOK_SECONDS)
        else:
            writer.close()
            return
    raise AssertionError(f"nothing listens on {port}")
