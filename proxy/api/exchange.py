"""One chat request at the HTTP edge: from its turn to the bytes of the answer.

It owns what the pure middle must not have: the clock, fresh ids and the answer's identity.
"""

import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass, field
from typing import TypeAlias

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from proxy.api.errors import describe
from proxy.api.streaming import EventStream, Pace, while_connected, within
from proxy.backends.affinity import PREFIX_HEADER
from proxy.backends.client import Backend, ReplyEvents
from proxy.conversation import json
from proxy.conversation.replies import (
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    ToolCalled,
    ToolCallStarted,
    UsageReported,
)
from proxy.conversation.requests import Request
from proxy.dialects.openai_chat.encode import ChunkEncoder, CompletionBuilder, Identity
from proxy.engine import converse
from proxy.errors import BackendTimedOut, ContextOverflow, TemperError
from proxy.facts import Compacted, Fact, WindowFilled, context, outcome, report
from proxy.inference.audience import Audience
from proxy.inference.turn import State, Turn
from proxy.observability.exchange_recorder import Tape
from proxy.observability.live_request import Account
from proxy.observability.record import Load

_SEEN = (TextDelta, ToolCallStarted, ToolCalled)

_MOST_SHORTENINGS = 8  # each gives up much more than the one before

Shorter: TypeAlias = Callable[[ContextOverflow], Awaitable[Turn | None]]


async def _no_shorter(_: ContextOverflow) -> Turn | None:
    return None


@dataclass(frozen=True, slots=True)
class SlotTerms:
    """What an exchange has of the backend: a slot to wait for, and its window in tokens.

    `room` is that of all slots together, 0 where nobody knows, and `load` follows who has one.
    `shorter` makes another turn of a prompt that proved too long, if that is possible.
    """

    slot: AbstractAsyncContextManager[None] = field(default_factory=nullcontext)
    window: int | None = None
    room: int = 0
    load: Load | None = None
    shorter: Shorter = _no_shorter


def new_call_id() -> str:
    """Make the id of a tool call."""
    return f"call_{secrets.token_hex(12)}"


def identity_of(first: ReplyEvent | None, request: Request) -> Identity:
    """Identify an answer as the backend did, as far as it has, and else in a way of our own."""
    started = first if isinstance(first, ReplyStarted) else ReplyStarted()
    made_id = started.id or f"chatcmpl-{secrets.token_hex(12)}"
    return Identity.of(started, id=made_id, created=int(time.time()), model=request.model)


class Exchange:
    """Answers one chat request; what happens to it goes into an account."""

    def __init__(
        self,
        request: Request,
        turn: Turn,
        backend: Backend,
        pace: Pace,
        *,
        terms: SlotTerms | None = None,
        account: Account | None = None,
    ) -> None:
        self._request = request
        self._turn = turn
        self._backend = backend
        self._pace = pace
        self._terms = terms or SlotTerms()
        self._account = account or Account("")
        self._begun: ChunkEncoder | None = None
        self._streaming: EventStream[ReplyEvent] | None = None
        self._is_filled = False
        self._is_seen = False
        self._shortenings = 0
        self._prefix = ""

    def resume(self, begun: ChunkEncoder | None) -> None:
        """Go on with a stream whose beginning the client has seen, None if it has not."""
        self._begun = begun

    async def answer(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: dict[str, str],
        *,
        tape: Tape | None = None,
    ) -> None:
        """Answer the client, or stop all work as soon as it has gone.

        `headers` are those that travel upstream; a `tape` hears what the client gets.
        """
        batches = self._watched(headers, self if tape is None else None)
        if tape is not None:
            batches = tape.before(batches)
        self._prefix = headers.get(PREFIX_HEADER, "")
        noted_send = self._account.noting(send)

        async def work() -> None:
            if self._request.stream:
                streaming = self._streaming = EventStream(
                    batches,
                    self._encoder,
                    self._pace,
                    backend=self._backend.name,
                    headers=self._headers,
                    cut_off=self._cut_off,
                )
                await streaming(scope, noted_send)
            else:
                response = await self._whole(batches)
                await response(scope, receive, noted_send)

        async with aclosing(batches):
            await while_connected(receive, work)

    def close(self) -> None:
        """Hand over to the account what became of the turn."""
        self._account.facts = self._facts
        self._account.served_by(self._backend.name)
        if self._turn.state is State.DONE:
            self._account.outcome = outcome(self._account.facts)

    @property
    def is_ready(self) -> bool:
        """Whether the client gets events at once; see `Audience`."""
        return self._streaming is not None and self._streaming.is_ready

    def show(self, events: Sequence[ReplyEvent]) -> None:
        """Show the client events at once."""
        assert self._streaming is not None  # noqa: S101 - it was ready
        self._notice(events)
        self._streaming.show(events)

    async def _watched(
        self, headers: dict[str, str], audience: Audience | None = None
    ) -> ReplyEvents:
        """Stream the turn's events, noting what the record needs."""
        account = self._account
        account.wait(self._terms.load)
        async with self._terms.slot:
            account.admit(self._share)
            is_over = False
            while not is_over:
                try:
                    replying = converse(
                        self._turn, self._backend, headers, account.attempt, audience=audience
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
            self._account.show()
        if batch and not isinstance(batch[-1], TextDelta):
            for event in batch[-2:]:  # the usage and the end are the last
                self._notice_end(event)

    def _notice_end(self, event: ReplyEvent) -> None:
        if isinstance(event, UsageReported):
            self._account.usage = event
            self._is_filled = event.usage.get("total_tokens") == self._terms.window
        elif isinstance(event, ReplyFinished):
            self._account.finish_reason = event.reason

    def _cut_off(self, failure: TemperError) -> Sequence[ReplyEvent]:
        """Return the end of an answer that flowed until its time was over."""
        if not (isinstance(failure, BackendTimedOut) and failure.is_overall):
            return ()
        rest = self._turn.cut_off()
        self._notice(rest)
        return rest

    async def _shorten(self, overflow: ContextOverflow) -> bool:
        """Begin anew with a shorter prompt; tells whether anything was left to give up.

        It is too late once a client that streams has seen a part of an answer.
        """
        is_too_late = self._is_seen and self._request.stream
        if is_too_late or self._shortenings == _MOST_SHORTENINGS:
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

    async def _whole(self, batches: ReplyEvents) -> Response:
        """Assemble one JSON body from the same events that a stream would show."""
        builder: CompletionBuilder | None = None
        try:
            async with within(self._pace.deadline, self._backend.name):
                async for batch in batches:
                    # a turn that was begun anew, with a shorter prompt, starts once more
                    if builder is None or isinstance(batch[0], ReplyStarted):
                        builder = CompletionBuilder(identity_of(batch[0], self._request))
                    for event in batch:
                        builder.add(event)
        except TemperError as error:
            rest = self._cut_off(error) if builder is not None else ()
            if builder is None or not rest:
                return describe(error).response()
            for event in rest:
                builder.add(event)
        body = json.dump(builder.build() if builder is not None else {})
        told = {f"x-temper-{name}": value for name, value in report(self._facts).items()}
        headers = {**self._headers(), **told}
        return Response(body, 200, headers, "application/json")

    def _encoder(self, first: ReplyEvent | None) -> "_StreamEncoder":
        chunks = self._begun or ChunkEncoder(
            identity_of(first, self._request), self._request.include_usage
        )
        return _StreamEncoder(chunks, lambda: self._facts)

    def _headers(self) -> dict[str, str]:
        shape = context(self._turn.facts)
        told = {"x-temper-context": shape} if shape else {}
        prefix = {PREFIX_HEADER: self._prefix} if self._prefix else {}
        return {"x-temper-backend": self._backend.name, **prefix, **told}


class _StreamEncoder:
    """The chunks of one answer; what became of it is reported in a comment before the end."""

    def __init__(self, chunks: ChunkEncoder, facts: Callable[[], tuple[Fact, ...]]) -> None:
        self._chunks = chunks
        self._facts = facts
        self._is_over = False

    def encode_all(self, events: Sequence[ReplyEvent]) -> bytes:
        """Return the chunks of events."""
        self._is_over = isinstance(events[-1], ReplyFinished)
        return self._chunks.encode_all(events)

    def keep_alive(self) -> bytes:
        """Return a chunk without content: some clients do not count comments as life.

        Nothing may follow the finish reason, so there is none behind it.
        """
        return b"" if self._is_over else self._chunks.keep_alive()

    def end(self) -> bytes:
        """Return the report and the end mark."""
        told = report(self._facts())
        shape = told.pop("context", "")
        facts = "; ".join(f"{name}={value}" for name, value in told.items())
        comments = [f"x-temper {facts}"] + ([f"x-temper-context {shape}"] if shape else [])
        return b"".join(map(self._chunks.comment, comments)) + self._chunks.done()

    def fail(self, error: TemperError) -> bytes:
        """Return an error event, and no end mark: SDKs raise on it."""
        self._is_over = True
        return self._chunks.error(describe(error).body())
