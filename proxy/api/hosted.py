"""Temper as an ASGI application for somebody else's server: `uvicorn proxy.api.hosted:app`.

The server around it owns sockets, signals and processes, so the settings for these have no effect.
Every server uses `open_app`, also our own.
"""

import asyncio
import contextlib
import ipaddress
import logging
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from typing import TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.api.app import create_app
from proxy.api.assembly import server_options_of
from proxy.api.errors import error_response
from proxy.api.observing import open_observers, publish_to_peers
from proxy.api.reloading import LoadedConfiguration, ReadSettings, reload_services
from proxy.api.response_keeping import open_dialects
from proxy.dialects.dialect import Problem
from proxy.errors import TemperError
from proxy.guardrails.announcements.recognition import prepare
from proxy.mcp.lazy import LazyToolServers
from proxy.observability.logs import configure_logging
from proxy.observability.peer_workers import WorkerPlace
from proxy.processes.managed import ManagedBackend, Supervised
from proxy.processes.start_progress import StageListener
from proxy.serving.opening import open_services
from proxy.serving.services import Services
from proxy.settings import Settings, load_settings
from proxy.settings.sections import Server

logger = logging.getLogger(__name__)

Beside: TypeAlias = Callable[[ASGIApp], contextlib.AbstractAsyncContextManager[None]]

OWNED = (
    "host", "port", "ollama_port", "workers", "max_connections", "header_seconds", "stall_seconds",
)  # fmt: skip
_OTHERS = "the server around Temper owns sockets and processes: %s counts for nothing here"
_WARM_UP_SECONDS = 0.5  # the first request comes first
_SWITCH_SECONDS = 0.0005  # else the event loop would wait ten times as long for the GIL
GENTLE_WORK = threading.Lock()  # is held meanwhile: two would take each other's for the usual
_ANYWHERE = "0.0.0.0"  # noqa: S104 - where the server around us listens is not known here
_NOT_OPEN = "Temper is not open: the server around it has to send ASGI's lifespan events."
_NO_KEY = (
    "Temper has no key, so it answers this machine only: its operator has to set server.api_key."
)


@dataclass(slots=True)
class OpenedApp:
    """The application in use, with its services; `renew` reads the configuration again.

    Running requests stay with the application that they began with.
    """

    app: ASGIApp
    services: Services
    renew: Callable[[], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


@contextlib.asynccontextmanager
async def open_app(
    settings: Settings,
    on_stage: StageListener = lambda _stage: None,
    *,
    remote: Supervised | None = None,
    place: WorkerPlace | None = None,
    reload: ReadSettings | None = None,
    replica: str | None = None,
) -> AsyncGenerator[OpenedApp]:
    """Open what the settings name, and make the application; see `open_services`.

    Raises `InvalidConfiguration` and, also inside the block, `ProcessFailed` kinds of errors.
    """
    options = server_options_of(settings)
    async with (
        contextlib.aclosing(LazyToolServers()) as tools,
        open_services(settings, options, on_stage, remote=remote) as services,
    ):
        with open_observers(settings, place, replica) as observers:
            async with open_dialects(settings, observers) as dialects, publish_to_peers(observers):
                loaded = LoadedConfiguration(reload or (lambda: settings), settings, settings)

                def renew() -> None:
                    if loaded.reload():
                        logs = loaded.serving.logging
                        configure_logging(logs.format, logs.level, replica=replica)
                        terms = server_options_of(loaded.serving)
                        again = reload_services(services, loaded.serving, terms)
                        renewed = tools.apply(loaded.serving)
                        opened.app = create_app(again, terms, observers, dialects, tools=renewed)

                app = create_app(
                    services, options, observers, dialects, tools=tools.apply(settings)
                )
                opened = OpenedApp(app, services, renew)
                yield opened


@contextlib.contextmanager
def warm_up(
    work: Callable[[], None] = prepare, delay: float = _WARM_UP_SECONDS
) -> Iterator[threading.Timer]:
    """Prepare in a thread what the first replies would wait for, unless the block ends first."""
    timer = threading.Timer(delay, _run_low_priority, (work,))
    timer.daemon = True
    timer.start()
    try:
        yield timer
    finally:
        timer.cancel()


def _run_low_priority(work: Callable[[], None]) -> None:
    """Do work while other threads get the GIL soon."""
    with GENTLE_WORK:
        before = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            work()
        except OSError as error:  # as when too many files are open; a request tries again
            logger.warning("Warming up failed (%s); if that is a limit, raise it: ulimit -n", error)
        finally:
            sys.setswitchinterval(before)


@dataclass(eq=False)
class Hosted:
    """The application; the configuration is read (`read`) only when it is opened.

    `beside` lives as long as the application it is given; `replica` names this one among others.
    """

    read: ReadSettings = load_settings
    _: KW_ONLY
    beside: Beside = lambda _app: contextlib.nullcontext()
    replica: str | None = None
    _life: asyncio.Task[None] | None = None
    _opened: asyncio.Future[OpenedApp] = field(init=False)
    _closing: asyncio.Event = field(init=False)
    _app: ASGIApp = field(default_factory=lambda: _refusal(503, _NOT_OPEN))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection, or follow the life of the server."""
        if scope["type"] == "lifespan":
            await self._follow(receive, send)
        else:
            await self._app(scope, receive, send)

    async def open(self) -> None:
        """Open what the settings name, once; raises what `open_app` does."""
        if self._life is None:
            self._opened = asyncio.get_running_loop().create_future()
            self._closing = asyncio.Event()
            self._life = asyncio.create_task(self._live())
        await asyncio.wait((self._opened, self._life), return_when=asyncio.FIRST_COMPLETED)
        if not self._opened.done():
            self._life.result()

    async def until_loaded(self) -> None:
        """Wait for the models that are loaded at the start.

        Raises `BackendUnavailable`, or a `ProcessFailed` kind of error, for one that cannot be.
        """
        for backend in self._list_managed():
            await backend.wait_until_granted()

    async def close(self) -> None:
        """Close everything; the server around it ends running requests."""
        if self._life is not None:
            self._closing.set()
            await asyncio.wait((self._life,))

    @property
    def problem(self) -> str:
        """Why a model of ours will not come back, "" while none is lost."""
        return next((one.problem for one in self._list_managed() if one.is_down), "")

    def _list_managed(self) -> list[ManagedBackend]:
        backends = (service.backend for service in self._opened.result().services)
        return [backend for backend in backends if isinstance(backend, ManagedBackend)]

    async def _follow(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.open()
        except TemperError as error:
            logger.error("Temper cannot start: %s", error)
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.close()
        await send({"type": "lifespan.shutdown.complete"})

    async def _live(self) -> None:
        """Own what is open, from its beginning to its end."""
        asked = self.read()
        configure_logging(asked.logging.format, asked.logging.level, replica=self.replica)
        usual, own = Server(), asked.server
        taken = [f"server.{one}" for one in OWNED if getattr(own, one) != getattr(usual, one)]
        if taken:
            logger.warning(_OTHERS, ", ".join(taken))
        try:
            async with (
                open_app(_as_guest(asked), replica=self.replica) as found,
                self.beside(found),
            ):
                with warm_up():
                    self._app = found if _has_key(asked) else _local_only(found)
                    self._opened.set_result(found)
                    await self._closing.wait()
        except TemperError as error:
            self._app = _refusal(503, str(error))
            if self._opened.done():  # nothing else reports it
                logger.error("Temper has ended: %s", error)
            else:
                raise


def _local_only(app: ASGIApp) -> ASGIApp:
    """Refuse other machines, because no key is configured."""
    refusal = _refusal(403, _NO_KEY)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        is_here = _is_here(client[0] if client else "")
        await (app if is_here else refusal)(scope, receive, send)

    return answer


def _refusal(status: int, problem: str) -> ASGIApp:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        kind = "server_error" if status >= 500 else "permission_error"
        await error_response(Problem(status, kind, problem), scope)(scope, receive, send)

    return refuse


def _is_here(client: str) -> bool:
    """Whether a client is on this machine; a Unix socket's client has no address."""
    try:
        return ipaddress.ip_address(client).is_loopback
    except ValueError:
        return True


def _has_key(settings: Settings) -> bool:
    return settings.server.api_key is not None or settings.server.api_keys_file is not None


def _as_guest(settings: Settings) -> Settings:
    """Return the settings for an application whose address and workers are somebody else's.

    With a key any host name is accepted unless some are listed; without one only loopback's.
    """
    place = {"workers": 1, "host": _ANYWHERE if _has_key(settings) else "127.0.0.1"}
    return settings.model_copy(update={"server": settings.server.model_copy(update=place)})


app = Hosted()
"""Goes by `temper.toml` in the working directory and by `TEMPER_*`, as `temper serve` does."""
