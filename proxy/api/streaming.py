"""Brings a turn's events to the client while the client is there, as a stream of server events.

The work runs in a task group with a watch on the connection: a client that leaves cancels
everything below it at once, also while nothing has been sent yet.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import anyio
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Message, Receive, Scope, Send

from proxy.api.errors import describe
from proxy.api.mailbox import Mailbox
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
        steps = Mailbox[Step](_BUFFERED_EVENTS)
        async with anyio.create_task_group() as group:
            group.start_soon(self._pump, steps)
            begun: list[Step] = []
            with anyio.move_on_after(self._pace.keep_alive):
                begun = await steps.take()
            if begun and isinstance(begun[0], TemperError):
                await describe(begun[0]).response()(scope, _never, send)
            else:
                await self._respond(begun, steps)(scope, _never, send)
            group.cancel_scope.cancel()

    async def _pump(self, steps: Mailbox[Step]) -> None:
        """Read the backend in a task of its own; errors travel as values to whoever shows them."""
        async with aclosing(self._events):
            try:
                async with within(self._pace.deadline, self._backend):
                    async for event in self._events:
                        await steps.put(event)
            except TemperError as error:
                await steps.put(error)
            finally:
                steps.close()

    def _respond(self, begun: list[Step], steps: Mailbox[Step]) -> EventSourceResponse:
        first = begun[0] if begun else None
        encoder = self._make_encoder(None if isinstance(first, TemperError) else first)
        return _Response(
            _encoded(begun, steps, encoder),
            headers=self._headers,
            sep="\n",
            ping=self._pace.keep_alive,
            ping_message_factory=lambda: _Ready(encoder.keep_alive()),
            shutdown_event=anyio.Event(),
            shutdown_grace_period=self._pace.grace,
        )


class _Response(EventSourceResponse):
    """A response without a bound for each piece that is sent.

    Whoever reads nothing for long leaves, or is ended by the deadline of the whole.
    """

    async def _send_with_timeout(self, send: Send, message: Message) -> None:
        await send(message)


class _Ready(ServerSentEvent):
    """An event that is encoded already."""

    def __init__(self, payload: bytes) -> None:
        super().__init__()
        self._payload = payload

    def encode(self) -> bytes:
        """Return the bytes."""
        return self._payload


async def _encoded(
    begun: list[Step], steps: Mailbox[Step], encoder: Encoder
) -> AsyncGenerator[bytes, None]:
    """Encode what comes; what comes together leaves together."""
    batch = begun
    if not batch:
        yield encoder.keep_alive()
        batch = await steps.take()
    while batch:
        payloads: list[bytes] = []
        for step in batch:
            if isinstance(step, TemperError):
                yield b"".join(payloads) + encoder.fail(step)
                return
            payloads.append(encoder.encode(step))
        if payload := b"".join(payloads):
            yield payload
        batch = await steps.take()
    yield encoder.end()


async def _never() -> Message:
    """Wait for ever: leaving clients are noticed by `while_connected` alone."""
    await anyio.sleep_forever()
    raise AssertionError
