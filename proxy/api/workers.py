"""Several processes that accept connections from one listening socket.

Several workers are needed if a backend generates more tokens than one core can forward. Each worker
is a complete Temper, but only the parent runs the model's server. Workers share only their metrics.
The parent starts the workers, replaces a worker that dies, passes signals on, and ends when all
workers have ended. A worker ends when its parent dies.

A worker reports when it is ready. A worker that dies before that has failed to start; the server
ends only if no worker can be started. A worker that dies later is replaced: immediately after its
first death, and with growing delays after further deaths. The other workers continue (F77).
"""

import asyncio
import contextlib
import logging
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import TypeAlias

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
)
from proxy.errors import ExitedUnexpectedly, InvalidConfiguration
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

# The ends of a pipe: the parent sends the state of the model's server, which all workers share, and
# a worker sends one message when it is ready to serve.
ParentLink: TypeAlias = "Connection[ServerStatus, bool]"
WorkerLink: TypeAlias = "Connection[bool, ServerStatus]"

logger = logging.getLogger(__name__)

_NAME = "a worker of Temper"
_APART = "%d workers are running, each with its own queue, slots and idempotency keys"
MOST_FAILED_STARTS = 3  # consecutive failures
FIRST_DELAY, LONGEST_DELAY = 0.5, 30.0  # seconds before a worker that keeps dying is replaced
STEADY_SECONDS = 60.0  # seconds after which earlier deaths of a worker no longer count
_PATIENCE = 5.0  # seconds beyond the grace that a worker gives its own requests


async def run_workers(
    settings: Settings,
    on_stage: StageListener = lambda _stage: None,
    on_ready: Callable[[PublicAddress], None] = lambda _address: None,
    *,
    reload: ReadSettings | None = None,
) -> None:
    """Serve with `server.workers` processes until a signal ends it.

    `reload` reads the configuration again; all workers are replaced then, each after it has
    finished its requests. Raises `InvalidConfiguration` and subclasses of `ProcessFailed`.
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
            # all workers fail for the same reason, such as a setting, so no restart can help
            if min(self._failed_starts.values()) >= MOST_FAILED_STARTS:
                return None
        is_steady = served is not None and served >= STEADY_SECONDS
        deaths = self._deaths[number] = 1 if is_steady else self._deaths[number] + 1
        return min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(deaths - 2, 10)) if deaths > 1 else 0.0


@dataclass(slots=True)
class _Crew:
    """Starts and supervises the workers, which share their metrics in the folder `counts`."""

    settings: Settings
    sockets: list[socket.socket]
    counts: str
    _current: set[SpawnProcess] = field(default_factory=set)  # without workers to be replaced
    _ready_since: dict[SpawnProcess, float] = field(default_factory=dict)
    _links: set[ParentLink] = field(default_factory=set)
    _restarts: "WorkerRestarts" = field(init=False)
    _status: ServerStatus = field(default_factory=ServerStatus)
    _is_over: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._restarts = WorkerRestarts(self.settings.server.workers)

    def publish(self, status: ServerStatus) -> None:
        """Send all workers the state of the server that they share."""
        self._status = replace(status, log=())  # the parent has logged it
        for link in self._links:
            self._send_status(link)

    def replace(self, settings: Settings) -> None:
        """Apply new settings: replace every worker after it has finished its requests."""
        self.settings = settings
        for worker in self._current:
            worker.terminate()
        self._current.clear()

    async def work(self) -> None:
        """Keep the workers running until a signal arrives, and then end them."""
        try:
            with handle_signals(SIGNALS, lambda _number: self._is_over.set()):
                async with asyncio.TaskGroup() as group:
                    for ordinal in range(1, self.settings.server.workers + 1):
                        group.create_task(
                            self._supervise_worker(WorkerIdentity(ordinal, Path(self.counts)))
                        )
        except ExceptionGroup as failures:  # the first failure has canceled the other tasks
            raise failures.exceptions[0] from None

    async def _supervise_worker(self, identity: WorkerIdentity) -> None:
        while not self._is_over.is_set():
            with self._start_worker(identity) as worker:
                self._current.add(worker)
                await self._wait_for_end(worker)
            if self._is_over.is_set():
                return
            ready_since = self._ready_since.pop(worker, None)
            if worker not in self._current:  # the worker was replaced because the settings changed
                self._restarts.reset(identity.number)
                continue
            self._current.discard(worker)
            now = asyncio.get_running_loop().time()
            served = None if ready_since is None else now - ready_since
            delay = self._restarts.delay_after(identity.number, served)
            if delay is None:
                self._is_over.set()
                problem = f"exited {MOST_FAILED_STARTS} times before it was ready, last with code"
                raise ExitedUnexpectedly(_NAME, f"{problem} {worker.exitcode}")
            logger.warning(
                "%s exited with %s; starting it again in %g s", _NAME, worker.exitcode, delay
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_over.wait(), delay)

    @contextlib.contextmanager
    def _start_worker(self, identity: WorkerIdentity) -> Iterator[SpawnProcess]:
        """Start a worker, which is sent the server's state while the block runs."""
        # spawn: a fork would copy the parent's event loop, and locks that its threads hold
        context, loop = multiprocessing.get_context("spawn"), asyncio.get_running_loop()
        ends: tuple[ParentLink, WorkerLink] = context.Pipe()
        link, link_of_worker = ends
        arguments = (self.settings, self.sockets, link_of_worker, identity)
        worker = context.Process(target=_run_worker, args=arguments, daemon=True)

        def note_readiness() -> None:
            loop.remove_reader(link.fileno())
            with contextlib.suppress(EOFError, OSError):  # the worker has just died
                link.recv()
                self._ready_since[worker] = loop.time()

        with link:
            with link_of_worker:
                worker.start()
            self._send_status(link)
            self._links.add(link)
            loop.add_reader(link.fileno(), note_readiness)
            try:
                yield worker
            finally:
                loop.remove_reader(link.fileno())
                self._links.discard(link)

    def _send_status(self, link: ParentLink) -> None:
        with contextlib.suppress(OSError):  # the worker has just died
            link.send(self._status)

    async def _wait_for_end(self, worker: SpawnProcess) -> None:
        """Wait for the end of a worker; after a signal, kill it if it does not end in time."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(worker.sentinel, ended.set)
        waits = [asyncio.create_task(event.wait()) for event in (ended, self._is_over)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not ended.is_set():
                worker.terminate()
                timeout = self.settings.server.grace_seconds + _PATIENCE
                await asyncio.wait(waits[:1], timeout=timeout)
        finally:
            for wait in waits:
                wait.cancel()
            loop.remove_reader(worker.sentinel)
            worker.kill()  # no effect on a worker that has ended
            worker.join()
            # otherwise the gauges of the ended worker would be counted forever
            forget_process(worker.pid or 0, self.counts)


def _run_worker(
    settings: Settings, sockets: list[socket.socket], link: WorkerLink, identity: WorkerIdentity
) -> None:
    """Run as a worker; ignores SIGHUP.

    A terminal sends SIGHUP to the whole process group. The parent then reads the configuration
    again, and replaces its workers, so a worker has nothing to do.
    """
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    unblock_standard_error()
    configure_logging(settings.logging.format, settings.logging.level)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve_until_orphaned(settings, sockets, link, identity))


async def _serve_until_orphaned(
    settings: Settings, sockets: list[socket.socket], link: WorkerLink, identity: WorkerIdentity
) -> None:
    loop = asyncio.get_running_loop()
    parent = multiprocessing.parent_process()
    if parent is not None:
        loop.add_reader(parent.sentinel, os.kill, os.getpid(), signal.SIGTERM)
    remote = RemoteStatus(server_name(settings.model))

    def receive_status() -> None:
        try:
            remote.note(link.recv())
        except EOFError:  # the parent is gone, and this worker ends too
            loop.remove_reader(link.fileno())

    loop.add_reader(link.fileno(), receive_status)
    async with open_server(sockets, settings, worker=Worker(remote, identity)) as (
        server,
        _address,
    ):
        freeze_objects()
        with contextlib.suppress(OSError):  # the parent is gone, and this worker ends too
            link.send(True)  # noqa: FBT003 - a message
        await asyncio.shield(server)
