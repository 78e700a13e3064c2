"""One request at the HTTP edge: from its turn to the bytes of the answer."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass
from typing import TypeAlias

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from proxy.api.errors import describe, error_response
from proxy.api.streaming import EventStream, StreamTimeouts, while_connected, within
from proxy.backends.affinity import PREFIX_HEADER
from proxy.backends.client import Backend, ReplyEvents
from proxy.conversation.replies import (
    PromptProgress,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    ToolCalled,
    ToolCallStarted,
    UsageReported,
)
from proxy.dialects.front import AnswerBuilder, Answering, StreamEncoder
from proxy.engine import converse
from proxy.errors import BackendTimedOut, ContextOverflow, TemperError
from proxy.facts import Compacted, Fact, WindowFilled, context, outcome, report
from proxy.inference.event_sink import Audience
from proxy.inference.turn import Turn, TurnState
from proxy.observability.exchange_recorder import ExchangeRecorder
from proxy.observability.live_request import LiveRequest
from proxy.observability.record import Load
from proxy.serving.request_preparation import MOST_SHORTENINGS

_SEEN = (TextDelta, ToolCallStarted, ToolCalled)

Shorter: TypeAlias = Callable[[ContextOverflow], Awaitable[Turn | None]]


async def _no_shorter(_: ContextOverflow) -> Turn | None:
    return None


@dataclass(frozen=True, slots=True)
class SlotTerms:
    """What an exchange has of the backend: slots to wait for, and its window in tokens.

    `room` is that of all slots together, 0 where nobody knows, and `load` follows who has one.
    `shorter` makes another turn of a prompt that proved too long, if that is possible.
    """

    slot: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    window: int | None = None
    room: int = 0
    load: Load | None = None
    shorter: Shorter = _no_shorter


@dataclass(frozen=True, slots=True)
class ExchangeParts:
    """What an exchange is made of."""

    answering: Answering
    turn: Turn
    backend: Backend
    timeouts: StreamTimeouts
    terms: SlotTerms
    live: LiveRequest


class Exchange:
    """Answers one request; what happens to it is noted in `live`."""

    def __init__(
        self,
        answering: Answering,
        turn: Turn,
        backend: Backend,
        timeouts: StreamTimeouts,
        *,
        terms: SlotTerms | None = None,
        live: LiveRequest | None = None,
    ) -> None:
        self._answering = answering
        self._turn = turn
        self._backend = backend
        self._timeouts = timeouts
        self._terms = terms or SlotTerms()
        self._live = live or LiveRequest("")
        self._is_stream = False
        self._streaming: EventStream[ReplyEvent] | None = None
        self._is_filled = False
        self._is_seen = False
        self._shortenings = 0
        self._prefix = ""
        self._live.facts_so_far = lambda: self._facts

    async def stream(
        self,
        scope: Scope,
        send: Send,
        receive: Receive,
        headers: dict[str, str],
        *,
        recorder: ExchangeRecorder | None = None,
        begun: StreamEncoder | None = None,
    ) -> None:
        """Stream the answer, or stop all work as soon as the client has gone.

        `headers` are those that travel upstream; a `recorder` hears what the client gets. A stream
        that the client has seen the beginning of was `begun` by somebody else.
        """
        self._is_stream = True
        batches = self._events(headers, recorder, self if recorder is None else None)
        streaming = self._streaming = EventStream(
            batches,
            self._encoder,
            self._timeouts,
            backend=self._backend.name,
            headers=self._headers,
            cut_off=self._cut_off,
        )
        if begun is not None:
            streaming.go_on(_ReportingEncoder(begun, lambda: self._facts))
        async with aclosing(batches):
            await while_connected(receive, lambda: streaming(scope, send))

    async def whole(
        self,
        scope: Scope,
        send: Send,
        receive: Receive,
        headers: dict[str, str],
        *,
        recorder: ExchangeRecorder | None = None,
    ) -> None:
        """Answer with one body, under the same conditions as a stream."""
        batches = self._events(headers, recorder)

        async def work() -> None:
            response = await self._whole(batches, scope)
            await response(scope, receive, send)

        async with aclosing(batches):
            await while_connected(receive, work)

    def close(self) -> None:
        """Note what happened to the turn, and let go of what refers back to the exchange."""
        self._live.facts, self._live.facts_so_far = self._facts, None
        self._streaming = None
        self._live.served_by(self._backend.name)
        if self._turn.state is TurnState.DONE:
            self._live.outcome = outcome(self._live.facts)

    @property
    def parts(self) -> ExchangeParts:
        """What it is made of, for one that goes on with it."""
        return ExchangeParts(
            self._answering, self._turn, self._backend, self._timeouts, self._terms, self._live
        )

    @property
    def is_ready(self) -> bool:
        """Whether the client gets events at once; see `Audience`."""
        return self._streaming is not None and self._streaming.is_ready

    def show(self, events: Sequence[ReplyEvent]) -> None:
        """Show the client events at once."""
        assert self._streaming is not None  # noqa: S101 - it was ready
        self._notice(events)
        self._streaming.show(events)

    def _events(
        self,
        headers: dict[str, str],
        recorder: ExchangeRecorder | None,
        audience: Audience | None = None,
    ) -> ReplyEvents:
        self._prefix = headers.get(PREFIX_HEADER, "")
        batches = self._watched(headers, audience)
        return batches if recorder is None else recorder.before(batches)

    async def _watched(
        self, headers: dict[str, str], audience: Audience | None = None
    ) -> ReplyEvents:
        """Stream the turn's events, noting what the record needs."""
        live = self._live
        live.wait(self._terms.load)
        async with self._terms.slot():
            live.admit(self._share)
            is_over = False
            while not is_over:
                try:
                    replying = converse(
                        self._turn, self._backend, headers, live.attempt, audience=audience
                    )
                    async with aclosing(replying) as batches:
                        async for batch in batches:
                            self._notice(batch)
                            yield batch
                    is_over = True
                except ContextOverflow as overflow:
                    if not await self._shorten(overflow):
                        raise

    def _notice(self, batch: Sequence[ReplyEvent]) -> None:
        if not self._is_seen and any(isinstance(event, _SEEN) for event in batch):
            self._is_seen = True
            self._live.show()
        if batch and not isinstance(batch[-1], TextDelta):
            for event in batch[-2:]:  # the usage and the end are the last
                self._notice_end(event)

    def _notice_end(self, event: ReplyEvent) -> None:
        if isinstance(event, UsageReported):
            self._live.usage = event
            self._is_filled = event.usage.get("total_tokens") == self._terms.window
        elif isinstance(event, ReplyFinished):
            self._live.finish_reason = event.reason
        elif isinstance(event, PromptProgress):
            self._live.read(event)

    def _cut_off(self, failure: TemperError) -> Sequence[ReplyEvent]:
        """Return the end of an answer that flowed until its time was over."""
        if not (isinstance(failure, BackendTimedOut) and failure.is_overall):
            return ()
        rest = self._turn.cut_off()
        self._notice(rest)
        return rest

    async def _shorten(self, overflow: ContextOverflow) -> bool:
        """Start over with a shorter prompt; reports whether anything was left to give up.

        It is too late once a client that streams has seen a part of an answer.
        """
        is_too_late = self._is_seen and self._is_stream
        if is_too_late or self._shortenings == MOST_SHORTENINGS:
            return False
        self._shortenings += 1
        turn = await self._terms.shorter(overflow)
        self._turn = turn or self._turn
        return turn is not None

    @property
    def _share(self) -> float:
        """Tell which share of all the room that the backend has goes to the prompt."""
        sent = sum(fact.sent for fact in self._turn.facts if isinstance(fact, Compacted))
        return sent / self._terms.room if self._terms.room else 0.0

    @property
    def _facts(self) -> tuple[Fact, ...]:
        """What happened, to the turn and to the window."""
        if not self._is_filled or self._terms.window is None:
            return self._turn.facts
        return (*self._turn.facts, WindowFilled(self._terms.window))

    async def _whole(self, batches: ReplyEvents, scope: Scope) -> Response:
        """Assemble one body from the same events that a stream would show."""
        builder: AnswerBuilder | None = None
        try:
            async with within(self._timeouts.deadline, self._backend.name):
                async for batch in batches:
                    # a turn that was restarted, with a shorter prompt, starts once more
                    if builder is None or isinstance(batch[0], ReplyStarted):
                        builder = self._answering.builder(batch[0])
                    for event in batch:
                        builder.add(event)
        except TemperError as error:
            rest = self._cut_off(error) if builder is not None else ()
            if builder is None or not rest:
                return error_response(describe(error), scope)
            for event in rest:
                builder.add(event)
        body = (builder or self._answering.builder(None)).build()
        reported = {f"x-temper-{name}": value for name, value in report(self._facts).items()}
        return Response(body, 200, {**self._headers(), **reported}, "application/json")

    def _encoder(self, first: ReplyEvent | None) -> "_ReportingEncoder":
        return _ReportingEncoder(self._answering.begin(first), lambda: self._facts)

    def _headers(self) -> dict[str, str]:
        shape = context(self._turn.facts)
        told = {"x-temper-context": shape} if shape else {}
        prefix = {PREFIX_HEADER: self._prefix} if self._prefix else {}
        return {"x-temper-backend": self._backend.name, **prefix, **told}


class _ReportingEncoder:
    """The stream of one answer; what happened is reported in comments before its end."""

    def __init__(self, stream: StreamEncoder, facts: Callable[[], tuple[Fact, ...]]) -> None:
        self._stream = stream
        self._facts = facts
        self.encode_all = stream.encode_all
        self.keep_alive = stream.keep_alive

    def end(self) -> bytes:
        """Return the report and the end mark."""
        told = report(self._facts())
        shape = told.pop("context", "")
        facts = "; ".join(f"{name}={value}" for name, value in told.items())
        comments = [f"x-temper {facts}"] + ([f"x-temper-context {shape}"] if shape else [])
        return b"".join(map(self._stream.comment, comments)) + self._stream.end()

    def fail(self, error: TemperError) -> bytes:
        """Return an error as the end of the stream."""
        return self._stream.fail(describe(error))
