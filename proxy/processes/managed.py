"""A llama-server that we look after, as a backend: it may be loading, restarting or down."""

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Protocol, TypeAlias

from proxy.backends.client import Description, Health, Model, Passage, Pieces, ReplyEvents
from proxy.backends.llama_server import LlamaServer
from proxy.conversation.requests import Question
from proxy.errors import BackendFailed, BackendUnavailable, ProcessFailed
from proxy.processes.process import ServerAddress
from proxy.processes.restarts import State
from proxy.processes.supervisor import Status

Connect: TypeAlias = Callable[[ServerAddress], LlamaServer]


class Supervised(Protocol):
    """A server that somebody looks after, in this process or in another."""

    @property
    def name(self) -> str:
        """What it is called, wherever it is."""

    @property
    def status(self) -> Status:
        """How it does now."""

    async def ready(self) -> ServerAddress:
        """Return where it answers, as soon as it does; raises `ProcessFailed` if it is down."""


class Managed:
    """A backend for a server of ours, wherever that is after its latest start.

    Until the server is ready, questions wait for up to `load_wait` seconds and `planned` is what
    is known of the model; its first name is what clients call it.
    """

    def __init__(
        self, server: Supervised, planned: Description, connect: Connect, *, load_wait: float
    ) -> None:
        self._server = server
        self._planned = planned
        self._connect = connect
        self._load_wait = load_wait
        self._connected: tuple[ServerAddress, LlamaServer] | None = None

    @property
    def name(self) -> str:
        """What the server is called: its address may change."""
        return self._server.name

    @property
    def restarts(self) -> int:
        """How often the server was started again since it was wanted."""
        return self._server.status.restarts

    async def close(self) -> None:
        """Close every connection; the server is somebody else's."""
        if self._connected is not None:
            await self._connected[1].close()

    async def ask(self, question: Question, headers: dict[str, str]) -> ReplyEvents:
        """Put a question and stream the reply; `headers` (lower case) travel upstream."""
        backend = await self._at(await self._ready())
        try:
            async with aclosing(backend.ask(question, headers)) as batches:
                async for batch in batches:
                    yield batch
        except BackendUnavailable as error:
            raise self._explained(error) from error

    async def relay(self, passage: Passage, headers: dict[str, str]) -> Pieces:
        """Pass a request on and stream its answer's lines; `headers` (lower case) travel too."""
        backend = await self._at(await self._ready())
        try:
            async with aclosing(backend.relay(passage, headers)) as pieces:
                async for piece in pieces:
                    yield piece
        except BackendUnavailable as error:
            raise self._explained(error) from error

    async def count(self, question: Question, headers: dict[str, str]) -> int | None:
        """Tell how many tokens a question's prompt has, once the server is ready."""
        backend = await self._if_ready()
        return None if backend is None else await backend.count(question, headers)

    async def count_texts(
        self, texts: Sequence[str], headers: dict[str, str]
    ) -> tuple[int, ...] | None:
        """Tell how many tokens each text has on its own, once the server is ready."""
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
        """Tell what the server says of its model, or what was planned; never raises."""
        backend = await self._if_ready()
        if backend is not None:
            described = await backend.describe(model)
            if not described.is_provisional:
                return described
        return replace(self._planned, is_provisional=True)

    async def health(self) -> Health:
        """Tell whether it can answer now; never raises."""
        if self._server.status.state is State.DOWN:
            return Health.UNREACHABLE
        backend = await self._if_ready()
        is_ready = backend is not None and await backend.health() is Health.READY
        return Health.READY if is_ready else Health.LOADING

    async def _ready(self) -> ServerAddress:
        status = self._server.status
        if status.state is State.WAITING:
            problem = f"is being restarted: {status.reason}"
            raise BackendUnavailable(
                self.name, problem, is_managed=True, retry_after=_seconds(status)
            )
        try:
            async with asyncio.timeout(self._load_wait):
                return await self._server.ready()
        except TimeoutError as error:
            raise BackendUnavailable(self.name, "is loading its model", loading=True) from error
        except ProcessFailed as failure:
            problem = f"is down: {self._server.status.reason or failure}"
            raise BackendUnavailable(self.name, problem, is_managed=True) from failure

    async def _if_ready(self) -> LlamaServer | None:
        address = self._server.status.address
        return None if address is None else await self._at(address)

    async def _at(self, address: ServerAddress) -> LlamaServer:
        """Return the connections to the server of this moment; those to its predecessor go."""
        before = self._connected
        if before is not None and before[0].api_key == address.api_key:  # made for each start
            return before[1]
        backend = self._connect(address)
        self._connected = (address, backend)
        if before is not None:
            await before[1].close()
        return backend

    def _explained(self, error: BackendUnavailable) -> BackendUnavailable:
        """Tell a client what became of a server that left it alone.

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


def _seconds(status: Status) -> int:
    return max(1, math.ceil(status.retry_after or 0))
