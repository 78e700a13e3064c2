"""Temper in the simulation: `proxy.api.server` on the simulated network, with its processes."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from typing import TypedDict, Unpack
from unittest.mock import patch

from proxy import systems
from proxy.api import server
from proxy.api.hosted import OpenedApp, open_app
from proxy.api.reloading import ReadSettings
from proxy.observability.peer_workers import WorkerIdentity
from proxy.processes.managed import Supervised
from proxy.processes.start_progress import StageListener
from proxy.settings import Settings
from proxy.settings.sections import Server as ServerSettings
from tests.simulation.exchanges import TEMPER
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import HOST, ListeningSocket, context_of

_KEEP_ALIVE = 5  # seconds; shorter than the last check of a run waits


class _Options(TypedDict):
    remote: Supervised | None
    identity: WorkerIdentity | None
    reload: ReadSettings | None


@dataclass
class Temper:
    """The process of Temper; `apps` has its application, by the name of the process."""

    loop: SimulatedLoop
    settings: Settings
    reload: Callable[[], Settings]
    apps: dict[str, OpenedApp] = field(default_factory=dict)
    _work: asyncio.Task[None] | None = None
    _host: str = ""
    _starts: int = 0

    @property
    def app(self) -> OpenedApp:
        return self.apps[self._host]

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the sockets and signals of `proxy` while the block runs."""
        with (
            patch.object(server, "open_app", self._open_app),
            patch.object(server, "open_sockets", _open_sockets),
            patch.object(server, "warm_up", contextlib.nullcontext),  # a thread
            patch.object(server, "KEEP_ALIVE_SECONDS", _KEEP_ALIVE),
            patch.object(systems, "kill_tree", self.loop.children.kill),
        ):
            yield

    async def start(self) -> None:
        """Start Temper, and wait until it accepts clients."""
        self._starts += 1
        self._host = f"temper-{self._starts}"
        ready = asyncio.Event()
        serving = server.run(self.settings, on_ready=lambda _: ready.set(), reload=self.reload)
        self._work = self.loop.create_task(serving, context=context_of(self._host))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait((self._work, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._work.done():
            self._work.result()

    def hang_up(self) -> None:
        """Make Temper read its configuration again."""
        self.loop.signal(self._host, signal.SIGHUP)

    async def stop(self) -> None:
        """End Temper as an operator does."""
        assert self._work is not None
        self.loop.children.is_closing = True
        self.loop.signal(self._host, signal.SIGTERM)
        await self._work

    @contextlib.asynccontextmanager
    async def _open_app(  # the arguments of `open_app`
        self, settings: Settings, on_stage: StageListener, **options: Unpack[_Options]
    ) -> AsyncGenerator[OpenedApp]:
        async with open_app(settings, on_stage, **options) as opened:
            self.apps[HOST.get()] = opened
            yield opened


@contextlib.contextmanager
def _open_sockets(_settings: ServerSettings) -> Iterator[list[ListeningSocket]]:
    yield [ListeningSocket(TEMPER)]
