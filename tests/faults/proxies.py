"""Temper, or a peer in its place, in front of a scripted backend."""

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import httpx

from benchmarks.faults.toxics import Toxic
from benchmarks.load.candidates import LAUNCHES, Situation
from benchmarks.load.peers import default_folder
from benchmarks.load.processes import free_port, started
from proxy.api.app import ServerOptions
from proxy.backends.llama_server import LlamaServer
from proxy.backends.ollama import Ollama
from proxy.backends.transport import BackendClient, Timeouts
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from tests.fakes.answers import Answer, read_answer
from tests.fakes.running_proxy import CHAT, TOOLS, in_front_of, plain_transport, temper_at
from tests.fakes.scripted_backend import Script, ScriptedBackend
from tests.fakes.sockets import listening
from tests.fakes.toxic_backend import ToxicBackend, toxic_backend
from tests.faults.peers import forked
from tests.faults.reading import read_loosely
from tests.timeouts import TIMEOUT_SECONDS

TEMPER = "temper"

_JSON = {"content-type": "application/json"}
# forge closes connections although it announces keep-alive
_JSON_ONCE = {**_JSON, "connection": "close"}
_DEADLINE = "--backend-timeout"  # the option of forge for its time limit, in seconds
_LOOKS = 1000
_LOOK_SECONDS = 0.01


# simple requests, so that a peer fails a row only because of the fault
PLAIN: JsonObject = {
    "model": "m",
    "messages": [{"role": "user", "content": "How is the weather in Paris?"}],
}
WITH_TOOLS: JsonObject = {**PLAIN, "tools": [TOOLS[0]]}


class Wire(Enum):
    """The protocol of a backend; peers are tested only with OpenAI's."""

    OPENAI = "openai"
    OLLAMA = "ollama"


@dataclass(frozen=True)
class ProxyUnderTest:
    """A running proxy: its client, and its process id."""

    name: str
    client: httpx.AsyncClient
    pid: int

    @property
    def address(self) -> tuple[str, int]:
        """Its listening address."""
        return self.client.base_url.host, self.client.base_url.port or 80

    async def send(self, body: bytes) -> Answer:
        """Post a body unchanged to the chat endpoint."""
        response = await self.client.post(CHAT, content=body)
        return read_answer(response) if self.name == TEMPER else read_loosely(response)

    async def ask(self, body: JsonObject, *, stream: bool = False) -> Answer:
        """Request a chat completion and read the whole response."""
        return await self.send(json.dump({**body, "stream": stream}))


@dataclass(frozen=True)
class Subject(ProxyUnderTest):
    """A proxy under test and its backend."""

    backend: ScriptedBackend


@dataclass(frozen=True)
class PoisonedProxy(ProxyUnderTest):
    """A proxy under test, and a backend that injects faults (toxics)."""

    backend: ToxicBackend


def is_bad_gateway(name: str, answer: Answer) -> bool:
    """Return whether the client received an error of the backend.

    For a peer, any 5xx status counts, and so does an error event.
    """
    if name == TEMPER:
        return answer.status == 502 and answer.error is not None
    return answer.error is not None and (answer.status >= 500 or bool(answer.chunks))


def is_refusal(name: str, status: int, expected: int = 400) -> bool:
    """Return whether the client received a client error; for a peer, any 4xx counts."""
    return status == expected if name == TEMPER else 400 <= status < 500


@asynccontextmanager
async def before(
    name: str, *scripts: Script | bytes, serving: ServerOptions | None = None
) -> AsyncGenerator[Subject, None]:
    """Run Temper, or the peer of that name, in front of a backend that sends `scripts`."""
    backend = ScriptedBackend(*scripts)
    async with (
        listening(backend) as upstream,
        before_url(name, upstream.url, serving=serving) as under_test,
    ):
        yield Subject(under_test.name, under_test.client, under_test.pid, backend)


@asynccontextmanager
async def poisoned(
    *toxics: Toxic,
    name: str = TEMPER,
    wire: Wire = Wire.OPENAI,
    timeouts: Timeouts | None = None,
    serving: ServerOptions | None = None,
) -> AsyncGenerator[PoisonedProxy, None]:
    """Run Temper, or a peer, in front of a backend that answers with toxics.

    A peer gets the shortest of the timeouts; its other settings keep their defaults.
    """
    async with toxic_backend(*toxics) as backend:
        if name == TEMPER:
            connection = BackendClient(backend.url, timeouts=timeouts)
            engine = LlamaServer(connection) if wire is Wire.OPENAI else Ollama(connection)
            async with in_front_of(engine, serving, ScriptedBackend()) as proxy:
                yield PoisonedProxy(name, proxy.client, os.getpid(), backend)
        else:
            async with in_a_process(name, backend.url, timeouts) as under_test:
                yield PoisonedProxy(name, under_test.client, under_test.pid, backend)


@asynccontextmanager
async def before_url(
    name: str, url: str, *, serving: ServerOptions | None = None
) -> AsyncGenerator[ProxyUnderTest, None]:
    """Run Temper, or the peer of that name, in front of the server at `url`."""
    if name == TEMPER:
        async with temper_at(url, serving=serving) as proxy:
            yield ProxyUnderTest(name, proxy.client, os.getpid())
        return
    async with in_a_process(name, url) as under_test:
        yield under_test


@asynccontextmanager
async def in_a_process(
    name: str, url: str, timeouts: Timeouts | None = None
) -> AsyncGenerator[ProxyUnderTest, None]:
    """Run Temper, or the peer of that name, in a separate process; `timeouts` apply to a peer."""
    with tempfile.TemporaryDirectory() as folder:
        situation = Situation(url, free_port(), "respond", Path(folder), default_folder())
        with _running(name, situation, timeouts) as process:
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{situation.port}",
                transport=plain_transport(),
                trust_env=False,
                timeout=TIMEOUT_SECONDS,
                headers=_JSON if name == TEMPER else _JSON_ONCE,
            ) as client:
                await _until_it_listens(situation.port)
                yield ProxyUnderTest(name, client, process)


@contextmanager
def _running(name: str, situation: Situation, timeouts: Timeouts | None) -> Iterator[int]:
    launch = LAUNCHES[name](situation)
    log = situation.folder / "process.log"
    if name != TEMPER:
        deadline = (_DEADLINE, f"{min(timeouts.first_byte, timeouts.idle)}") if timeouts else ()
        with forked(launch, log, *deadline) as process:
            yield process
        return
    where, environment = launch.folder or situation.folder, launch.environment
    with started(launch.command, folder=where, environment=environment, log=log) as running:
        yield running.pid


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
