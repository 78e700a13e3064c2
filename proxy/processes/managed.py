"""A llama-server that we look after, as a backend: it may be loading, restarting or down."""

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias, TypeVar

from proxy.backends.client import (
    Description,
    Health,
    Model,
    PassthroughRequest,
    Pieces,
    ReplyEvents,
)
from proxy.backends.llama_server import LlamaServer
from proxy.conversation.replies import EventSink
from proxy.conversation.requests import Question
from proxy.errors import BackendFailed, BackendUnavailable, ProcessFailed
from proxy.processes.process import ServerAddress
from proxy.processes.restarts import State
from proxy.processes.supervisor import Status

_NOTICED_SECONDS = 5.0  # it takes milliseconds, and more where the machine is busy
_LOOK_SECONDS = 0.02

Connect: TypeAlias = Callable[[ServerAddress], LlamaServer]
Part = TypeVar("Part")


class Supervised(Protocol):
    """A server that somebody looks after, in this process or in another."""

    @property
    def name(self) -> str:
        """What it is called, wherever it is."""

    @property
    def status(self) -> Status: ...

    async def ready(self) -> ServerAddress:
        """Return where it answers, as soon as it does; raises `ProcessFailed` if it is down."""


class Managed:
    """A backend for a managed server, wherever that is after its latest start.

    Until the server is ready, be it for the first time or again after a crash, questions wait for
    up to `load_wait` seconds and `planned` is what is known of the model; its first name is what
    clients call it. The end of a server that could not be reached is noticed within `notice_wait`
    seconds, or it lives.
    """

    def __init__(
        self,
        server: Supervised,
        planned: Description,
        connect: Connect,
        *,
        load_wait: float,
        notice_wait: float = _NOTICED_SECONDS,
    ) -> None:
        self._server = server
        self._planned = planned
        self._connect = connect
        self._load_wait = load_wait
        self._notice_wait = notice_wait
        self._connected: tuple[ServerAddress, LlamaServer] | None = None

    @property
    def name(self) -> str:
        return self._server.name

    @property
    def restarts(self) -> int:
        """How often the server was started again since it was wanted."""
        return self._server.status.restarts

    @property
    def problem(self) -> str:
        """Why the server does not run, "" while it does or is only being started."""
        status = self._server.status
        return status.reason if status.state in (State.WAITING, State.DOWN) else ""

    @property
    def is_down(self) -> bool:
        """Whether the server was given up: it is not started again."""
        return self._server.status.state is State.DOWN

    async def close(self) -> None:
        """Close every connection; the server is somebody else's."""
        if self._connected is not None:
            await self._connected[1].close()

    def lease(self) -> "ReadyWait | None":
        """Claim the server for a request; None if there is nothing to wait for, or no use."""
        is_settled = self._server.status.state in (State.READY, State.DOWN)
        return None if is_settled else ReadyWait(self)

    async def until_ready(self, patience: float | None = None) -> ServerAddress:
        """Wait for the server, its restart too, until a moment of the event loop's clock.

        Raises `BackendUnavailable`, also if the server stays down.
        """
        try:
            async with asyncio.timeout_at(patience):
                return await self._server.ready()
        except TimeoutError as error:
            raise self.explain_delay() from error
        except ProcessFailed as failure:
            problem = f"is down: {self._server.status.reason or failure}"
            raise BackendUnavailable(self.name, problem, is_managed=True) from failure

    def explain_delay(self) -> BackendUnavailable:
        """Return the error for a wait that took too long."""
        status = self._server.status
        if not self.is_restarting:
            return BackendUnavailable(self.name, "is loading its model", loading=True)
        problem = f"is being restarted: {status.reason}"
        return BackendUnavailable(self.name, problem, is_managed=True, retry_after=_seconds(status))

    @property
    def is_restarting(self) -> bool:
        """Whether it has ended and is not being started yet."""
        return self._server.status.state is State.WAITING

    def ask(
        self, question: Question, headers: dict[str, str], sink: EventSink | None = None
    ) -> ReplyEvents:
        return self._ask_when_ready(lambda server: server.ask(question, headers, sink))

    def relay(self, passage: PassthroughRequest, headers: dict[str, str]) -> Pieces:
        return self._ask_when_ready(lambda server: server.relay(passage, headers))

    async def _ask_when_ready(
        self, ask: Callable[[LlamaServer], AsyncGenerator[Part, None]]
    ) -> AsyncGenerator[Part, None]:
        """Ask the server as soon as it is ready, and its successor if it could not be reached."""
        patience = asyncio.get_running_loop().time() + self._load_wait
        while True:
            address = await self.until_ready(patience)
            server = await self._at(address)
            try:
                async with aclosing(ask(server)) as parts:
                    async for part in parts:
                        yield part
            except BackendUnavailable as error:
                if not (error.is_unreached and await self._is_gone(address)):
                    raise self._explain(error) from error
            else:
                return

    async def count(self, question: Question, headers: dict[str, str]) -> int | None:
        backend = await self._if_ready()
        return None if backend is None else await backend.count(question, headers)

    async def count_texts(
        self, texts: Sequence[str], headers: dict[str, str]
    ) -> tuple[int, ...] | None:
        backend = await self._if_ready()
        return None if backend is None else await backend.count_texts(texts, headers)

    async def models(self) -> tuple[Model, ...]:
        """List the model; this starts nothing."""
        backend = await self._if_ready()
        if backend is not None:
            try:
                return await backend.models()
            except BackendFailed:  # it has just ended
                pass
        return (Model(self._planned.names[0], {}),)

    async def describe(self, model: str) -> Description:
        """Describe the model, as planned if the server does not say; never raises."""
        backend = await self._if_ready()
        if backend is not None:
            described = await backend.describe(model)
            if not described.is_provisional:
                return described
        return replace(self._planned, is_provisional=True)

    async def health(self) -> Health:
        if self._server.status.state is State.DOWN:
            return Health.UNREACHABLE
        backend = await self._if_ready()
        is_ready = backend is not None and await backend.health() is Health.READY
        return Health.READY if is_ready else Health.LOADING

    async def _is_gone(self, address: ServerAddress) -> bool:
        """Wait for the owner to notice the end of a server, which takes milliseconds."""
        loop = asyncio.get_running_loop()
        late = loop.time() + self._notice_wait
        while (found := self._server.status.address) is not None and _is_same(found, address):
            if loop.time() >= late:
                return False
            await asyncio.sleep(_LOOK_SECONDS)
        return True

    async def _if_ready(self) -> LlamaServer | None:
        address = self._server.status.address
        return None if address is None else await self._at(address)

    async def _at(self, address: ServerAddress) -> LlamaServer:
        """Return the connections to the server of this moment; those to its predecessor go."""
        before = self._connected
        if before is not None and _is_same(before[0], address):
            return before[1]
        backend = self._connect(address)
        self._connected = (address, backend)
        if before is not None:
            await before[1].close()
        return backend

    def _explain(self, error: BackendUnavailable) -> BackendUnavailable:
        """Tell a client what happened to a server that left it alone.

        Its end is noticed here and by its owner within milliseconds, in any order.
        """
        if error.loading:
            return error
        status = self._server.status
        if status.state is State.DOWN:
            problem = f"{error.problem} and stays down: {status.reason}"
            return BackendUnavailable(self.name, problem, is_managed=True)
        problem = f"{error.problem}; it is started again"
        return BackendUnavailable(self.name, problem, is_managed=True, retry_after=_seconds(status))


@dataclass(frozen=True, slots=True)
class ReadyWait:
    """A request's wait for a managed server to be ready."""

    _backend: Managed

    @property
    def is_granted(self) -> bool:
        return self._backend.lease() is None

    @property
    def news(self) -> str:
        doing = "restarting" if self._backend.is_restarting else "loading"
        return f"{doing} {self._backend.name}"

    async def wait_until_granted(self) -> None:
        """Wait until the server can be used; raises `BackendUnavailable` if it stays down."""
        await self._backend.until_ready()

    def late(self) -> BackendUnavailable:
        return self._backend.explain_delay()


def _is_same(one: ServerAddress, other: ServerAddress) -> bool:
    """Return whether both are of the same start: each has a key of its own."""
    return one.api_key == other.api_key


def _seconds(status: Status) -> int:
    return max(1, math.ceil(status.retry_after or 0))
