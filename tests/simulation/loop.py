"""An event loop with virtual time and the network in memory."""

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import Context, copy_context
from typing import TypeVar, TypeVarTuple, Unpack

from tests.simulation.children import Child, Children
from tests.simulation.clock import CLOCK
from tests.simulation.network import CLIENTS, HOST, Listener, ListeningSocket, Network

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

_LOOPBACK = "127.0.0.1"


_MOST_SPINS = 200_000  # of the loop at one virtual time; the busiest seeds need some thousands


class NothingLeft(Exception):
    """The loop waits for an event that cannot happen, or does not stop to work: a task hangs."""


class _JumpingSelector(selectors.SelectSelector):
    """Advances the clock to the next timer instead of waiting for it."""

    _spins = 0

    def select(  # type: ignore[explicit-any] # the data of a key
        self, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        self._spins = 0 if timeout else self._spins + 1
        if timeout is None or self._spins > _MOST_SPINS:
            raise NothingLeft
        CLOCK.now += timeout
        return []


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop without threads, sockets, processes and waiting.

    Functions for a thread run in the loop, after a random delay.
    """

    def __init__(self, network: Network) -> None:
        super().__init__(_JumpingSelector())
        self.network = network
        self.children: Children
        network.loop = self
        self._handlers: dict[tuple[str, int], asyncio.Handle] = {}

    def time(self) -> float:
        return CLOCK.now

    def add_signal_handler(
        self, sig: int, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts
    ) -> None:
        handle = asyncio.Handle(callback, args, self, copy_context())
        self._handlers[HOST.get(), sig] = handle

    def remove_signal_handler(self, sig: int) -> bool:
        return self._handlers.pop((HOST.get(), sig), None) is not None

    def signal(self, host: str, number: int) -> None:
        """Send a signal to a process that handles it."""
        handle = self._handlers[host, number]
        self.call_soon(handle._run, context=Context())  # noqa: SLF001 - as the base class does

    async def subprocess_exec(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.SubprocessProtocol],
        *command: str,
        env: dict[str, str],
        **_options: object,
    ) -> tuple[Child, asyncio.SubprocessProtocol]:
        child = self.children.start(protocol_factory(), command, env)
        return child, child.protocol

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[_Ts]], _T], *args: *_Ts
    ) -> "asyncio.Future[_T]":
        future: asyncio.Future[_T] = self.create_future()

        def run() -> None:
            if future.done():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:  # noqa: BLE001 - goes to the caller
                future.set_exception(error)

        self.call_later(self.network.delay(), run)
        return future

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        **_options: object,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        own = CLIENTS if HOST.get() == CLIENTS else _LOOPBACK
        transport = await self.network.connect(protocol_factory, (host, port), own)
        return transport, transport.protocol

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str = "",
        port: int = 0,
        *,
        sock: ListeningSocket | None = None,
        **_options: object,
    ) -> Listener:
        address = sock.address if sock is not None else (host, port)
        return self.network.listen(protocol_factory, address)
