"""Keeps account of one request while it is alive: moments, attempts, status; then its record.

It is told of turning points only and never of tokens, so it costs nothing where speed matters.
"""

import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import msgspec
from starlette.types import Message, Send

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import UsageReported
from proxy.engine import Headers
from proxy.errors import (
    BackendFailed,
    BackendRefused,
    BackendSpokeNonsense,
    BackendTimedOut,
    BackendUnavailable,
    ContextOverflow,
    InvalidRequest,
    TemperError,
)
from proxy.facts import Fact, Outcome, Try, tries
from proxy.observability.record import (
    CHAT,
    CHAT_DIALECT,
    CLIENT_LEFT,
    AttemptRecord,
    Load,
    Phase,
    RequestRecord,
    Tokens,
    ToolRecord,
)
from proxy.observability.trace_context import TraceContext, new_span_id

LONGEST_SAMPLE = 2000  # bytes

logger = logging.getLogger(__name__)

_OVERFLOWED = Try("as_asked")
_FAILURES: dict[type[TemperError], str] = {
    BackendUnavailable: "unavailable",
    BackendTimedOut: "timed_out",
    BackendRefused: "refused",
    BackendSpokeNonsense: "nonsense",
    ContextOverflow: "context_overflow",
    InvalidRequest: "invalid_request",
}


@dataclass(slots=True)
class _Attempt:
    """An attempt that runs, or ran until `ended`."""

    begun: float
    span_id: int
    ended: float = 0.0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for, and of whom; `service` is the configured name of the model."""

    model: str
    service: str
    backend: str
    stream: bool


class LiveRequest:
    """What happened to one request so far; `record` tells it all when it is over."""

    def __init__(
        self,
        request_id: str,
        trace: TraceContext | None = None,
        *,
        path: str = CHAT,
        dialect: str = CHAT_DIALECT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.asked: Asked | None = None
        self.facts: tuple[Fact, ...] = ()
        self.outcome: Outcome | None = None
        self.usage: UsageReported | None = None
        self.finish_reason: str | None = None
        self.status = CLIENT_LEFT
        self.client: str | None = None
        self._id = request_id
        self._trace = trace
        self._path = path
        self._dialect = dialect
        self._clock = clock
        self._begun = clock()
        self._begun_at = time.time()
        self._joined: float | None = None
        self._loaded: float | None = None
        self._admitted: float | None = None
        self._first_token: float | None = None
        self._attempts: list[_Attempt] = []
        self._tools: list[ToolRecord] = []
        self._calls: dict[str, int] = {}
        self._waited = 0.0
        self._load: Load | None = None
        self._share = 0.0
        self._waits = False

    @contextmanager
    def loading(self, load: Load | None) -> Generator[None, None, None]:
        """Note that the request waits for its model to be loaded while the block runs."""
        begun = self._clock()
        if load is not None:
            load.wait(1)
        try:
            yield
        finally:
            self._loaded = self._clock() - begun
            if load is not None:
                load.wait(-1)

    def noting(self, send: Send) -> Send:
        """Return what sends to the client and notes the status once all of the answer was sent.

        Until then the client may leave.
        """
        status = CLIENT_LEFT

        async def noted(message: Message) -> None:
            nonlocal status
            await send(message)
            if message["type"] == "http.response.start":
                status = int(message["status"])
            elif not message.get("more_body", False):
                self.status = status

        return noted

    def served_by(self, backend: str) -> None:
        """Note which of several backends it was."""
        if self.asked is not None and self.asked.backend != backend:
            self.asked = replace(self.asked, backend=backend)

    def wait(self, load: Load | None) -> None:
        """Note that the request waits for a slot."""
        self._load, self._joined, self._waits = load, self._clock(), True
        if load is not None:
            load.wait(1)

    def admit(self, share: float) -> None:
        """Note that it has a slot, and which share of all the slots' room its prompt takes."""
        self._admitted, self._share, self._waits = self._clock(), share, False
        if self._load is not None:
            self._load.wait(-1)
            self._load.run(1, share)

    def release(self) -> None:
        """Note that it has given its slot back, and may wait for one again."""
        self._waited += self._since_joined(self._clock())
        self._settle()
        self._load = self._joined = None

    def show(self) -> None:
        """Note that the client sees something of the answer."""
        self._first_token = self._first_token or self._clock()

    @contextmanager
    def attempt(self, headers: Headers) -> Generator[Headers, None, None]:
        """Note an attempt while the block runs; gives the headers that travel upstream."""
        running = _Attempt(self._clock(), new_span_id() if self._trace is not None else 0)
        self._attempts.append(running)
        if self._trace is not None:
            headers = {**headers, "traceparent": self._trace.header(running.span_id)}
        try:
            yield headers
        except (BackendFailed, InvalidRequest) as error:
            running.error = word_for(error)
            if isinstance(error, BackendSpokeNonsense):
                # written as Python's bytes are: nothing in them can steer a terminal
                logger.debug("%s It sent: %r", error, error.sample[:LONGEST_SAMPLE])
            raise
        finally:
            running.ended = self._clock()

    def call(self, call_id: str) -> JsonObject:
        """Note that a tool is called; returns what travels beside the call."""
        if self._trace is None:
            return {}
        span_id = self._calls[call_id] = new_span_id()
        return {"traceparent": self._trace.header(span_id)}

    def ran(self, tool: ToolRecord) -> None:
        """Note a call that is over, `begun` at a moment of the clock."""
        span_id = self._calls.pop(tool.call_id, 0)
        begun = tool.begun - self._begun
        self._tools.append(msgspec.structs.replace(tool, begun=begun, span_id=span_id))

    def record(self) -> RequestRecord:
        """End the account; to be called once."""
        self._settle()
        asked, now = self.asked, self._clock()
        return RequestRecord(
            id=self._id,
            path=self._path,
            dialect=self._dialect,
            begun_at=self._begun_at,
            seconds=now - self._begun,
            status=self.status,
            model=asked.model if asked is not None else None,
            service=asked.service if asked is not None else None,
            backend=asked.backend if asked is not None else None,
            stream=asked.stream if asked is not None else None,
            queued=self._queued(now),
            first_token=None if self._first_token is None else self._first_token - self._begun,
            tokens=_tokens(self.usage),
            finish_reason=self.finish_reason,
            attempts=self._tried(),
            tools=tuple(self._tools),
            facts=self.facts,
            outcome=self.outcome,
            left=self._phase() if self.status == CLIENT_LEFT else None,
            trace=self._trace,
            client=self.client,
        )

    def _settle(self) -> None:
        """Leave the crowd, wherever the request stood in it."""
        load = self._load
        if load is None:
            return
        if self._waits:
            load.wait(-1)
        elif self._admitted is not None:
            load.run(-1, -self._share)

    def _queued(self, now: float) -> float | None:
        """Add up what was spent waiting, also by those who were never admitted."""
        if self._joined is None and self._admitted is None:
            return self._loaded
        return (self._loaded or 0.0) + self._waited + self._since_joined(now)

    def _since_joined(self, now: float) -> float:
        """Return how long it waits, or waited, for the slot it wants now."""
        if self._joined is None:
            return 0.0
        return (now if self._waits else self._admitted or now) - self._joined

    def _tried(self) -> tuple[AttemptRecord, ...]:
        """Join what was judged with when it ran; a turn that was restarted lost its first try."""
        judged = tries(self.facts)[-len(self._attempts) :] if self._attempts else ()
        lost = (_OVERFLOWED,) * (len(self._attempts) - len(judged))
        return tuple(
            AttemptRecord(
                one.rung,
                ran.begun - self._begun,
                ran.ended - ran.begun,
                one.defect,
                ran.error,
                ran.span_id,
            )
            for one, ran in zip((*lost, *judged), self._attempts, strict=True)
        )

    def _phase(self) -> Phase:
        if self.asked is None:
            return Phase.RECEIVING
        if self._admitted is None:
            return Phase.QUEUED
        if self._first_token is not None:
            return Phase.STREAMING
        return Phase.BEFORE_FIRST_TOKEN if len(self._attempts) < 2 else Phase.BETWEEN_ATTEMPTS


def word_for(error: TemperError) -> str:
    """Name the kind of an attempt's failure, in a word of a closed list."""
    if isinstance(error, BackendUnavailable) and error.loading:
        return "loading"
    return next((word for kind, word in _FAILURES.items() if isinstance(error, kind)), "failed")


def _tokens(reported: UsageReported | None) -> Tokens:
    if reported is None:
        return Tokens()
    usage = reported.usage
    details = usage.get("prompt_tokens_details")
    return Tokens(
        _count(usage.get("prompt_tokens")),
        _count(details.get("cached_tokens") if isinstance(details, dict) else None),
        _count(usage.get("completion_tokens")),
    )


def _count(value: json.JsonValue) -> int | None:
    return value if isinstance(value, int) else None
