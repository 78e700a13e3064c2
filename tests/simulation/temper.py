"""Starts, reloads, kills and stops `proxy.api.server` on the simulated network."""

import asyncio
import contextlib
import math
import os
import signal
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from typing import TypedDict, Unpack
from unittest.mock import patch

from proxy import systems
from proxy.api import server, workers
from proxy.api.hosted import OpenedApp, open_app
from proxy.api.reloading import ReadSettings
from proxy.errors import InvalidConfiguration
from proxy.observability.peer_workers import WorkerIdentity
from proxy.processes.managed import Supervised
from proxy.processes.start_progress import StageListener
from proxy.settings import Settings
from proxy.settings.sections import Server as ServerSettings
from tests.simulation.clock import CLOCK
from tests.simulation.disk import Disk
from tests.simulation.exchanges import TEMPER
from tests.simulation.loop import PROCESS, SimulatedLoop
from tests.simulation.network import HOST, ListeningSocket, context_of
from tests.simulation.workers import Spawning

_PID = 4711  # constant, because it is part of file names, whose length must not vary
GRACE = 5.0  # seconds that a replaced worker has to finish its requests
_LONGEST = server.retirement_seconds(GRACE)
_SOON, _LATE = 0.1, 3.0  # a request may be canceled so many seconds before or after the limit
_TRANSIT = 0.05  # seconds until a connection reset has arrived
_KEEP_ALIVE = 5  # less than the last check of a run waits


class _Options(TypedDict):
    remote: Supervised | None
    identity: WorkerIdentity | None
    reload: ReadSettings | None


@dataclass
class Kill:
    """The time from a kill to the end of the restart; `loses` is True for a power cut."""

    begin: float
    end: float = math.inf
    loses: bool = False

    def overlaps(self, begin: float, end: float) -> bool:
        return self.begin <= end and begin <= self.end


@dataclass
class Temper:
    """The main process of Temper, and the times at which it was killed."""

    loop: SimulatedLoop
    disk: Disk
    read: Callable[[], Settings]
    kills: list[Kill] = field(default_factory=list)
    is_running: bool = False
    is_failing: bool = False
    spawning: Spawning = field(init=False)
    _apps: dict[str, OpenedApp] = field(default_factory=dict)
    _work: asyncio.Task[None] | None = None
    _host: str = ""
    _starts: int = 0

    def __post_init__(self) -> None:
        self.spawning = Spawning(self.loop)

    @property
    def apps(self) -> list[OpenedApp]:
        """The applications of all running workers, or of the only process."""
        hosts = [worker.host for worker in self.spawning.living.values()] or [self._host]
        return [self._apps[host] for host in hosts if host in self._apps]

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Replace the sockets and signals of `proxy` while the block runs."""
        with (
            self.disk.installed(),
            patch.object(server, "open_app", self._open_app),
            patch.object(server, "open_sockets", self._open_sockets),
            patch.object(workers, "open_sockets", self._open_sockets),
            patch.object(workers, "multiprocessing", self.spawning),
            patch.object(workers, "share_folder", self._share_folder),
            patch.object(workers, "configure_logging", lambda *_: None),
            patch.object(workers, "freeze_objects", lambda: None),  # the garbage collector
            patch.object(os, "getpid", self._process_id),
            patch.object(server, "warm_up", contextlib.nullcontext),  # a thread
            patch.object(server, "KEEP_ALIVE_SECONDS", _KEEP_ALIVE),
            patch.object(systems, "kill_tree", self.loop.children.kill),
        ):
            yield

    async def start(self) -> None:
        """Start Temper, and wait until it accepts clients; retry while its disk fails."""
        while True:
            try:
                await self._start()
            except InvalidConfiguration:
                if self.disk.state == "good":
                    raise
                await asyncio.sleep(1)
            else:
                self.is_running = True
                return

    async def _start(self) -> None:
        self._starts += 1
        self.is_failing = False
        self._host = f"temper-{self._starts}"
        ready = asyncio.Event()
        settings = self.read()
        run = workers.run_workers if settings.server.workers > 1 else server.run
        serving = run(settings, on_ready=lambda _: ready.set(), reload=self.read)
        self._work = self.loop.create_task(serving, name=PROCESS, context=context_of(self._host))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait((self._work, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._work.done():
            self._work.result()

    def send_sighup(self, *, fails: bool = False) -> None:
        """Send SIGHUP: Temper reloads its configuration and replaces all workers.

        With `fails`, no worker can start with the new configuration.
        """
        if self.is_running:
            self.is_failing = fails
            self.loop.signal(self._host, signal.SIGHUP)

    def is_canceled(self, begun: float, over: float) -> bool:
        """Return whether a request may have ended because the time of a replaced worker was up."""
        return any(
            begun <= retired and _LONGEST - _SOON <= over - retired <= _LONGEST + _LATE
            for retired in self.spawning.retirements
        )

    def kill_worker(self, ordinal: int) -> None:
        """Kill a worker, if it is running; only requests that run at this moment may fail."""
        if self.spawning.kill(ordinal):
            self.kills.append(Kill(CLOCK.now, CLOCK.now + _TRANSIT))

    async def crash(self, seconds: float, *, loses: bool) -> None:
        """Kill Temper, and start it again after `seconds`; a power cut `loses` data."""
        if not self.is_running:
            return
        self.is_running = False
        self.kills.append(Kill(CLOCK.now, loses=loses))
        self.loop.kill(self._host)
        self.spawning.kill_all()
        self.loop.network.shared.clear()
        self._apps.clear()
        self.disk.cut_power(loses=loses)
        await asyncio.sleep(seconds)
        await self.start()
        self.kills[-1].end = CLOCK.now

    async def stop(self) -> None:
        """Send SIGTERM, and wait until Temper has ended."""
        assert self._work is not None
        self.is_running = False
        self.loop.children.is_closing = True
        self.loop.signal(self._host, signal.SIGTERM)
        await self._work

    @contextlib.asynccontextmanager
    async def _open_app(  # takes the arguments of `open_app`
        self, settings: Settings, on_stage: StageListener, **options: Unpack[_Options]
    ) -> AsyncGenerator[OpenedApp]:
        async with open_app(settings, on_stage, **options) as opened:
            self._apps[HOST.get()] = opened
            yield opened

    @contextlib.contextmanager
    def _open_sockets(self, settings: ServerSettings) -> Iterator[list[ListeningSocket]]:
        if settings.workers > 1:
            self.loop.network.shared.add(TEMPER)
        yield [ListeningSocket(TEMPER)]
        self.loop.network.shared.discard(TEMPER)

    @contextlib.contextmanager
    def _share_folder(self) -> Iterator[str]:
        """Yield a folder for the board of the workers; each worker has its own metrics."""
        folder = self.disk.folder / self._host
        folder.mkdir()
        yield f"{folder}"

    def _process_id(self) -> int:
        host = HOST.get()
        living = self.spawning.living.values()
        return next((worker.pid for worker in living if worker.host == host), _PID)
