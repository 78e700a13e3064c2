"""The workers of `temper serve --workers`, as processes of the simulation.

`Spawning` replaces a context of `multiprocessing`, so that `proxy.api.workers` runs unchanged. All
workers run in the same event loop, but each is a separate simulated process, which can be killed.
A worker does not start if its setting `server.body_seconds` is `UNUSABLE_SECONDS`.
"""

import asyncio
import itertools
import signal
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from proxy.api import workers
from proxy.errors import InvalidConfiguration
from proxy.observability.peer_workers import WorkerIdentity
from proxy.settings import Settings
from tests.simulation.clock import CLOCK
from tests.simulation.loop import PROCESS, SimulatedLoop
from tests.simulation.network import HOST, context_of

UNUSABLE_SECONDS = 2.5  # a value of `server.body_seconds` with which no worker starts
_SLOWEST_START = 1.0  # seconds
_FIRST_PID = 50_000


@dataclass(eq=False)
class _Link:
    """One end of a pipe between a worker and its parent.

    `on_send` is called with each message that this end sends.
    """

    loop: SimulatedLoop
    descriptor: int
    other: "_Link | None" = None
    messages: deque[object] = field(default_factory=deque)
    has_ended: bool = False
    on_send: Callable[[object], None] = lambda _message: None

    def __enter__(self) -> "_Link":
        return self

    def __exit__(self, *_error: object) -> None:
        """Do nothing: the worker has its own copy of the descriptor."""

    def fileno(self) -> int:
        return self.descriptor

    def send(self, message: object) -> None:
        assert self.other is not None
        if self.has_ended:
            raise BrokenPipeError
        self.on_send(message)
        self.other.messages.append(message)
        if len(self.other.messages) == 1:  # for later messages, `recv` wakes the reader
            self.loop.wake(self.other.descriptor)

    def recv(self) -> object:
        if not self.messages:
            raise EOFError
        message = self.messages.popleft()
        if self.messages or self.has_ended:
            self.loop.wake(self.descriptor)
        return message

    def close(self) -> None:
        """Do nothing: no process reads from a closed pipe."""

    def end(self) -> None:
        """Report the end of the pipe to this reader, because the other process has died."""
        self.has_ended = True
        if not self.messages:
            self.loop.wake(self.descriptor)


class Worker:
    """A simulated `multiprocessing.Process`.

    `ordinal` is the number of the worker (1 for the first); its replacement has the same ordinal.
    """

    def __init__(
        self, spawning: "Spawning", arguments: tuple[Settings, object, _Link, WorkerIdentity]
    ) -> None:
        self.settings, sockets, self._link, identity = arguments
        # not `_run_worker`, which would create a second event loop
        self._serving = partial(
            workers._serve_until_orphaned,  # noqa: SLF001
            self.settings,
            cast("list[socket.socket]", sockets),
            cast("workers.WorkerLink", self._link),
            identity,
        )
        self.number = next(spawning.numbers)
        self.pid = _FIRST_PID + self.number
        self.exitcode: int | None = None
        self.sentinel = spawning.loop.open_descriptor()
        self.ordinal = identity.number
        self.host = f"{HOST.get()}-worker-{self.number}"
        self.is_ready = False
        self._spawning = spawning
        assert self._link.other is not None
        self._link.on_send = self._note_report
        self._link.other.on_send = self._note_order
        self._work: asyncio.Task[None]

    def __hash__(self) -> int:
        return self.number  # otherwise the order in a set would depend on memory addresses

    def start(self) -> None:
        loop = self._spawning.loop
        self._work = loop.create_task(self._serve(), name=PROCESS, context=context_of(self.host))
        self._work.add_done_callback(
            lambda work: self._end(0 if work.exception() is None else 1),
            context=loop.network.context,
        )
        self._spawning.note_start(self)

    def terminate(self) -> None:
        if self.exitcode is None and not self._spawning.loop.signal(self.host, signal.SIGTERM):
            self.kill()  # it has not installed a handler yet

    def kill(self) -> None:
        if self.exitcode is None:
            self._spawning.loop.kill(self.host)
            self._end(-signal.SIGKILL)

    def join(self) -> None:
        assert self.exitcode is not None

    async def _serve(self) -> None:
        await asyncio.sleep(self._spawning.loop.network.chance.random() * _SLOWEST_START)
        if self.settings.server.body_seconds == UNUSABLE_SECONDS:
            problem = InvalidConfiguration("server.body_seconds", "is unusable")
            self._link.send(f"{problem}")  # as `_run_worker` does
            raise problem
        await self._serving()

    def _note_report(self, message: object) -> None:
        self.is_ready = not message

    def _note_order(self, message: object) -> None:
        if message is None:
            self._spawning.note_retirement(self)

    def _end(self, code: int) -> None:
        if self.exitcode is not None:
            return
        self.exitcode = code
        assert self._link.other is not None
        self._link.other.end()
        self._spawning.failed_starts += not self.is_ready
        self._spawning.living.pop(self.number, None)
        self._spawning.loop.wake(self.sentinel)


@dataclass
class Spawning:
    """A simulated context of `multiprocessing`.

    `living` maps numbers to running workers; `retirements` has the times of replacements.
    """

    loop: SimulatedLoop
    living: dict[int, Worker] = field(default_factory=dict)
    retirements: list[float] = field(default_factory=list)
    failed_starts: int = 0
    _started: list[Worker] = field(default_factory=list)
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def kill_all(self) -> None:
        """Kill all workers, because their parent was killed."""
        for worker in [*self.living.values()]:
            worker.kill()

    def note_start(self, worker: Worker) -> None:
        """Check that at most one worker runs in addition to the configured number."""
        self.living[worker.number] = worker
        self._started.append(worker)
        most = worker.settings.server.workers + 1
        if len(self.living) > most:
            self.loop.children.problems[f"{len(self.living)} workers, at most {most}"] += 1

    def note_retirement(self, worker: Worker) -> None:
        """Check that the replacement of a worker was ready before the worker had to retire."""
        self.retirements.append(CLOCK.now)
        later = [other for other in self._started if other.number > worker.number]
        if not any(other.is_ready and other.ordinal == worker.ordinal for other in later):
            self.loop.children.problems["a worker retired before another one was ready"] += 1

    def at_rest(self) -> dict[str, int]:
        """Return the numbers that must be 0 when no worker is being replaced."""
        settings = {worker.settings.server.body_seconds for worker in self.living.values()}
        most = max((worker.settings.server.workers for worker in self.living.values()), default=0)
        return {
            "workers that are missing": most - len(self.living),
            "additional configurations of workers": max(0, len(settings) - 1),
            "workers with a configuration that failed": UNUSABLE_SECONDS in settings,
        }

    def kill(self, ordinal: int) -> bool:
        """Kill a running worker with this ordinal; return False if there is none."""
        workers = [worker for worker in self.living.values() if worker.ordinal == ordinal]
        if workers:
            self.loop.network.chance.choice(workers).kill()
        return bool(workers)

    def get_context(self, _method: str) -> "Spawning":
        return self

    def Pipe(self) -> tuple[_Link, _Link]:  # noqa: N802 - as in `multiprocessing`
        near, far = (_Link(self.loop, self.loop.open_descriptor()) for _ in range(2))
        near.other, far.other = far, near
        return near, far

    def Process(  # noqa: N802
        self, *, target: object, args: tuple[Settings, object, _Link, WorkerIdentity], daemon: bool
    ) -> Worker:
        del target, daemon
        return Worker(self, args)

    def parent_process(self) -> None:
        """Return None, as in a process without a parent: workers do not watch their parent."""
