"""Temper as an ASGI application for another server: `uvicorn proxy.api.hosted:app`.

The other server owns sockets, signals and processes, so the settings for these have no effect.
Temper's own server also opens the application with `open_app`.
"""

import asyncio
import contextlib
import ipaddress
import logging
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
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
from proxy.inference.kept_reasoning import ReasoningStore
from proxy.mcp.lazy import LazyToolServers
from proxy.observability.board import Board
from proxy.observability.logs import configure_logging
from proxy.observability.peer_workers import WorkerIdentity
from proxy.observability.standard_error import unblock_standard_error
from proxy.processes.managed import ManagedBackend, Supervised
from proxy.processes.start_progress import StageListener
from proxy.serving.opening import open_services
from proxy.serving.services import Services
from proxy.settings import Settings, load_settings
from proxy.settings.sections import Section, Server

logger = logging.getLogger(__name__)

Companion: TypeAlias = Callable[[ASGIApp], contextlib.AbstractAsyncContextManager[None]]

# settings of the server that have no effect when another server runs the application
OWNED = (
    "host", "port", "ollama_port", "workers", "max_connections", "header_seconds", "stall_seconds",
)  # fmt: skip
_OTHERS = "%s: no effect here, because another server owns sockets and processes"
_WARM_UP_SECONDS = 0.5  # the warm-up starts after this time, so as not to slow down a first request
# The time for which the warm-up may hold the GIL. With Python's default of 5 ms, the event loop
# would wait ten times as long for the GIL.
_SWITCH_SECONDS = 0.0005
# Held while the switch interval is changed. Otherwise, a second thread could take the changed
# interval for the original interval, and restore it last.
GENTLE_WORK = threading.Lock()
_ANYWHERE = "0.0.0.0"  # noqa: S104 - the address of the other server is unknown
_NOT_OPEN = "Temper has not started. Use an ASGI server that sends lifespan events."
_NO_KEY = (
    "Temper has no key, so it accepts only requests from this machine. "
    "The operator has to set server.api_key."
)


@dataclass(slots=True)
class OpenedApp:
    """The application in use, with its services; `renew` reads the configuration again.

    Running requests continue in the application in which they began.
    """

    app: ASGIApp
    services: Services
    renew: Callable[[], None]
    board: Board | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


@contextlib.asynccontextmanager
async def open_app(
    settings: Settings,
    on_stage: StageListener = lambda _stage: None,
    *,
    remote: Supervised | None = None,
    identity: WorkerIdentity | None = None,
    reload: ReadSettings | None = None,
    replica: str | None = None,
) -> AsyncGenerator[OpenedApp]:
    """Open the configured services, and create the application; see `open_services`.

    Raises `InvalidConfiguration`, and subclasses of `ProcessFailed`. If a managed server fails
    later, its error is raised inside the block.
    """
    options = server_options_of(settings)
    async with (
        contextlib.aclosing(LazyToolServers()) as tools,
        open_services(settings, options, on_stage, remote=remote) as services,
    ):
        with open_observers(settings, identity, replica) as observers:
            async with open_dialects(settings, observers) as dialects, publish_to_peers(observers):
                make_app = partial(
                    create_app, observers=observers, dialects=dialects, reasoning=ReasoningStore()
                )
                loaded = LoadedConfiguration(reload or (lambda: settings), settings, settings)

                def renew() -> None:
                    # a new application, because running requests must keep their settings
                    if loaded.reload():
                        logs = loaded.serving.logging
                        configure_logging(logs.format, logs.level, replica=replica)
                        new_options = server_options_of(loaded.serving)
                        new_services = reload_services(services, loaded.serving, new_options)
                        new_tools = tools.apply(loaded.serving)
                        opened.app = make_app(new_services, new_options, tools=new_tools)

                app = make_app(services, options, tools=tools.apply(settings))
                opened = OpenedApp(app, services, renew, observers.board)
                yield opened


@contextlib.contextmanager
def warm_up(
    work: Callable[[], None] = prepare, delay: float = _WARM_UP_SECONDS
) -> Iterator[threading.Timer]:
    """Prepare the guardrails' slow tables in a thread, unless the block ends before this starts."""
    timer = threading.Timer(delay, _run_low_priority, (work,))
    timer.daemon = True
    timer.start()
    try:
        yield timer
    finally:
        timer.cancel()


def _run_low_priority(work: Callable[[], None]) -> None:
    """Run `work` in short intervals of the GIL, so that other threads wait less for it."""
    with GENTLE_WORK:
        before = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            work()
        except OSError as error:  # e.g. too many open files; a request prepares the tables later
            logger.warning(
                "warm-up failed (%s); is the limit of open files too low? (ulimit -n)", error
            )
        finally:
            sys.setswitchinterval(before)


@dataclass(eq=False)
class Hosted:
    """The application; `read` reads the configuration when it is opened.

    `companion` is a context manager, such as the registration of a replica; it is open while the
    application is open. `replica` is the name of this replica, None if there is only one.
    """

    read: ReadSettings = load_settings
    _: KW_ONLY
    companion: Companion = lambda _app: contextlib.nullcontext()
    replica: str | None = None
    _life: asyncio.Task[None] | None = None
    _opened: asyncio.Future[OpenedApp] = field(init=False)
    _closing: asyncio.Event = field(init=False)
    _app: ASGIApp = field(default_factory=lambda: _refusal(503, _NOT_OPEN))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or open and close the services (ASGI's lifespan protocol)."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        else:
            await self._app(scope, receive, send)

    async def open(self) -> None:
        """Open the configured services once; raises the errors of `open_app`."""
        if self._life is None:
            self._opened = asyncio.get_running_loop().create_future()
            self._closing = asyncio.Event()
            # One task opens and closes the services, because timeouts must be entered and left in
            # the same task. Ray, for example, calls `open` and `close` in different tasks.
            self._life = asyncio.create_task(self._run_until_closed())
        await asyncio.wait((self._opened, self._life), return_when=asyncio.FIRST_COMPLETED)
        if not self._opened.done():
            self._life.result()

    async def until_loaded(self) -> None:
        """Wait for the models that are loaded at the start.

        Raises `BackendUnavailable` or a subclass of `ProcessFailed` if a model cannot be loaded.
        """
        for backend in self._list_managed():
            await backend.wait_until_granted()

    async def close(self) -> None:
        """Close everything; ending the running requests is up to the other server."""
        if self._life is not None:
            self._closing.set()
            await asyncio.wait((self._life,))

    @property
    def problem(self) -> str:
        """The reason why a managed server will not be restarted; "" if none has such a problem."""
        down = (backend.problem for backend in self._list_managed() if backend.is_down)
        return next(down, "")

    def _list_managed(self) -> list[ManagedBackend]:
        backends = (service.backend for service in self._opened.result().services)
        return [backend for backend in backends if isinstance(backend, ManagedBackend)]

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        """Open at the start of the server, and close at its end (ASGI's lifespan protocol)."""
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

    async def _run_until_closed(self) -> None:
        """Keep the services open until `close`."""
        settings = self.read()
        logs, server, defaults = settings.logging, settings.server, Server()
        unblock_standard_error()
        configure_logging(logs.format, logs.level, replica=self.replica)
        ignored = [
            f"server.{name}" for name in OWNED if getattr(server, name) != getattr(defaults, name)
        ]
        if ignored:
            logger.warning(_OTHERS, ", ".join(ignored))
        try:
            async with (
                open_app(_for_another_server(settings), replica=self.replica) as opened,
                self.companion(opened),
            ):
                with warm_up():
                    self._app = opened if _has_key(settings) else _local_only(opened)
                    self._opened.set_result(opened)
                    await self._closing.wait()
        except TemperError as error:
            self._app = _refusal(503, str(error))
            if self._opened.done():  # after `open` has returned, no caller would report the error
                logger.error("Temper has stopped: %s", error)
            else:
                raise


def _local_only(app: ASGIApp) -> ASGIApp:
    """Refuse requests from other machines, because no key is configured."""
    refusal = _refusal(403, _NO_KEY)

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        client = scope.get("client")
        is_local = _is_local(client[0] if client else "")
        await (app if is_local else refusal)(scope, receive, send)

    return answer


def _refusal(status: int, problem: str) -> ASGIApp:
    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        kind = "server_error" if status >= 500 else "permission_error"
        await error_response(Problem(status, kind, problem), scope)(scope, receive, send)

    return refuse


def _is_local(client: str) -> bool:
    """Return whether a client is on this machine; True for a Unix socket, which has no address."""
    try:
        return ipaddress.ip_address(client).is_loopback
    except ValueError:
        return True


def _has_key(settings: Settings) -> bool:
    return settings.server.api_key is not None or settings.server.api_keys_file is not None


def _for_another_server(settings: Settings) -> Settings:
    """Return the settings for an application under another server.

    With a key, any host name is accepted, unless the operator lists some names. Without a key, only
    loopback names are accepted. The other server may run several processes. Therefore, reasoning
    that clients do not send back is restored only if the operator enables this
    (`ServerOptions.restores_reasoning`).
    """
    address = {"workers": 1, "host": _ANYWHERE if _has_key(settings) else "127.0.0.1"}
    changes: dict[str, Section] = {"server": settings.server.model_copy(update=address)}
    if settings.context.reasoning == "auto":
        changes["context"] = settings.context.model_copy(update={"reasoning": "off"})
    return settings.model_copy(update=changes)


app = Hosted()
"""Reads `temper.toml` in the working directory and `TEMPER_*`, like `temper serve`."""
