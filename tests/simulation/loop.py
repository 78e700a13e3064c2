"""An event loop with virtual time and the network in memory."""

import asyncio
import itertools
import selectors
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextvars import Context, copy_context
from typing import Protocol, TypeAlias, TypeVar, TypeVarTuple, Unpack, cast
from weakref import WeakSet

from tests.simulation.children import Child, Children
from tests.simulation.clock import CLOCK
from tests.simulation.network import CLIENTS, HOST, Listener, ListeningSocket, Network
from tests.simulation.threads import run_in_thread

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

_Callback: TypeAlias = Callable[[Unpack[tuple[object, ...]]], object]


class _Call(Protocol):
    """The private members of `asyncio.Handle`."""

    _callback: _Callback
    _args: tuple[object, ...]
    _context: Context


PROCESS = "process"  # the name of the main task of a process
_LOOPBACK = "127.0.0.1"


# Permitted iterations without progress of the clock; the busiest seeds need some thousands.
_MOST_SPINS = 200_000


class NothingLeft(Exception):
    """No timer is left to wait for, or the loop runs forever at one virtual time: a task hangs."""


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
    """An event loop that simulates threads, sockets and processes, and never really waits.

    `run_in_executor` runs a function in the loop after a random delay. With `has_threads`, it uses
    a thread (see `threads`), so that the function may wait for a coroutine.
    """

    has_threads = False

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, network: Network) -> None:
        super().__init__(_JumpingSelector())
        self.network = network
        self.children: Children
        network.loop = self
        self._handlers: dict[tuple[str, int], asyncio.Handle] = {}
        self._descriptors = itertools.count(1_000_000)
        self._readers: dict[int, asyncio.Handle] = {}
        self._readable: set[int] = set()
        self._dead: set[str] = set()
        self._held: list[tuple[_Callback, tuple[object, ...], Context]] = []
        self._tasks_of: defaultdict[str, WeakSet[asyncio.Task[object]]] = defaultdict(WeakSet)

    def kill(self, host: str) -> None:
        """End a process as SIGKILL does: none of its code runs again, not even `finally` blocks."""
        self._dead.add(host)
        for handle in (*self._ready, *self._scheduled):
            self._hold_if_dead(handle)
        self.network.crash(host)
        self.children.end_orphans(host)

    def tasks_of_killed(self) -> set[asyncio.Task[object]]:
        return {task for host in self._dead for task in self._tasks_of[host]}

    async def cancel_tasks_of_killed(self) -> None:
        """Cancel the tasks of killed processes, so that they close their real files."""
        left = self.tasks_of_killed()
        self._dead.clear()
        for callback, args, context in self._held:
            self.call_soon(callback, *args, context=context)
        # first the main tasks, which end their subtasks in order
        for tasks in ({task for task in left if task.get_name() == PROCESS}, left):
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _hold_if_dead(self, handle: asyncio.Handle) -> None:
        """Keep a callback of a killed process from running before `cancel_tasks_of_killed`."""
        call = cast("_Call", handle)
        context = call._context  # noqa: SLF001 - as the base class does
        if context.get(HOST, CLIENTS) in self._dead and not handle.cancelled():
            self._held.append((call._callback, call._args, context))  # noqa: SLF001
            handle.cancel()

    def _call_soon(
        self,
        callback: Callable[[Unpack[_Ts]], object],
        args: tuple[*_Ts],
        context: Context | None,
    ) -> asyncio.Handle:
        handle: asyncio.Handle = super()._call_soon(callback, args, context)  # type: ignore[misc]
        if self._dead:
            self._hold_if_dead(handle)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        if self._dead:
            self._hold_if_dead(handle)
        return handle

    def create_task(  # type: ignore[override]
        self,
        coro: Coroutine[None, None, _T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> "asyncio.Task[_T]":
        task = super().create_task(coro, name=name, context=context)
        host = HOST.get() if context is None else context.get(HOST, CLIENTS)
        self._tasks_of[host].add(task)
        return task

    def _write_to_self(self) -> None:
        """Do nothing: the loop never waits, so nothing has to wake it."""

    def time(self) -> float:
        return CLOCK.now

    def add_signal_handler(
        self, sig: int, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts
    ) -> None:
        handle = asyncio.Handle(callback, args, self, copy_context())
        self._handlers[HOST.get(), sig] = handle

    def remove_signal_handler(self, sig: int) -> bool:
        return self._handlers.pop((HOST.get(), sig), None) is not None

    def signal(self, host: str, number: int) -> bool:
        """Send a signal to a process; return whether it handles it."""
        handle = self._handlers.get((host, number))
        if handle is not None:
            self.call_soon(handle._run, context=Context())  # noqa: SLF001 - as the base class does
        return handle is not None

    def open_descriptor(self) -> int:
        """Return a new descriptor number; `wake` makes it readable."""
        return next(self._descriptors)

    def wake(self, descriptor: int) -> None:
        """Call the reader of a descriptor once, or the next reader if it has none yet."""
        handle = self._readers.get(descriptor)
        if handle is None:
            self._readable.add(descriptor)
        else:
            self.call_soon(handle._run, context=Context())  # noqa: SLF001 - as the base class does

    def add_reader(  # type: ignore[override]
        self, fd: int, callback: Callable[[Unpack[_Ts]], object], *args: *_Ts
    ) -> None:
        self._readers[fd] = asyncio.Handle(callback, args, self, copy_context())
        if fd in self._readable:
            self._readable.discard(fd)
            self.wake(fd)

    def remove_reader(self, fd: int) -> bool:  # type: ignore[override]
        return self._readers.pop(fd, None) is not None

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
        if self.has_threads:
            return run_in_thread(self, self.network.delay(), func, *args)
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
        source = CLIENTS if HOST.get() == CLIENTS else _LOOPBACK
        transport = await self.network.connect(protocol_factory, (host, port), source)
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
