"""An event loop with virtual time and the network in memory."""

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TypeVar, TypeVarTuple, Unpack

from tests.simulation.clock import CLOCK
from tests.simulation.network import Listener, Network

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

_CLIENT_HOST = "10.0.0.9"
_SERVER_HOST = "127.0.0.1"


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
    """An event loop without threads, sockets and waiting.

    Functions for a thread run in the loop, after a random delay.
    """

    def __init__(self, network: Network) -> None:
        super().__init__(_JumpingSelector())
        self.network = network
        network.loop = self

    def time(self) -> float:
        return CLOCK.now

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
        # Temper is the only program that connects to engines
        own = _CLIENT_HOST if host == _SERVER_HOST else _SERVER_HOST
        transport = await self.network.connect(protocol_factory, (host, port), own)
        return transport, transport.protocol

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        **_options: object,
    ) -> Listener:
        return self.network.listen(protocol_factory, (host, port))
