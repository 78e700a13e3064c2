"""Brings a turn's events to the client while the client is there, as a stream of server events.

The work runs in a task group with a watch on the connection: a client that leaves cancels
everything below it at once, also while nothing has been sent yet.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Message, Receive, Scope, Send

from proxy.api.errors import describe
from proxy.conversation.replies import ReplyEvent
from proxy.errors import BackendTimedOut, TemperError

Events: TypeAlias = AsyncGenerator[ReplyEvent, None]
Step: TypeAlias = ReplyEvent | TemperError

# events that may wait for a slow client before the backend is no longer read
_BUFFERED_EVENTS = 32
_HEADERS = {"cache-control": "no-cache"}


class Encoder(Protocol):
    """Turns events into the bytes of a stream."""

    def encode(self, event: ReplyEvent) -> bytes:
        """Return the bytes of an event, empty if the client sees nothing of it."""

    def keep_alive(self) -> bytes:
        """Return bytes that say nothing but that work goes on."""

    def end(self) -> bytes:
        """Return the last bytes of a stream that ended well."""

    def fail(self, error: TemperError) -> bytes:
        """Return the last bytes of a stream that broke."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long things may take, in seconds.

    After `keep_alive` of silence the client gets a sign of life, `deadline` bounds all attempts
    together, and `grace` is what open streams are given when the server is told to stop.
    """

    keep_alive: float = 10.0
    deadline: float = 1800.0
    grace: float = 10.0


async def while_connected(receive: Receive, work: Callable[[], Awaitable[None]]) -> bool:
    """Do some work, but cancel it as soon as the client has gone; tells whether it was done.

    The request's body must have been read before.
    """
    is_done = False
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        group.start_soon(watch)
        await work()
        is_done = True
        group.cancel_scope.cancel()
    return is_done


@asynccontextmanager
async def within(seconds: float, backend: str) -> AsyncIterator[None]:
    """Bound some work in time; raises `BackendTimedOut` beyond it."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise BackendTimedOut(backend, f"did not finish within {seconds:g} s") from error


class EventStream:
    """Streams the events of one turn to one client.

    The status is sent with the first event, so that early failures carry their own; silence of
    more than `pace.keep_alive` sends it all the same. `make_encoder` gets the first event, or
    None after silence.
    """

    def __init__(
        self,
        events: Events,
        make_encoder: Callable[[ReplyEvent | None], Encoder],
        pace: Pace,
        *,
        backend: str,
        headers: Mapping[str, str],
    ) -> None:
        self._events = events
        self._make_encoder = make_encoder
        self._pace = pace
        self._backend = backend
        self._headers = {**_HEADERS, **headers}

    async def __call__(self, scope: Scope, send: Send) -> None:
        """Stream until the end."""
        sender, receiver = anyio.create_memory_object_stream[Step](_BUFFERED_EVENTS)
        # the receiver is closed last: a pump that is still sending would call that an error
        with receiver:
            async with anyio.create_task_group() as group:
                group.start_soon(self._pump, sender)
                first: Step | None = None
                with anyio.move_on_after(self._pace.keep_alive):
                    first = await receiver.receive()
                if isinstance(first, TemperError):
                    await describe(first).response()(scope, _never, send)
                else:
                    await self._respond(first, receiver)(scope, _never, send)
                group.cancel_scope.cancel()

    async def _pump(self, sender: MemoryObjectSendStream[Step]) -> None:
        """Read the backend in a task of its own; errors travel as values to whoever shows them."""
        async with sender, aclosing(self._events):
            try:
                async with within(self._pace.deadline, self._backend):
                    async for event in self._events:
                        await _put(sender, event)
            except TemperError as error:
                await sender.send(error)

    def _respond(
        self, first: ReplyEvent | None, receiver: MemoryObjectReceiveStream[Step]
    ) -> EventSourceResponse:
        encoder = self._make_encoder(first)
        return EventSourceResponse(
            _encoded(first, receiver, encoder),
            headers=self._headers,
            sep="\n",
            ping=self._pace.keep_alive,
            ping_message_factory=lambda: _Ready(encoder.keep_alive()),
            shutdown_event=anyio.Event(),
            shutdown_grace_period=self._pace.grace,
        )


class _Ready(ServerSentEvent):
    """An event that is encoded already."""

    def __init__(self, payload: bytes) -> None:
        super().__init__()
        self._payload = payload

    def encode(self) -> bytes:
        """Return the bytes."""
        return self._payload


async def _put(sender: MemoryObjectSendStream[Step], event: ReplyEvent) -> None:
    """Hand an event on without giving the turn away, so that what came together leaves together."""
    try:
        sender.send_nowait(event)
    except anyio.WouldBlock:
        await sender.send(event)


async def _encoded(
    first: ReplyEvent | None, receiver: MemoryObjectReceiveStream[Step], encoder: Encoder
) -> AsyncGenerator[bytes, None]:
    yield encoder.keep_alive() if first is None else encoder.encode(first)
    async for step in receiver:
        payloads: list[bytes] = []
        for each in (step, *_waiting(receiver)):
            if isinstance(each, TemperError):
                yield b"".join(payloads) + encoder.fail(each)
                return
            payloads.append(encoder.encode(each))
        if payload := b"".join(payloads):
            yield payload
    yield encoder.end()


def _waiting(receiver: MemoryObjectReceiveStream[Step]) -> list[Step]:
    """Take what has come meanwhile."""
    steps: list[Step] = []
    with suppress(anyio.WouldBlock, anyio.EndOfStream):
        while True:
            steps.append(receiver.receive_nowait())
    return steps


async def _never() -> Message:
    """Wait for ever: leaving clients are noticed by `while_connected` alone."""
    await anyio.sleep_forever()
    raise AssertionError
