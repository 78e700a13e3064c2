"""The backend of a supervised llama-server, which may be loading, restarting or down."""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import KW_ONLY, dataclass, replace
from typing import Protocol, TypeAlias

from proxy.backends.client import BackendModel, DeferredBackend, Description, Health, Part, Send
from proxy.backends.llama_server import LlamaServer
from proxy.errors import BackendFailed, BackendUnavailable, ProcessFailed
from proxy.processes.process import ServerAddress
from proxy.processes.restarts import RestartState
from proxy.processes.supervisor import ServerStatus

_POLL_SECONDS = 0.02  # between two checks whether the supervisor has noticed an exit

Connect: TypeAlias = Callable[[ServerAddress], LlamaServer]


class Supervised(Protocol):
    """A supervised server, in this process or in another process."""

    @property
    def name(self) -> str:
        """The server's name, which does not depend on its address."""

    @property
    def status(self) -> ServerStatus: ...

    async def ready(self) -> ServerAddress:
        """Return the address once the server is ready; raises `ProcessFailed` if it is down."""


@dataclass(eq=False)
class ManagedBackend(DeferredBackend):
    """The backend of a managed server, at the address of its latest start.

    While the server starts, requests wait for up to `load_wait` seconds, and `planned` describes
    the model. The first name in `planned` is the public name. If a request cannot reach the server,
    it waits up to `notice_wait` seconds for the supervisor to notice that the server has exited. If
    the supervisor notices this, the request waits for the restart; otherwise the request fails.
    """

    server: Supervised
    planned: Description
    connect: Connect
    _: KW_ONLY
    load_wait: float
    notice_wait: float = 5.0  # the supervisor needs milliseconds, or longer on a busy machine
    _connected: tuple[ServerAddress, LlamaServer] | None = None

    @property
    def name(self) -> str:
        return self.server.name

    @property
    def restarts(self) -> int:
        return self.server.status.restarts

    @property
    def address(self) -> ServerAddress | None:
        """The address that was used last, None before the first use.

        It differs for each start of the server, because each start has a new key.
        """
        return self._connected[0] if self._connected is not None else None

    @property
    def problem(self) -> str:
        """Why the server does not run, "" while it runs or starts."""
        status = self.server.status
        return status.reason if status.state in (RestartState.WAITING, RestartState.DOWN) else ""

    @property
    def is_down(self) -> bool:
        """True if the server is not restarted any more."""
        return self.server.status.state is RestartState.DOWN

    async def close(self) -> None:
        """Close all connections; the supervisor stops the server."""
        if self._connected is not None:
            await self._connected[1].close()

    def lease(self) -> "ManagedBackend | None":
        """Return this object for the caller to wait for; None if the server is ready or down."""
        return None if self.is_granted else self

    @property
    def is_granted(self) -> bool:
        return self.server.status.state in (RestartState.READY, RestartState.DOWN)

    @property
    def news(self) -> str:
        return f"{'restarting' if self._is_restarting else 'loading'} {self.name}"

    async def wait_until_granted(self, until: float | None = None) -> ServerAddress:
        """Return the address once the server is ready.

        Raises `BackendUnavailable` if the server is down, or not ready at `until` (a time of the
        loop).
        """
        try:
            async with asyncio.timeout_at(until):
                return await self.server.ready()
        except TimeoutError as error:
            raise self.timeout_error() from error
        except ProcessFailed as failure:
            problem = f"is down: {self.server.status.reason or failure}"
            raise BackendUnavailable(self.name, problem, is_managed=True) from failure

    def timeout_error(self) -> BackendUnavailable:
        if not self._is_restarting:
            return BackendUnavailable(self.name, "is loading its model", loading=True)
        return self._fails(f"is being restarted: {self.server.status.reason}")

    @property
    def _is_restarting(self) -> bool:
        return self.server.status.state is RestartState.WAITING

    async def _stream(self, send: Send[Part]) -> AsyncGenerator[Part, None]:
        """Send to the ready server; send again after a restart if the server was unreachable."""
        deadline = asyncio.get_running_loop().time() + self.load_wait
        while True:
            address = await self.wait_until_granted(deadline)
            server = await self._at(address)
            try:
                async with aclosing(send(server)) as parts:
                    async for part in parts:
                        yield part
            except BackendUnavailable as error:
                # a request that the server has read may be the reason for its crash
                if not (error.is_unreached and await self._is_gone(address)):
                    raise self._explain(error) from error
            else:
                return

    async def models(self) -> tuple[BackendModel, ...]:
        """List the model, without starting the server."""
        backend = await self._present()
        if backend is not None:
            with suppress(BackendFailed):  # the server may have just exited
                return await backend.models()
        return (BackendModel(self.planned.names[0], {}),)

    async def describe(self, model: str) -> Description:
        backend = await self._present()
        if backend is not None:
            description = await backend.describe(model)
            if not description.is_provisional:
                return description
        return replace(self.planned, is_provisional=True)

    async def health(self) -> Health:
        if self.is_down:
            return Health.UNREACHABLE
        backend = await self._present()
        is_ready = backend is not None and await backend.health() is Health.READY
        return Health.READY if is_ready else Health.LOADING

    async def _is_gone(self, address: ServerAddress) -> bool:
        """Return whether the supervisor notices the server's exit within `notice_wait` seconds."""
        clock = asyncio.get_running_loop().time
        deadline = clock() + self.notice_wait
        # a restarted server has a new key
        while (current := self.server.status.address) and current.api_key == address.api_key:
            if clock() >= deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True

    async def _present(self) -> LlamaServer | None:
        address = self.server.status.address
        return None if address is None else await self._at(address)

    async def _at(self, address: ServerAddress) -> LlamaServer:
        """Return the client of the current server; close the client of the previous server."""
        previous = self._connected
        if previous is not None and previous[0].api_key == address.api_key:
            return previous[1]
        backend = self.connect(address)
        self._connected = (address, backend)
        if previous is not None:
            await previous[1].close()
        return backend

    def _explain(self, error: BackendUnavailable) -> BackendUnavailable:
        """Return the error for a server that exited during a request."""
        if error.loading:
            return error
        if self.is_down:
            problem = f"{error.problem} and will not be restarted: {self.server.status.reason}"
            return BackendUnavailable(self.name, problem, is_managed=True)
        return self._fails(f"{error.problem}; it is being restarted")

    def _fails(self, problem: str) -> BackendUnavailable:
        wait = max(1, math.ceil(self.server.status.retry_after or 0))
        return BackendUnavailable(self.name, problem, is_managed=True, retry_after=wait)
