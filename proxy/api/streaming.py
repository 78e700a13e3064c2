"""Writes answers to the client: `AnswerStream` as a stream of events, `WholeAnswer` as one body.

The dialect's `StreamEncoder` produces the bytes. When the client disconnects, all work is canceled.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import anyio
from starlette.requests import ClientDisconnect

from proxy.api.client_connection import ClientConnection
from proxy.api.errors import describe, error_reply, refuse
from proxy.backends.client import ReplyEvents
from proxy.conversation.replies import ReplyEvent
from proxy.dialects import sse
from proxy.dialects.dialect import Decoded, StreamEncoder
from proxy.errors import BackendTimedOut, BackendUnavailable, RequestCancelled, TemperError
from proxy.serving.services import LoadClaim, load_wait

STREAM_HEADERS = {
    "content-type": sse.MEDIA_TYPE,
    "cache-control": "no-cache",
    "x-accel-buffering": "no",  # otherwise nginx collects the events
}
_WHOLE_HEADERS = {"content-type": "application/json", "x-accel-buffering": "no"}
_STOPPING = "was disconnected because Temper is shutting down"
# While a model loads, its stream begins after this time. A failure before this time is sent with
# its own HTTP status.
_FIRST_NEWS = 1.0
_FAREWELL_SECONDS = 1.0  # seconds for the last bytes, because the client may not be reading


@dataclass(frozen=True, slots=True)
class StreamTimeouts:
    """Timeouts in seconds.

    After `keep_alive` seconds of silence, the client is sent a keep-alive. `deadline` limits all
    attempts together. When the server stops, open streams get `grace` seconds to end. `load_wait`
    is the longest wait for a model to load.
    """

    keep_alive: float = 10.0
    deadline: float = 1800.0
    grace: float = 10.0
    load_wait: float = 60.0


class Deadline:
    """Limits the time of all attempts together; raises `BackendTimedOut` after `seconds`.

    The time is measured from the beginning of the block.
    """

    __slots__ = ("_backend", "_seconds", "_timeout")

    def __init__(self, seconds: float, backend: str) -> None:
        self._seconds = seconds
        self._backend = backend

    async def __aenter__(self) -> None:
        self._timeout = asyncio.timeout(self._seconds)
        await self._timeout.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
            if isinstance(error, TimeoutError):  # raised by another timeout within the block
                raise error
        except TimeoutError as timeout:
            problem = f"did not finish within {self._seconds:g} s"
            raise BackendTimedOut(self._backend, problem, is_overall=True) from timeout


class Streamable(Protocol):
    """The parts of one streamed answer, implemented by `answer.Answer`.

    `AnswerStream` reads each member only when it needs the value. Some values, such as the backend
    that generates the answer, are known only then.
    """

    @property
    def backend_name(self) -> str:
        """The backend's name, for errors."""

    def encoder(self, first: ReplyEvent | None) -> StreamEncoder:
        """Begin a stream; `first` is None if a keep-alive is sent before the first event."""

    def headers(self) -> Mapping[str, str]:
        """Return additional headers; called right before the first bytes are sent."""

    def comments(self) -> Sequence[str]:
        """Return the comments to send before the end."""

    def cut_off(self, failure: TemperError) -> Sequence[ReplyEvent]:
        """Return the events that end a failed answer normally; () if the error must be sent."""


class WholeAnswer:
    """Sends an answer as one body; until the answer is ready, keeps the connection alive.

    Node.js times out after 300 s without a head, and many proxies after 60 s. Therefore, the head
    is sent after twice `keep_alive` seconds. It is followed by spaces, which JSON allows before a
    value. If the answer fails after the head was sent, its status can no longer be changed from
    200. The error is then sent as the body, and the connection is closed without the end of the
    body, so that no client can mistake the error for a complete answer. A stream can report an
    error after its head. Therefore, the head of a stream is sent after only `keep_alive` seconds.
    """

    def __init__(
        self,
        connection: ClientConnection,
        keep_alive: float,
        headers: Callable[[], Mapping[str, str]],
    ) -> None:
        self._connection = connection
        self._keep_alive = keep_alive
        self._headers = headers
        self._timer: asyncio.TimerHandle | None = None
        self._keep_alives: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        # with HTTP/1.0, a client cannot distinguish a broken response from a complete response
        if self._connection.scope.get("http_version") != "1.0":
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(2 * self._keep_alive, self._start_keep_alives)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._timer is not None:
            await self._stop_keep_alives()
        if kind is not None and self._connection.has_begun:
            self._connection.break_off()

    async def end(self, headers: Mapping[str, str], body: bytes) -> None:
        """Send the answer; `headers` are dropped if the head was already sent."""
        await self._stop_keep_alives()
        if self._connection.has_begun:
            await self._connection.end(body)
        else:
            await self._connection.respond(200, {**self._headers(), **headers}, body)

    async def fail(self, error: TemperError) -> None:
        await self._stop_keep_alives()
        if not self._connection.has_begun:
            await refuse(self._connection, error)
            return
        problem = describe(error)
        self._connection.refusal = problem.message
        await self._connection.write(error_reply(problem, self._connection.scope).body)
        self._connection.break_off()

    def _start_keep_alives(self) -> None:
        self._keep_alives = asyncio.create_task(self._send_keep_alives())

    async def _send_keep_alives(self) -> None:
        await self._connection.start(200, {**_WHOLE_HEADERS, **self._headers()})
        while True:
            await self._connection.write(b" ")
            await asyncio.sleep(self._keep_alive)

    async def _stop_keep_alives(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._keep_alives is not None:
            self._keep_alives.cancel()
            await asyncio.wait((self._keep_alives,))
            self._keep_alives = None


class AnswerStream:
    """Writes one answer to one client.

    The status 200 is sent with the first event, or after a silence of `timeouts.keep_alive`
    seconds. A failure before that is sent with its own status. While the client reads slowly, the
    backend is also read slowly.
    """

    def __init__(
        self,
        connection: ClientConnection,
        timeouts: StreamTimeouts,
        media_type: str = sse.MEDIA_TYPE,
    ) -> None:
        self.encoder: StreamEncoder | None = None
        self._connection = connection
        self._wire = connection.wire
        self._timeouts = timeouts
        self._headers = {**STREAM_HEADERS, "content-type": media_type}
        self._is_silent = True  # nothing was written since the timer was started
        self._is_sending = False
        self._sending_keep_alive: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_ready(self) -> bool:
        """True if `show` may be called, because all earlier output was sent."""
        is_busy = self._is_sending or self._sending_keep_alive is not None or self.encoder is None
        return not is_busy and self._wire is not None and self._wire.is_writable

    def show(self, events: Sequence[ReplyEvent]) -> None:
        """Write events directly; only while `is_ready`."""
        assert self.encoder is not None  # noqa: S101 - it was ready
        assert self._wire is not None  # noqa: S101 - it was writable
        if payload := self.encoder.encode_all(events):
            self._wire.write(payload)
            self._is_silent = False

    async def begin(self, encoder: StreamEncoder, headers: Mapping[str, str]) -> StreamEncoder:
        self.encoder = encoder
        await self._connection.start(200, {**self._headers, **headers})
        return encoder

    async def wait_for(self, claim: LoadClaim, decoded: Decoded) -> None:
        """Wait at most `load_wait` seconds for a model to load; sends progress to the client.

        Raises `BackendUnavailable`, `QueueFull`, `ClientDisconnect`, and subclasses of
        `ProcessFailed`.
        """
        if claim.is_granted:
            return
        if not await self._connection.while_connected(self._wait_for(claim, decoded)):
            raise ClientDisconnect

    async def _wait_for(self, claim: LoadClaim, decoded: Decoded) -> None:
        keep_alive = self._timeouts.keep_alive
        silence = min(_FIRST_NEWS, keep_alive)
        async with load_wait(claim, self._timeouts.load_wait):
            while True:
                with anyio.move_on_after(silence):
                    await claim.wait_until_granted()
                    return
                silence = keep_alive
                if decoded.request.stream:
                    encoder = self.encoder
                    if encoder is None:
                        encoder = await self.begin(decoded.answering.begin(None), {})
                    # not only a comment, because some clients ignore comments
                    await self._connection.write(encoder.comment(claim.news) + encoder.keep_alive())

    async def fail(self, error: TemperError) -> bool:
        """End the stream with an error event; return False if it is not in progress."""
        if self.encoder is None or self._connection.is_over:
            return False
        await self._connection.end(self.encoder.fail(describe(error)))
        return True

    async def send(self, batches: ReplyEvents, answer: Streamable) -> None:
        failure: TemperError | None = None
        self._expect_silence(answer)
        try:
            try:
                async with Deadline(self._timeouts.deadline, answer.backend_name):
                    async for batch in batches:
                        await self._send(batch, answer)
            except TemperError as error:
                failure = error
                # the text from before the deadline is more useful to a client than an error
                if final_events := answer.cut_off(error):
                    failure = None
                    await self._send(final_events, answer)
            await self._finish_keep_alive()
        except asyncio.CancelledError:
            await self._finish_cancelled(answer)
            raise
        except Exception:  # a bug, which the caller logs
            self._is_sending = False
            await self._finish_keep_alive()
            await self._break_off(TemperError())
            raise
        finally:
            self._stop_keep_alives()
        if failure is None:
            await self._end(answer)
        elif not await self.fail(failure):
            await refuse(self._connection, failure)

    async def _send(self, batch: Sequence[ReplyEvent], answer: Streamable) -> None:
        """Send a batch; if a keep-alive is being sent, wait for it first."""
        if self._sending_keep_alive is not None:
            await self._finish_keep_alive()
        self._is_sending = True
        encoder = self.encoder
        if encoder is None:
            await self._begin_with(batch, answer)
        elif payload := encoder.encode_all(batch):
            await self._connection.write(payload)
            self._is_silent = False
        self._is_sending = False

    async def _begin_with(self, batch: Sequence[ReplyEvent], answer: Streamable) -> None:
        """Send the head and the first events in one write, because each write wakes the client."""
        self._connection.cork()
        try:
            encoder = await self.begin(answer.encoder(batch[0]), answer.headers())
            if payload := encoder.encode_all(batch):
                await self._connection.write(payload)
                self._is_silent = False
        finally:
            self._connection.uncork()

    async def _end(self, answer: Streamable) -> None:
        encoder = self.encoder
        if encoder is None:
            encoder = await self.begin(answer.encoder(None), answer.headers())
        comments = b"".join(map(encoder.comment, answer.comments()))
        await self._connection.end(comments + encoder.end())

    async def _finish_cancelled(self, answer: Streamable) -> None:
        """Send the reason for the cancellation to a client that is still connected."""
        if self._connection.is_cancelled:
            await self._break_off(RequestCancelled())
        elif not self._connection.is_disconnected:
            await self._break_off(BackendUnavailable(answer.backend_name, _STOPPING))

    async def _break_off(self, reason: TemperError) -> None:
        """End the stream with an error event, if it has begun and no write is incomplete."""
        if not self._is_sending and self._sending_keep_alive is None:
            # after an incomplete event, the client could not parse the error event
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self.fail(reason)

    def _expect_silence(self, answer: Streamable) -> None:
        """Send a keep-alive after each `keep_alive` seconds of silence.

        Each event clears a flag, which the timer checks. Restarting the timer with each event would
        be slower.
        """
        self._is_silent = True
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._timeouts.keep_alive, self._check_silence, answer)

    def _check_silence(self, answer: Streamable) -> None:
        if self._is_silent and not self._is_sending:
            self._sending_keep_alive = asyncio.create_task(self._send_keep_alive(answer))
        else:
            self._expect_silence(answer)

    async def _send_keep_alive(self, answer: Streamable) -> None:
        encoder = self.encoder
        try:
            if encoder is None:
                encoder = await self.begin(answer.encoder(None), answer.headers())
            await self._connection.write(encoder.keep_alive())
        finally:
            self._sending_keep_alive = None
        self._expect_silence(answer)

    async def _finish_keep_alive(self) -> None:
        """Wait until a keep-alive that is being written is complete."""
        if self._sending_keep_alive is not None:
            await asyncio.wait((self._sending_keep_alive,))

    def _stop_keep_alives(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._sending_keep_alive is not None:
            self._sending_keep_alive.cancel()
