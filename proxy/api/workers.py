"""Several processes that accept connections from one listening socket.

Several workers are needed if a backend generates more tokens than one core can forward. Each worker
is a complete Temper, but only the parent runs the model's server. Workers share only their metrics.
The parent starts the workers, replaces a worker that dies, passes signals on, and ends when all
workers have ended. A worker ends when its parent dies. A reload replaces the workers one after the
other by workers with the new settings. All workers accept connections from the parent's socket.

A worker reports when it is ready. If it dies before that, its start has failed. The server ends
only if no worker can be started. A worker that dies later is replaced: immediately after its first
death, and with growing delays after further deaths. The other workers continue (F77).
"""

import asyncio
import contextlib
import itertools
import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field, replace
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import NamedTuple, TypeAlias

from proxy.api.assembly import server_options_of
from proxy.api.event_loop import freeze_objects, loop_factory
from proxy.api.reloading import LoadedConfiguration, ReadSettings, on_hangup
from proxy.api.response_keeping import examine_keeping, examine_state
from proxy.api.server import (
    SIGNALS,
    PublicAddress,
    Worker,
    address_at,
    open_server,
    open_sockets,
    retirement_seconds,
)
from proxy.errors import ExitedUnexpectedly, InvalidConfiguration, TemperError
from proxy.observability.logs import configure_logging
from proxy.observability.metrics import forget_process, share_folder
from proxy.observability.peer_workers import WorkerIdentity
from proxy.observability.standard_error import unblock_standard_error
from proxy.processes.start_progress import StageListener
from proxy.processes.supervisor import RemoteStatus, ServerStatus
from proxy.serving.managed_server import choose_window, server_name
from proxy.serving.opening import open_shared_server, server_urls
from proxy.settings import Settings
from proxy.systems import HAS_WORKERS, handle_signals

# The ends of a pipe. The parent sends the state of the model server that the workers share, or None
# if the worker has to retire. A worker sends one message: "" when it is ready to serve, or the
# error that ends it.
ParentLink: TypeAlias = "Connection[ServerStatus | None, str]"
WorkerLink: TypeAlias = "Connection[str, ServerStatus | None]"

logger = logging.getLogger(__name__)

_NAME = "a worker of Temper"
_APART = "%d workers are running, each with its own queue, slots and idempotency keys"
MOST_FAILED_STARTS = 3  # consecutive failures
FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0  # seconds before a worker that keeps dying is replaced
STEADY_SECONDS = 60.0  # seconds after which earlier deaths of a worker no longer count
_PATIENCE = 5.0  # seconds; the parent waits this much longer than a worker's own grace
_START_SECONDS = 120.0  # a new worker must be ready after this time; usually, it takes a second
_RETRY_SECONDS = 5.0  # until the next attempt, if a new worker failed with settings that work


async def run_workers(
    settings: Settings,
    on_stage: StageListener = lambda _stage: None,
    on_ready: Callable[[PublicAddress], None] = lambda _address: None,
    *,
    reload: ReadSettings | None = None,
) -> None:
    """Serve with `server.workers` processes until a signal ends it.

    `reload` reads the configuration again, and the workers are then replaced one after the other.
    Raises `InvalidConfiguration` and subclasses of `ProcessFailed`.
    """
    if not HAS_WORKERS:
        raise InvalidConfiguration("server.workers", "must be 1 on Windows")
    with open_sockets(settings.server) as sockets, share_folder() as counts:
        server_options_of(settings)  # so that an error is reported once, not by every worker
        examine_keeping(settings)
        examine_state(settings)
        read = reload or (lambda: settings)
        loaded = LoadedConfiguration(read, choose_window(settings), settings)
        settings = loaded.serving
        crew = _Crew(settings, sockets, counts)

        def renew() -> None:
            if loaded.reload():
                crew.replace(loaded.serving)

        async with open_shared_server(settings, on_stage, crew.publish) as server:
            backend = server.name if server is not None else ", ".join(server_urls(settings))
            on_ready(address_at(sockets, backend))
            logger.info(_APART, settings.server.workers)
            with on_hangup(renew) if reload is not None else contextlib.nullcontext():
                await crew.work()


class WorkerRestarts:
    """The delays before dead workers are started again. Workers are numbered from 1."""

    def __init__(self, count: int) -> None:
        self._deaths = dict.fromkeys(range(1, count + 1), 0)
        self._failed_starts = dict.fromkeys(self._deaths, 0)

    def reset(self, number: int) -> None:
        """Reset the counts of a worker that was replaced on purpose."""
        self._deaths[number] = self._failed_starts[number] = 0

    def delay_after(self, number: int, served: float | None) -> float | None:
        """Return the delay before the next start, in seconds.

        `served` is the time in seconds for which the dead worker was ready, None if it never
        became ready. Returns None if every worker has failed to start too often.
        """
        if served is not None:
            self._failed_starts[number] = 0
        else:
            self._failed_starts[number] += 1
            # if all workers have failed, the reason is a common one, such as a setting
            if min(self._failed_starts.values()) >= MOST_FAILED_STARTS:
                return None
        is_steady = served is not None and served >= STEADY_SECONDS
        deaths = self._deaths[number] = 1 if is_steady else self._deaths[number] + 1
        return min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(deaths - 2, 10)) if deaths > 1 else 0.0


class _Configuration(NamedTuple):
    """Settings, and the number of the reload that read them."""

    number: int
    settings: Settings


@dataclass(eq=False, slots=True)
class _RunningWorker:
    """The process of a worker, until it is reaped.

    `problem` is the error that the worker reported instead of becoming ready.
    """

    process: SpawnProcess
    configuration: _Configuration
    link: ParentLink
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    ready_since: float | None = None
    problem: str = ""

    def watch(self, on_ready: Callable[["_RunningWorker"], None]) -> None:
        """Set the worker's events when they happen; call `on_ready` when the worker is ready."""
        loop = asyncio.get_running_loop()

        def note_message() -> None:
            loop.remove_reader(self.link.fileno())
            self._receive()
            if self.ready_since is not None:
                self.ready.set()
                on_ready(self)

        def note_end() -> None:
            loop.remove_reader(self.process.sentinel)
            self.ended.set()

        loop.add_reader(self.link.fileno(), note_message)
        loop.add_reader(self.process.sentinel, note_end)

    def send(self, message: ServerStatus | None) -> None:
        with contextlib.suppress(OSError):  # the worker has just died
            self.link.send(message)

    def reap(self) -> None:
        """Kill the worker if it still runs; read its message if it was not read yet."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self.link.fileno())
        loop.remove_reader(self.process.sentinel)
        self.process.kill()  # no effect on a worker that has ended
        self.process.join()
        if self.ready_since is None and not self.problem:
            self._receive()
        self.link.close()

    def _receive(self) -> None:
        with contextlib.suppress(EOFError, OSError):  # the worker has died without a message
            self.problem = self.link.recv()
            if not self.problem:
                self.ready_since = asyncio.get_running_loop().time()


@dataclass(slots=True)
class _Crew:
    """Starts and supervises the workers, which share their metrics in the folder `counts`.

    After a reload, the workers are replaced in turn: a new worker starts, and the old worker
    retires when the new worker is ready. The next replacement begins when the old worker has ended,
    so there is at most one additional process. A configuration is `_proven` when a worker serves
    with it.
    """

    settings: InitVar[Settings]
    sockets: list[socket.socket]
    counts: str
    _configuration: _Configuration = field(init=False)
    _workers: list[_RunningWorker] = field(default_factory=list)
    _restarts: "WorkerRestarts" = field(init=False)
    _proven: _Configuration = field(init=False)
    _group: asyncio.TaskGroup = field(default_factory=asyncio.TaskGroup)
    _status: ServerStatus = field(default_factory=ServerStatus)
    _is_over: asyncio.Event = field(default_factory=asyncio.Event)
    _numbers: Iterator[int] = field(default_factory=partial(itertools.count, 1))
    _is_replacing: bool = False
    _change: asyncio.Event = field(default_factory=asyncio.Event)  # replaced at each change

    def __post_init__(self, settings: Settings) -> None:
        self._restarts = WorkerRestarts(settings.server.workers)
        self._configuration = self._proven = _Configuration(0, settings)

    def publish(self, status: ServerStatus) -> None:
        """Send all workers the state of the server that they share."""
        self._status = replace(status, log=())  # the parent has already written the log
        for worker in self._workers:
            worker.send(self._status)

    def replace(self, settings: Settings) -> None:
        """Apply new settings: replace the workers, one after the other."""
        self._configuration = _Configuration(next(self._numbers), settings)
        self._announce_change()

    async def work(self) -> None:
        """Keep the workers running until a signal arrives, and then end them."""
        try:
            with handle_signals(SIGNALS, lambda _number: self._is_over.set()):
                async with self._group as group:
                    for ordinal in range(1, self._proven.settings.server.workers + 1):
                        group.create_task(
                            self._supervise_worker(WorkerIdentity(ordinal, Path(self.counts)))
                        )
        except ExceptionGroup as failures:  # the first failure has canceled the other tasks
            raise failures.exceptions[0] from None
        finally:
            for worker in [*self._workers]:
                self._reap(worker)

    async def _supervise_worker(self, identity: WorkerIdentity) -> None:
        worker = self._start_worker(identity)
        while not self._is_over.is_set():
            if worker.ended.is_set():
                await self._wait_before_restart(worker, identity.number)
                worker = worker if self._is_over.is_set() else self._start_worker(identity)
            elif self._is_outdated(worker) and not self._is_replacing:
                worker = await self._replace_worker(worker, identity)
            else:
                await _first_of(worker.ended, self._change, self._is_over)
        worker.process.terminate()
        await self._wait_for_end(worker)

    async def _wait_before_restart(self, worker: _RunningWorker, number: int) -> None:
        """Wait before a dead worker is started again; raises `ExitedUnexpectedly`."""
        self._reap(worker)
        now = asyncio.get_running_loop().time()
        served = None if worker.ready_since is None else now - worker.ready_since
        if served is None and worker.configuration.number > self._proven.number:
            # otherwise a failing reload would end the server if all workers died after it
            self._reject(worker, f"exited with {_code_and_problem(worker)}")
            return
        delay = self._restarts.delay_after(number, served)
        if delay is None:
            self._is_over.set()
            problem = f"exited {MOST_FAILED_STARTS} times before it was ready, last with"
            raise ExitedUnexpectedly(_NAME, f"{problem} {_code_and_problem(worker)}")
        ended = _code_and_problem(worker)
        logger.warning("%s exited with %s; starting it again in %g s", _NAME, ended, delay)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._is_over.wait(), delay)

    async def _replace_worker(
        self, old: _RunningWorker, identity: WorkerIdentity
    ) -> _RunningWorker:
        """Start a worker with new settings; return it, or the old worker if the start fails."""
        self._is_replacing = True
        new = self._start_worker(identity)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_SECONDS):
                await _first_of(new.ready, new.ended, self._is_over)
        if new.ready.is_set():
            self._restarts.reset(identity.number)
            self._group.create_task(self._retire(old))
            return new
        has_ended = new.ended.is_set()
        self._reap(new)
        if self._is_over.is_set():
            return old
        late = f"was not ready after {_START_SECONDS:g} s"
        problem = f"exited with {_code_and_problem(new)}" if has_ended else late
        if new.configuration is self._proven:
            text = "a new worker %s; trying again in %g s, the old one continues"
            logger.error(text, problem, _RETRY_SECONDS)
            asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._end_turn)
        else:
            self._reject(new, problem)
            self._end_turn()
        return old

    def _reject(self, new: _RunningWorker, problem: str) -> None:
        """Return to the proven configuration: workers have already served with it."""
        logger.error("a new worker %s; the old configuration stays in use", problem)
        if not self._is_outdated(new):  # there was no further reload
            self._configuration = self._proven
        self._announce_change()

    async def _retire(self, old: _RunningWorker) -> None:
        """Let a worker finish its requests; then the next worker may be replaced."""
        old.send(None)
        grace = self._proven.settings.server.grace_seconds
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(retirement_seconds(grace) + _PATIENCE):
                await _first_of(old.ended, self._is_over)
        old.process.terminate()  # no effect on a worker that has ended
        await self._wait_for_end(old)
        if not any(map(self._is_outdated, self._workers)):
            logger.info("all workers use the new configuration")
        self._end_turn()

    def _end_turn(self) -> None:
        self._is_replacing = False
        self._announce_change()

    def _announce_change(self) -> None:
        change, self._change = self._change, asyncio.Event()
        change.set()

    def _start_worker(self, identity: WorkerIdentity) -> _RunningWorker:
        # spawn, because a fork would copy the parent's event loop and the locks of its threads
        context = multiprocessing.get_context("spawn")
        ends: tuple[ParentLink, WorkerLink] = context.Pipe()
        link, link_of_worker = ends
        arguments = (self._configuration.settings, self.sockets, link_of_worker, identity)
        process = context.Process(target=_run_worker, args=arguments, daemon=True)
        with link_of_worker:
            process.start()
        worker = _RunningWorker(process, self._configuration, link)
        self._workers.append(worker)
        worker.send(self._status)
        worker.watch(self._note_ready)
        return worker

    def _note_ready(self, worker: _RunningWorker) -> None:
        if worker.configuration.number > self._proven.number:
            self._proven = worker.configuration

    def _is_outdated(self, worker: _RunningWorker) -> bool:
        return worker.configuration is not self._configuration

    async def _wait_for_end(self, worker: _RunningWorker) -> None:
        """Wait until a worker has finished its requests; kill it if it does not end in time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._proven.settings.server.grace_seconds + _PATIENCE):
                await worker.ended.wait()
        self._reap(worker)

    def _reap(self, worker: _RunningWorker) -> None:
        if worker in self._workers:
            self._workers.remove(worker)
            worker.reap()
            # otherwise the gauges of the ended worker would be counted forever
            forget_process(worker.process.pid or 0, self.counts)


async def _first_of(*events: asyncio.Event) -> None:
    """Wait until one of the events is set."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _code_and_problem(worker: _RunningWorker) -> str:
    return f"code {worker.process.exitcode}" + (f" ({worker.problem})" if worker.problem else "")


def _run_worker(
    settings: Settings, sockets: list[socket.socket], link: WorkerLink, identity: WorkerIdentity
) -> None:
    """Run as a worker; ignores SIGHUP.

    The signal may reach all processes, including the workers, but the parent acts for all of them:
    it reads the configuration again and replaces the workers, or it ends and stops them.
    """
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    unblock_standard_error()
    configure_logging(settings.logging.format, settings.logging.level)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        try:
            runner.run(_serve_until_orphaned(settings, sockets, link, identity))
        except TemperError as error:  # any other error is reported with its traceback
            with contextlib.suppress(OSError):  # the parent is gone
                link.send(f"{error}")
            raise SystemExit(1) from None


async def _serve_until_orphaned(
    settings: Settings, sockets: list[socket.socket], link: WorkerLink, identity: WorkerIdentity
) -> None:
    loop = asyncio.get_running_loop()
    parent = multiprocessing.parent_process()
    if parent is not None:
        loop.add_reader(parent.sentinel, os.kill, os.getpid(), signal.SIGTERM)
    remote = RemoteStatus(server_name(settings.model))
    worker = Worker(remote, identity)

    def receive_message() -> None:
        try:
            if (status := link.recv()) is None:
                worker.retirement.set()
            else:
                remote.note(status)
        except EOFError:  # the parent has died, so this worker ends as well
            loop.remove_reader(link.fileno())

    loop.add_reader(link.fileno(), receive_message)
    async with open_server(sockets, settings, worker=worker) as (server, _address):
        freeze_objects()
        with contextlib.suppress(OSError):  # the parent has died, so this worker ends as well
            link.send("")
        await asyncio.shield(server)
