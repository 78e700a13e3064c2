"""Runs Temper: the models that the settings name, the application, and the listening socket."""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from proxy.api.connections import DEFAULT_LIMITS, ConnectionLimits, limit_connections
from proxy.api.hosted import open_app, warm_up
from proxy.api.reloading import ReadSettings, on_hangup
from proxy.backends.connection_pool import acknowledged_within, probe_quiet_peer
from proxy.errors import InvalidConfiguration
from proxy.observability.peer_workers import WorkerPlace
from proxy.processes.managed import Supervised
from proxy.processes.start_progress import StageListener
from proxy.settings import Settings
from proxy.settings.sections import Server as ServerSettings
from proxy.systems import handle_signals, open_file_limit

logger = logging.getLogger(__name__)

_BACKLOG = 2048
_UNSENT = 64 * 1024  # bytes of an answer that the kernel keeps for a client
_CUT_OFF_SECONDS = 2.0  # for telling clients that the server stops
# longer than clients keep a connection (httpx 5 s, aiohttp 15 s): one that is closed at
# the moment in which it is used again is an error that no client can tell from a crash
KEEP_ALIVE_SECONDS = 75
OWN_FILES = 32  # open files that are kept for backends, settings and modules
_FEW_FILES = 256
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Worker:
    """What the parent gives a worker: the model's server, and the worker's place."""

    remote: Supervised | None = None
    place: WorkerPlace | None = None


_ALONE = Worker()


@dataclass(frozen=True, slots=True)
class PublicAddress:
    """Where Temper can be reached, and the backend behind it.

    `ollama_url` is where clients look for an Ollama, "" where Temper does not listen there.
    """

    url: str
    backend: str
    ollama_url: str = ""


async def run(
    settings: Settings,
    on_stage: StageListener = lambda _stage: None,
    on_ready: Callable[[PublicAddress], None] = lambda _address: None,
    *,
    reload: ReadSettings | None = None,
) -> None:
    """Serve until a signal ends it; everything that was started is stopped.

    `on_stage` follows the start of a model, `on_ready` is called when clients are welcome, and
    `reload` reads the configuration again. Raises `InvalidConfiguration` and `ProcessFailed` kinds
    of errors.
    """
    with open_sockets(settings.server) as sockets:
        opening = open_server(sockets, settings, on_stage, reload=reload)
        async with opening as (server, address):
            on_ready(address)
            # a model that cannot be loaded ends the server cleanly
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
    """Serve on sockets while the block runs; yields, once clients are welcome, what does it.

    The task ends when one of the `signals` came, see `serving`.
    """
    listening, *also = sockets
    own = settings.server
    most = limit_to_files(own.max_connections)
    limits = ConnectionLimits(own.header_seconds, most, own.stall_seconds, own.body_seconds)
    opening = open_app(settings, on_stage, remote=worker.remote, place=worker.place, reload=reload)
    async with opening as found:
        address = address_at(sockets, found.services.name)
        async with serving(
            found, listening, own.grace_seconds, limits, also=also, signals=signals
        ) as server:
            heeding = on_hangup(found.renew) if reload is not None else contextlib.nullcontext()
            with heeding, warm_up():
                yield server, address


def limit_to_files(connections: int) -> int:
    """Return how many connections leave room for Temper's own files; may be less than one."""
    files = open_file_limit()
    return connections if files < 0 else min(connections, files - OWN_FILES)


def _check_files(connections: int) -> None:
    """Warn if few files may be open; raises `InvalidConfiguration` if too few."""
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
def open_sockets(own: ServerSettings) -> Generator[list[socket.socket]]:
    """Open the listening sockets, that for Ollama's clients last; raises `InvalidConfiguration`."""
    _check_files(own.max_connections)
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(contextlib.closing(listen(own.host, own.port)))]
        if own.ollama_port:
            try:
                another = listen(own.host, own.ollama_port)
            except InvalidConfiguration as error:
                if error.setting != "server.port":
                    raise
                problem = (
                    f"port {own.ollama_port} cannot be had, as an Ollama or another program has "
                    "it: stop that, or leave --like-ollama out"
                )
                raise InvalidConfiguration("server.ollama_port", problem) from error
            opened.append(stack.enter_context(contextlib.closing(another)))
        yield opened


def address_at(sockets: Sequence[socket.socket], backend: str) -> PublicAddress:
    """Return where clients find a server that listens on these sockets."""
    return PublicAddress(url_of(sockets[0]), backend, *map(url_of, sockets[1:]))


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host.strip("[]"), port), family=family, backlog=_BACKLOG)
    except OSError as error:
        wrong = "port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "host"
        reason = os.strerror(error.errno) if error.errno is not None else str(error)
        problem = f"cannot listen on {host}:{port} ({reason}); choose another --{wrong}"
        raise InvalidConfiguration(f"server.{wrong}", problem) from error
    # Connections inherit it. asyncio sets it only where the socket's protocol number is given, and
    # without it a body waits 40 ms for the client to acknowledge the head (43 ms -> 2 ms).
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # Else the kernel buffers 4 MB for each client that reads nothing, and Temper reads on.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNSENT)
    return listening


def give_up_lost_clients(listening: socket.socket, seconds: float) -> None:
    """End connections whose client's host has gone, which is silent: accepted sockets inherit it.

    The kernel probes a client that only waits, and repeats what it was sent for `seconds`.
    """
    probe_quiet_peer(listening, seconds)
    for option in acknowledged_within(seconds):
        listening.setsockopt(*option)


def url_of(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@asynccontextmanager
async def serving(
    app: ASGIApp,
    listening: socket.socket,
    grace: float,
    limits: ConnectionLimits = DEFAULT_LIMITS,
    *,
    also: Sequence[socket.socket] = (),
    signals: Sequence[signal.Signals] = SIGNALS,
) -> AsyncGenerator[asyncio.Task[None], None]:
    """Serve an application on a socket; yields the serving task once it accepts clients.

    After SIGINT or SIGTERM running requests get at most `grace` seconds, then the task ends; a
    second signal ends it at once. Leaving the context does the same as a signal. `signals` need
    the main thread.
    """
    config = uvicorn.Config(
        app,
        http=limit_connections(limits),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=max(1, round(grace)),
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )
    give_up_lost_clients(listening, limits.stall_seconds)
    server = _UvicornServer(config)
    heeding = contextlib.ExitStack()
    task = asyncio.create_task(server.serve(sockets=[listening, *also]))
    try:
        await server.ready.wait()
        # not before: a uvicorn that is told to end while it starts leaves its sockets open
        heeding.enter_context(
            handle_signals(signals, lambda number: server.handle_exit(number, None))
        )
        yield task
    finally:
        server.should_exit = True
        await task
        heeding.close()


class _UvicornServer(uvicorn.Server):
    """A uvicorn that leaves signals to us and reports when it is ready.

    uvicorn raises a signal again when it has ended, which would kill this process before the
    model's server is stopped.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for running requests, then cancel the rest cleanly."""
        await super().shutdown(sockets)
        left = set(self.server_state.tasks)
        for task in left if self.force_exit else ():
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=_CUT_OFF_SECONDS)
        if self.force_exit:  # uvicorn does so otherwise
            await self.lifespan.shutdown()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain on the first signal, leave at once on the second."""
        self.force_exit = self.should_exit
        super().handle_exit(sig, frame)
