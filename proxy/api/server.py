"""Runs Temper: the configured models, the application, and the listening sockets."""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from proxy.api.connections import (
    DEFAULT_LIMITS,
    ConnectionLimits,
    GuardedConnection,
    limit_connections,
)
from proxy.api.hosted import open_app, warm_up
from proxy.api.reloading import ReadSettings, on_hangup
from proxy.backends.connection_pool import acknowledged_within, probe_quiet_peer
from proxy.errors import InvalidConfiguration
from proxy.observability.board import Board
from proxy.observability.peer_workers import WorkerIdentity
from proxy.processes.managed import Supervised
from proxy.processes.start_progress import StageListener
from proxy.settings import Settings
from proxy.settings.sections import Server as ServerSettings
from proxy.systems import handle_signals, open_file_limit

logger = logging.getLogger(__name__)

# uvicorn's default; with asyncio's default of 100, a burst of clients waits for TCP retries
_BACKLOG = 2048
_UNSENT = 64 * 1024  # bytes that the kernel buffers for each client
_CUT_OFF_SECONDS = 2.0  # seconds for the last message to clients when the server stops
_LAST_REQUEST_SECONDS = 2.0  # time for one more request on an idle connection of a retiring server
# Longer than clients keep an idle connection (httpx 5 s, aiohttp 15 s). If the server closed first,
# a client that sends its next request at that moment would get an error.
KEEP_ALIVE_SECONDS = 75
OWN_FILES = 32  # open files that are reserved for backends, settings and modules
_FEW_FILES = 256  # with fewer open files, a warning is logged
_STOPPING = "stopping: running requests (%d) have %d s to finish; a second signal ends them"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Worker:
    """The parent's information for a worker: the model's server, and the worker's identity.

    The worker stops when `retirement` is set, because another worker has taken its place.
    """

    remote: Supervised | None = None
    identity: WorkerIdentity | None = None
    retirement: asyncio.Event = field(default_factory=asyncio.Event)


_ALONE = Worker()


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """The address of Temper and the name of its backend.

    `ollama_url` is the address for clients of Ollama, "" if there is none. `board` has the running
    requests; it is None if they run in other processes, or if the dashboard is disabled.
    """

    url: str
    backend: str
    ollama_url: str = ""
    board: Board | None = None


async def run(
    settings: Settings,
    on_stage: StageListener = lambda _stage: None,
    on_ready: Callable[[PublicAddress], None] = lambda _address: None,
    *,
    reload: ReadSettings | None = None,
) -> None:
    """Serve until a signal arrives; then stop everything that was started.

    `on_stage` is called with the progress of starting a model, and `on_ready` when the server
    accepts clients. `reload` reads the configuration again. Raises `InvalidConfiguration` and
    subclasses of `ProcessFailed`.
    """
    with open_sockets(settings.server) as sockets:
        opening = open_server(sockets, settings, on_stage, reload=reload)
        async with opening as (server, address):
            on_ready(address)
            # This raises the error of a model that cannot be loaded. `shield`, because a
            # cancellation must not reach the server: leaving `opening` lets running requests
            # finish.
            await asyncio.shield(server)


@asynccontextmanager
async def open_server(
    sockets: Sequence[socket.socket],
    settings: Settings,
    on_stage: StageListener = lambda _stage: None,
    *,
    worker: Worker = _ALONE,
    reload: ReadSettings | None = None,
    signals: Sequence[signal.Signals] = SIGNALS,
) -> AsyncGenerator[tuple[asyncio.Task[None], PublicAddress]]:
    """Serve on sockets while the block runs; yields the task once it accepts clients.

    The task ends after one of the `signals`, or after the retirement of the `worker`; see
    `serving`.
    """
    listening, *also = sockets
    server = settings.server
    most = limit_to_files(server.max_connections)
    limits = ConnectionLimits(
        server.header_seconds, most, server.stall_seconds, server.body_seconds
    )
    opening = open_app(
        settings, on_stage, remote=worker.remote, identity=worker.identity, reload=reload
    )
    async with opening as opened:
        address = replace(address_at(sockets, opened.services.name), board=opened.board)
        async with serving(
            opened,
            listening,
            server.grace_seconds,
            limits,
            also=also,
            signals=signals,
            retirement=worker.retirement,
        ) as task:
            hangups = on_hangup(opened.renew) if reload is not None else contextlib.nullcontext()
            with hangups, warm_up():
                yield task, address


def limit_to_files(connections: int) -> int:
    """Limit `connections` to as many as open files allow; the result may be less than 1."""
    files = open_file_limit()
    return connections if files < 0 else min(connections, files - OWN_FILES)


def _check_files(connections: int) -> None:
    """Warn if the limit of open files is low; raises `InvalidConfiguration` if it is too low."""
    # If there were more connections than files, `accept` would fail with EMFILE in a loop, and no
    # request would be answered.
    files, most = open_file_limit(), limit_to_files(connections)
    advice = f"ulimit -n {connections + 2 * OWN_FILES}, or LimitNOFILE of systemd"
    if most < 1:
        problem = f"only {files} files may be open, and Temper needs more ({advice})"
        raise InvalidConfiguration("server.max_connections", problem)
    if most < connections and files < _FEW_FILES:
        problem = (
            "Only %d files may be open, so at most %d connections are accepted; allow more: %s"
        )
        logger.warning(problem, files, most, advice)


@contextmanager
def open_sockets(settings: ServerSettings) -> Generator[list[socket.socket]]:
    """Open the listening socket, and with `ollama_port` a second socket for clients of Ollama.

    Raises `InvalidConfiguration`.
    """
    _check_files(settings.max_connections)
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(contextlib.closing(listen(settings.host, settings.port)))]
        if settings.ollama_port:
            try:
                another = listen(settings.host, settings.ollama_port)
            except InvalidConfiguration as error:
                # any other error is about the host, which both sockets have in common
                if error.setting != "server.port":
                    raise
                problem = (
                    f"port {settings.ollama_port} is used by an Ollama or another program; "
                    "stop it, or omit --like-ollama"
                )
                raise InvalidConfiguration("server.ollama_port", problem) from error
            opened.append(stack.enter_context(contextlib.closing(another)))
        yield opened


def address_at(sockets: Sequence[socket.socket], backend: str) -> PublicAddress:
    """Return the address of a server that listens on these sockets."""
    first, *others = map(url_of, sockets)
    return PublicAddress(first, backend, "".join(others))


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket; for port 0, the kernel chooses a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host.strip("[]"), port), family=family, backlog=_BACKLOG)
    except OSError as error:
        wrong = "port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "host"
        reason = os.strerror(error.errno) if error.errno is not None else str(error)
        problem = f"cannot listen on {host}:{port} ({reason}); choose another --{wrong}"
        raise InvalidConfiguration(f"server.{wrong}", problem) from error
    # Connections inherit TCP_NODELAY from this socket. asyncio would set the option only for
    # sockets with a protocol number, which this socket lacks. Without the option, the body of a
    # response waits 40 ms until the client acknowledges the head: 43 ms instead of 2 ms.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # by default, the kernel would buffer 4 MB for each client that reads nothing
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNSENT)
    return listening


def disconnect_lost_clients(listening: socket.socket, seconds: float) -> None:
    """Disconnect a client whose host has vanished silently; accepted sockets inherit the options.

    The kernel probes idle clients. It retransmits unacknowledged output for at most `seconds`.
    """
    probe_quiet_peer(listening, seconds)
    for option in acknowledged_within(seconds):
        listening.setsockopt(*option)


def url_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def retirement_seconds(grace: float) -> int:
    """Return the longest time that a retiring server needs to end.

    The last response of a connection may need the whole `grace`, and one more request may follow.
    """
    return 2 * max(1, round(grace)) + round(_LAST_REQUEST_SECONDS)


@asynccontextmanager
async def serving(  # noqa: PLR0913 - all but the first four are keyword arguments
    app: ASGIApp,
    listening: socket.socket,
    grace: float,
    limits: ConnectionLimits = DEFAULT_LIMITS,
    *,
    also: Sequence[socket.socket] = (),
    signals: Sequence[signal.Signals] = SIGNALS,
    retirement: asyncio.Event | None = None,
) -> AsyncGenerator[asyncio.Task[None], None]:
    """Serve an application on a socket; yields the serving task once it accepts clients.

    After the first of the `signals`, running requests get at most `grace` seconds; then the task
    ends. A second signal ends it at once. Leaving the context has the effect of the first signal.
    Outside the main thread, `signals` must be empty, because Python handles signals only in the
    main thread.

    After `retirement`, another process serves the same socket. Connections then stay open for one
    request that may be on its way, and the task ends after at most `retirement_seconds`.
    """
    config = uvicorn.Config(
        app,
        http=limit_connections(limits),
        ws="none",
        log_config=None,  # the application configures logging, for uvicorn as well
        access_log=False,  # `observability.logs` writes a line for each request
        server_header=False,
        timeout_graceful_shutdown=max(1, round(grace)),
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )
    disconnect_lost_clients(listening, limits.stall_seconds)
    server = _UvicornServer(config, retirement or asyncio.Event())
    signal_handlers = contextlib.ExitStack()
    task = asyncio.create_task(server.serve(sockets=[listening, *also]))
    try:
        await server.ready.wait()
        # set only now: if a signal stops uvicorn while it starts, it leaves its sockets open
        signal_handlers.enter_context(
            handle_signals(signals, lambda number: server.handle_exit(number, None))
        )
        yield task
    finally:
        server.should_exit = True
        await task
        signal_handlers.close()


class _UvicornServer(uvicorn.Server):
    """A uvicorn that does not handle signals, and that reports when it is ready.

    uvicorn handles signals by raising them again at its end. This would kill the process before the
    model's server is stopped.
    """

    def __init__(self, config: uvicorn.Config, retirement: asyncio.Event) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._retirement = retirement
        self._has_signal = False
        self._grace = config.timeout_graceful_shutdown or 0

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def on_tick(self, counter: int) -> bool:
        """Return True if the main loop should end, for example because of the retirement."""
        return await super().on_tick(counter) or self._retirement.is_set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for running requests, cancel them after the grace, and let them send an error."""
        if not self.should_exit:
            await self._retire_connections()
            super().handle_exit(signal.SIGTERM, None)  # ends the feeds of dashboards
        await super().shutdown(sockets)
        tasks = set(self.server_state.tasks)
        for task in tasks if self.force_exit else ():
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CUT_OFF_SECONDS)
        if self.force_exit:  # without `force_exit`, uvicorn does this itself
            await self.lifespan.shutdown()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Let running requests finish after the first signal; end them after the second."""
        running = len(self.server_state.tasks)
        if running and not self._has_signal:
            logger.info(_STOPPING, running, self._grace)
        if self._retirement.is_set():  # a retirement may take longer than the grace
            asyncio.get_running_loop().call_later(self._grace, self._end_now)
        super().handle_exit(sig, frame)
        self.force_exit = self._has_signal
        self._has_signal = True

    async def _retire_connections(self) -> None:
        for server in self.servers:
            server.close()
        await asyncio.sleep(0)  # a connection that was just accepted is added to the others
        idle_seconds = min(_LAST_REQUEST_SECONDS, self._grace / 2)
        for connection in [*self.server_state.connections]:
            if isinstance(connection, GuardedConnection):
                connection.retire(idle_seconds)
        self.config.timeout_graceful_shutdown = retirement_seconds(self._grace)

    def _end_now(self) -> None:
        self.force_exit = True
