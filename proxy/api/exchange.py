"""One chat request at the HTTP edge: from its turn to the bytes of the answer, and the record.

It owns what the pure middle must not have: the clock, fresh ids and the answer's identity.
"""

import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass, field
from typing import TypeAlias

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from proxy.api.errors import describe
from proxy.api.streaming import Events, EventStream, Pace, while_connected, within
from proxy.backends.client import Backend
from proxy.conversation import json
from proxy.conversation.replies import (
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    ToolCalled,
    UsageReported,
)
from proxy.conversation.requests import Request
from proxy.dialects.openai_chat.encode import ChunkEncoder, CompletionBuilder, Identity
from proxy.engine import converse
from proxy.errors import ContextOverflow, TemperError
from proxy.facts import Fact, WindowFilled, attempts, context, outcome, repairs, report
from proxy.inference.turn import State, Turn
from proxy.observability.logs import RequestLog, log_request

_CLIENT_LEFT = 499

Shorter: TypeAlias = Callable[[ContextOverflow], Awaitable[Turn | None]]


async def _no_shorter(_: ContextOverflow) -> Turn | None:
    return None


@dataclass(frozen=True, slots=True)
class SlotTerms:
    """What an exchange has of the backend: a slot to wait for, and its window in tokens.

    `shorter` makes another turn of a prompt that proved too long, if that is possible.
    """

    slot: AbstractAsyncContextManager[None] = field(default_factory=nullcontext)
    window: int | None = None
    shorter: Shorter = _no_shorter


def new_call_id() -> str:
    """Make the id of a tool call."""
    return f"call_{secrets.token_hex(12)}"


class Exchange:
    """Answers one chat request and keeps account of it."""

    def __init__(
        self,
        request: Request,
        turn: Turn,
        backend: Backend,
        pace: Pace,
        *,
        terms: SlotTerms | None = None,
    ) -> None:
        self._request = request
        self._turn = turn
        self._backend = backend
        self._pace = pace
        self._terms = terms or SlotTerms()
        self._is_filled = False
        self._begun = time.monotonic()
        self._admitted: float | None = None
        self._first_token: float | None = None
        self._usage: UsageReported | None = None
        self._status_sent = 0
        self._status = _CLIENT_LEFT

    async def answer(
        self, scope: Scope, receive: Receive, send: Send, headers: dict[str, str]
    ) -> None:
        """Answer the client, or stop all work as soon as it has gone.

        `headers` are those that travel upstream.
        """
        events = self._watched(headers)

        async def work() -> None:
            if self._request.stream:
                streaming = EventStream(
                    events,
                    self._encoder,
                    self._pace,
                    backend=self._backend.name,
                    headers=self._headers(),
                )
                await streaming(scope, noted_send)
            else:
                response = await self._whole(events)
                await response(scope, receive, noted_send)

        async def noted_send(message: Message) -> None:
            await send(message)
            self._note(message)

        async with aclosing(events):
            await while_connected(receive, work)

    def _note(self, message: Message) -> None:
        """Keep the status once the whole answer was sent: until then the client may leave."""
        if message["type"] == "http.response.start":
            self._status_sent = int(message["status"])
        elif not message.get("more_body", False):
            self._status = self._status_sent

    def record(self, request_id: str) -> None:
        """Write the one log line of this exchange."""
        usage = self._usage.usage if self._usage is not None else {}
        details = usage.get("prompt_tokens_details")
        happened = self._facts
        log_request(
            RequestLog(
                id=request_id,
                model=self._request.model,
                backend=self._backend.name,
                status=self._status,
                stream=self._request.stream,
                queued_ms=self._since(self._admitted),
                first_token_ms=self._since(self._first_token),
                total_ms=self._since(time.monotonic()) or 0.0,
                prompt_tokens=_count(usage.get("prompt_tokens")),
                cached_tokens=_count(
                    details.get("cached_tokens") if isinstance(details, dict) else None
                ),
                output_tokens=_count(usage.get("completion_tokens")),
                attempts=attempts(happened),
                outcome=outcome(happened) if self._turn.state is State.DONE else None,
                repairs=repairs(happened),
                context=context(happened) or None,
            )
        )

    def _since(self, moment: float | None) -> float | None:
        return None if moment is None else (moment - self._begun) * 1000

    async def _watched(self, headers: dict[str, str]) -> Events:
        """Stream the turn's events, noting what the record needs."""
        async with self._terms.slot, aclosing(self._conversation(headers)) as events:
            self._admitted = time.monotonic()
            async for event in events:
                if isinstance(event, UsageReported):
                    self._usage = event
                    self._is_filled = event.usage.get("total_tokens") == self._terms.window
                elif self._first_token is None and isinstance(event, TextDelta | ToolCalled):
                    self._first_token = time.monotonic()
                yield event

    async def _conversation(self, headers: dict[str, str]) -> Events:
        """Stream the turn; a prompt that proves too long is shortened once more.

        That is too late once the client has seen a part of an answer.
        """
        is_seen = False
        try:
            async with aclosing(converse(self._turn, self._backend, headers)) as events:
                async for event in events:
                    is_seen = is_seen or isinstance(event, TextDelta | ToolCalled)
                    yield event
        except ContextOverflow as overflow:
            turn = None if is_seen else await self._terms.shorter(overflow)
            if turn is None:
                raise
            self._turn = turn
        else:
            return
        async with aclosing(converse(self._turn, self._backend, headers)) as events:
            async for event in events:
                yield event

    @property
    def _facts(self) -> tuple[Fact, ...]:
        """What happened, to the turn and to the window."""
        if not self._is_filled or self._terms.window is None:
            return self._turn.facts
        return (*self._turn.facts, WindowFilled(self._terms.window))

    async def _whole(self, events: Events) -> Response:
        """Assemble one JSON body from the same events that a stream would show."""
        builder: CompletionBuilder | None = None
        try:
            async with within(self._pace.deadline, self._backend.name):
                async for event in events:
                    builder = builder or CompletionBuilder(self._identity(event))
                    builder.add(event)
        except TemperError as error:
            return describe(error).response()
        body = json.dump(builder.build() if builder is not None else {})
        told = {f"x-temper-{name}": value for name, value in report(self._facts).items()}
        headers = {**self._headers(), **told}
        return Response(body, 200, headers, "application/json")

    def _encoder(self, first: ReplyEvent | None) -> "_StreamEncoder":
        chunks = ChunkEncoder(self._identity(first), self._request.include_usage)
        return _StreamEncoder(chunks, lambda: self._facts)

    def _identity(self, first: ReplyEvent | None) -> Identity:
        started = first if isinstance(first, ReplyStarted) else ReplyStarted()
        made_id = f"chatcmpl-{secrets.token_hex(12)}"
        return Identity.of(started, id=made_id, created=int(time.time()), model=self._request.model)

    def _headers(self) -> dict[str, str]:
        shape = context(self._turn.facts)
        told = {"x-temper-context": shape} if shape else {}
        return {"x-temper-backend": self._backend.name, **told}


class _StreamEncoder:
    """The chunks of one answer; what became of it is reported in a comment before the end."""

    def __init__(self, chunks: ChunkEncoder, facts: Callable[[], tuple[Fact, ...]]) -> None:
        self._chunks = chunks
        self._facts = facts
        self._is_over = False

    def encode(self, event: ReplyEvent) -> bytes:
        """Return the chunk of an event."""
        self._is_over = isinstance(event, ReplyFinished)
        return self._chunks.encode(event)

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


def _count(value: json.JsonValue) -> int | None:
    return value if isinstance(value, int) else None
