"""Brings a turn's events to the client while the client is there, as a stream of server events.

The work runs beside a watch on the connection: a client that leaves cancels everything below it
at once, also while nothing has been sent yet.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from starlette.types import Message, Receive, Scope, Send

from proxy.api.connections import DIRECT, DirectWriting
from proxy.api.errors import describe, error_response
from proxy.errors import BackendTimedOut, BackendUnavailable, RequestCancelled, TemperError

_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}
_CLIENT_LEFT = "the client has left"
ENDED_BY_OPERATOR = "an operator has ended the request"  # which counts as if it had left
_STOPPING = "is left, as Temper was told to stop"
_FAREWELL_SECONDS = 1.0  # for the last bytes to a client that may not be reading


Event = TypeVar("Event")
Heard = TypeVar("Heard", contravariant=True)


class Encoder(Protocol[Heard]):
    """Turns events, or whatever arrives, into the bytes of a stream."""

    def encode_all(self, events: Sequence[Heard], /) -> bytes:
        """Return the bytes of events, empty if the client sees nothing of them."""

    def keep_alive(self) -> bytes:
        """Return bytes that say nothing but that work goes on."""

    def end(self) -> bytes:
        """Return the last bytes of a stream that ended well."""

    def fail(self, error: TemperError) -> bytes:
        """Return the last bytes of a stream that broke."""


@dataclass(frozen=True, slots=True)
class StreamTimeouts:
    """How long things may take, in seconds.

    After `keep_alive` of silence the client gets a sign of life, `deadline` bounds all attempts
    together, and `grace` is what open streams are given when the server is told to stop. A model
    that has to be loaded is waited for no longer than `load_wait`.
    """

    keep_alive: float = 10.0
    deadline: float = 1800.0
    grace: float = 10.0
    load_wait: float = 60.0


async def while_connected(receive: Receive, work: Callable[[], Awaitable[None]]) -> bool:
    """Do some work, but cancel it as soon as the client has gone; reports whether it was done.

    The request's body must have been read before.
    """
    working = asyncio.current_task()
    assert working is not None  # noqa: S101 - of a coroutine that runs
    has_left = False

    async def watch() -> None:
        nonlocal has_left
        while (message := await receive())["type"] != "http.disconnect":
            pass
        has_left = True
        working.cancel(message.get("reason", _CLIENT_LEFT))

    watching = asyncio.create_task(watch())
    try:
        await work()
    except asyncio.CancelledError:
        if not has_left or working.uncancel():  # somebody else wants an end
            raise
        return False
    finally:
        watching.cancel()
    return True


@asynccontextmanager
async def within(seconds: float, backend: str) -> AsyncIterator[None]:
    """Bound some work in time; raises `BackendTimedOut` beyond it."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        problem = f"did not finish within {seconds:g} s"
        raise BackendTimedOut(backend, problem, is_overall=True) from error


def _nothing_left(_: TemperError) -> tuple[()]:
    return ()


def stream_start(told: Mapping[str, str]) -> Message:
    """Make the message that begins a stream of events; `told` are further headers."""
    headers = [(name.encode(), value.encode()) for name, value in {**_HEADERS, **told}.items()]
    return {"type": "http.response.start", "status": 200, "headers": headers}


class EventStream(Generic[Event]):
    """Streams the events of one turn to one client.

    The status is sent with the first event, so that early failures carry their own; silence of
    more than `timeouts.keep_alive` sends it all the same. `make_encoder` gets the first event, or
    None after silence; `headers` are asked for at the same moment. A slow client slows the reading
    of the backend down. `cut_off` gives the end of an answer that a failure left without one, empty
    where there is none.
    """

    def __init__(
        self,
        batches: AsyncGenerator[Sequence[Event], None],
        make_encoder: Callable[[Event | None], Encoder[Event]],
        timeouts: StreamTimeouts,
        *,
        backend: str,
        headers: Callable[[], Mapping[str, str]],
        cut_off: Callable[[TemperError], Sequence[Event]] = _nothing_left,
    ) -> None:
        self._batches = batches
        self._make_encoder = make_encoder
        self._timeouts = timeouts
        self._backend = backend
        self._make_headers = headers
        self._cut_off = cut_off
        self._encoder: Encoder[Event] | None = None
        self._direct: DirectWriting | None = None
        self._is_silent = True
        self._is_sending = False
        self._pulse_over = asyncio.Event()
        self._pulse_over.set()

    def go_on(self, encoder: Encoder[Event]) -> None:
        """Go on with a stream of which the client has seen the start."""
        self._encoder = encoder

    @property
    def is_ready(self) -> bool:
        """Whether events can be shown at once."""
        is_busy = self._is_sending or not self._pulse_over.is_set()
        if is_busy or self._encoder is None or self._direct is None:
            return False
        return self._direct.is_possible

    def show(self, events: Sequence[Event]) -> None:
        """Show events at once, while this is ready."""
        assert self._direct is not None and self._encoder is not None  # noqa: S101, PT018 - it is
        if payload := self._encoder.encode_all(events):
            self._direct.write(payload)
            self._is_silent = False

    async def __call__(self, scope: Scope, send: Send) -> None:
        """Stream until the end."""
        self._direct = scope.get("extensions", {}).get(DIRECT, {}).get("writing")
        pulse = asyncio.create_task(self._keep_alive(send))
        failure: TemperError | None = None
        try:
            try:
                async with aclosing(self._batches), within(self._timeouts.deadline, self._backend):
                    async for batch in self._batches:
                        await self._show(batch, send)
            except TemperError as error:
                failure = error
                if rest := self._cut_off(error):
                    failure = None
                    await self._show(rest, send)
            await self._pulse_over.wait()
        except asyncio.CancelledError as cut:
            await self._finish_cancelled(cut, send)
            raise
        except Exception:
            await self._send_internal_error(send)
            raise
        finally:
            pulse.cancel()
        if failure is not None and self._encoder is None:
            await error_response(describe(failure), scope)(scope, never, send)
            return
        encoder = self._encoder or await self._begin(None, send)
        payload = encoder.end() if failure is None else encoder.fail(failure)
        await send({"type": "http.response.body", "body": payload, "more_body": False})

    async def _finish_cancelled(self, cut: asyncio.CancelledError, send: Send) -> None:
        """Tell a client that is still there why its answer ends here."""
        if cut.args == (ENDED_BY_OPERATOR,):
            await self._break_off(RequestCancelled(), send)
        elif cut.args != (_CLIENT_LEFT,):
            await self._break_off(BackendUnavailable(self._backend, _STOPPING), send)

    async def _break_off(self, reason: TemperError, send: Send) -> None:
        """Tell a client that is still there why its answer has no end, if it has a beginning."""
        if self._encoder is not None and not self._is_sending and self._pulse_over.is_set():
            payload = self._encoder.fail(reason)
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await send({"type": "http.response.body", "body": payload, "more_body": False})

    async def _send_internal_error(self, send: Send) -> None:
        """Tell the client of a bug; the caller logs it."""
        self._is_sending = False
        await self._pulse_over.wait()
        await self._break_off(TemperError(), send)

    async def _show(self, batch: Sequence[Event], send: Send) -> None:
        """Send what came together; a sign of life that is on its way goes first."""
        if not self._pulse_over.is_set():
            await self._pulse_over.wait()
        self._is_sending = True
        encoder = self._encoder or await self._begin(batch[0], send)
        if payload := encoder.encode_all(batch):
            await send({"type": "http.response.body", "body": payload, "more_body": True})
            self._is_silent = False
        self._is_sending = False

    async def _begin(self, first: Event | None, send: Send) -> Encoder[Event]:
        self._encoder = encoder = self._make_encoder(first)
        await send(stream_start(self._make_headers()))
        return encoder

    async def _keep_alive(self, send: Send) -> None:
        """Give a sign of life after each while in which nothing was sent."""
        while True:
            self._is_silent = True
            await asyncio.sleep(self._timeouts.keep_alive)
            if self._is_silent and not self._is_sending:
                self._pulse_over.clear()
                try:
                    encoder = self._encoder or await self._begin(None, send)
                    body = encoder.keep_alive()
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                finally:
                    self._pulse_over.set()


async def never() -> Message:
    """Wait for ever: leaving clients are noticed by `while_connected` alone."""
    await asyncio.Event().wait()
    raise AssertionError
