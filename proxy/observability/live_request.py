"""Collects the times, attempts and status of one running request, then makes its record.

A `LiveRequest` is notified of stages, attempts and tool calls, never of single tokens, so its cost
does not grow with the length of a reply. It reports each change of its stage to the board.

    receiving -> queued -> reading -> streaming -> record
"""

import logging
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import msgspec

from proxy import errors
from proxy.backends.client import Headers
from proxy.context.prefix import PrefixBroken, Reread
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import PromptProgress, UsageReported
from proxy.dialects.lenient_json import as_integer, cached_tokens, prompt_seconds
from proxy.facts import Fact, JudgedAttempt, ReplyOutcome, judged_attempts
from proxy.observability.board import Board
from proxy.observability.record import (
    CHAT,
    CHAT_DIALECT,
    CLIENT_LEFT,
    RUNNING,
    WAITING,
    AttemptRecord,
    Load,
    Phase,
    RequestRecord,
    RequestStage,
    Tokens,
    ToolRecord,
)
from proxy.observability.trace_context import TraceContext, new_span_id

logger = logging.getLogger(__name__)

_OVERFLOWED = JudgedAttempt("as_asked")  # an attempt whose prompt was too long
# the word for an error in logs and metrics; a subclass has the word of its base class
_FAILURES: dict[type[errors.TemperError], str] = {
    errors.BackendUnavailable: "unavailable",
    errors.BackendTimedOut: "timed_out",
    errors.BackendRefused: "refused",
    errors.BackendReplyInvalid: "nonsense",
    errors.ContextOverflow: "context_overflow",
    errors.InvalidRequest: "invalid_request",
}


class _LiveAttempt(msgspec.Struct):
    """An attempt, as a context manager around its upstream request; it yields `headers`.

    `ended` is set when the block ends.
    """

    clock: Callable[[], float]
    headers: Headers
    span_id: int
    round: int
    begun: float
    model: str = ""
    ended: float = 0.0
    error: str | None = None

    def __enter__(self) -> Headers:
        return self.headers

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.ended = self.clock()
        if isinstance(error, errors.BackendFailed | errors.InvalidRequest):
            self.error = word_for(error)
        if isinstance(error, errors.BackendReplyInvalid):
            # %r escapes the bytes, so they cannot control a terminal
            logger.debug("%s Response: %r", error, error.sample[:2000])


class BoardLink(msgspec.Struct, frozen=True):
    """The board that shows a request.

    `leave` ends the request as if its client had disconnected.
    """

    board: Board
    leave: Callable[[], None] | None = None


class RunningReply(Protocol):
    """The reply to a running request; a snapshot reads its facts and tokens."""

    @property
    def facts(self) -> tuple[Fact, ...]:
        """The facts up to now."""

    @property
    def tokens(self) -> int:
        """An estimate of the tokens that the current attempt has generated."""


class RequestTarget(msgspec.Struct, frozen=True):
    """The requested model and its backend; `service` is the configured name of the model."""

    model: str
    service: str
    backend: str
    stream: bool


class LiveRequest:
    """The state of a running request; it reports its changes to the board of `link`."""

    # The defaults are class attributes, so that creating a request is cheap: most requests change
    # few of them.
    target: RequestTarget | None = None
    facts: tuple[Fact, ...] = ()
    outcome: ReplyOutcome | None = None
    usage: UsageReported | None = None
    finish_reason: str | None = None
    status = CLIENT_LEFT
    refusal = ""
    priority = "normal"
    round = 0
    prefix_broken: PrefixBroken | None = None
    reread: Reread | None = None
    reply: RunningReply | None = None
    client: str | None = None
    _joined: float | None = None
    _loaded: float | None = None
    _admitted: float | None = None
    _first_token: float | None = None
    _waited = 0.0
    _load: Load | None = None
    _share = 0.0
    _is_waiting = False
    _stage = RequestStage.RECEIVING
    _progress: float | None = None
    _reported = 0.0

    def __init__(
        self,
        request_id: str,
        trace: TraceContext | None = None,
        *,
        path: str = CHAT,
        dialect: str = CHAT_DIALECT,
        clock: Callable[[], float] = time.monotonic,
        link: BoardLink | None = None,
    ) -> None:
        self._id, self._trace = request_id, trace
        self._path, self._dialect = path, dialect
        self._clock = clock
        self._arrived = clock()
        # only for display: the system clock may be set meanwhile, so durations use `clock` (F58)
        self._arrived_at = time.time()
        self._attempts: list[_LiveAttempt] = []
        self._tools: list[ToolRecord] = []
        self._calls: dict[str, ToolRecord] = {}
        self._link = link
        self.number = link.board.open(self) if link is not None else 0

    def snapshot(self) -> tuple[RequestRecord, RequestStage, float | None]:
        """Return the record so far, the stage, and the share of the prompt read (0 to 1)."""
        reply = self.reply
        record = self._record(self.facts if reply is None else reply.facts, None)
        tools = (*record.tools, *self._calls.values())  # the running calls are not recorded yet
        tokens = record.tokens
        if reply is not None and self.usage is None:
            tokens = Tokens(output=reply.tokens or None)
        record = msgspec.structs.replace(record, tools=tools, tokens=tokens)
        return record, self._stage, self._progress

    def cancel(self) -> bool:
        if self._link is None or self._link.leave is None:
            return False
        self._link.leave()
        return True

    @contextmanager
    def wait_for_model(self, load: Load | None) -> Generator[None, None, None]:
        """Count the time of the block as queue time, in the stage `LOADING`."""
        begun = self._clock()
        if load is not None:
            load.wait(1, self.priority)
        self._enter(RequestStage.LOADING)
        try:
            yield
        finally:
            self._loaded = self._clock() - begun
            if load is not None:
                load.wait(-1, self.priority)

    def set_backend(self, backend: str) -> None:
        if self.target is not None and self.target.backend != backend:
            self.target = msgspec.structs.replace(self.target, backend=backend)

    def set_model(self, model: str) -> None:
        """Set the model of a request that did not name a model; the server chose it."""
        if self.target is not None:
            self.target = msgspec.structs.replace(self.target, model=model)

    def wait(self, load: Load | None) -> None:
        """Record that the request joins the queue for a slot."""
        self._load, self._joined, self._is_waiting = load, self._clock(), True
        if load is not None:
            load.wait(1, self.priority)
        self._enter(RequestStage.QUEUED)

    def admit(self, share: float) -> None:
        """Record that the request got a slot; `share` is its share of the tokens of all slots."""
        self._admitted, self._share, self._is_waiting = self._clock(), share, False
        if self._load is not None:
            self._load.wait(-1, self.priority)
            self._load.run(1, share)
        self._enter(RequestStage.READING)

    def note_progress(self, progress: PromptProgress) -> None:
        """Record the progress of reading the prompt; the board is notified once a second."""
        # llama-server reports after each batch, and each report would be sent to every browser
        now = self._clock()
        self._progress = progress.share
        if now - self._reported >= 1.0 or self._progress == 1.0:
            self._reported = now
            self._enter(self._stage)

    def release(self) -> None:
        """Record that the request returned its slot; it may wait for another slot later."""
        self._waited += self._since_joined(self._clock())
        self._leave_load()
        self._load = self._joined = None

    def note_first_token(self) -> None:
        if self._first_token is None:
            self._first_token = self._clock()
            self._enter(RequestStage.STREAMING)

    def attempt(self, headers: Headers, model: str = "") -> AbstractContextManager[Headers]:
        """Return a context manager that records an attempt and yields the upstream headers.

        `model` names the section of the settings if another model than the requested model is used.
        """
        span_id = 0
        if self._trace is not None:
            span_id = new_span_id()
            # the parent of an engine's spans is the attempt, not the request
            headers = {**headers, "traceparent": self._trace.header(span_id)}
        running = _LiveAttempt(self._clock, headers, span_id, self.round, self._clock(), model)
        self._attempts.append(running)
        if len(self._attempts) > 1:
            self._progress = None
            self._enter(RequestStage.ASKED_AGAIN)
        return running

    def wait_for_person(self, call_id: str, server: str, name: str) -> None:
        """Record that a call waits for a person's approval."""
        self._call(ToolRecord(server, name, call_id, 0, 0.0, 0.0, WAITING))

    def begin_call(self, call_id: str, name: str) -> JsonObject:
        """Record that a tool call begins; return the metadata to send with it."""
        span_id = self._call(ToolRecord("", name, call_id, 0, 0.0, 0.0, RUNNING))
        return {"traceparent": self._trace.header(span_id)} if self._trace is not None else {}

    def end_call(self, tool: ToolRecord) -> None:
        running = self._calls.pop(tool.call_id, None)
        span_id = 0 if running is None else running.span_id
        begun = tool.begun - self._arrived
        self._tools.append(msgspec.structs.replace(tool, begun=begun, span_id=span_id))
        self._enter(self._tool_stage)

    @property
    def until_first_token(self) -> float | None:
        """The seconds from the upstream request to the first token; None if there was a retry."""
        if self._first_token is None or len(self._attempts) != 1:
            return None
        return self._first_token - self._attempts[0].begun

    @property
    def row_name(self) -> str:
        """The request's name on the dashboard; "" if there is no dashboard."""
        return self._link.board.name_of(self.number) if self._link is not None else ""

    def record(self) -> RequestRecord:
        """Return the record of the finished request; may be called only once."""
        self._leave_load()
        record = self._record(self.facts, self.outcome)
        if self._link is not None:
            self._link.board.close(self.number, record)
        return record

    def _record(self, facts: tuple[Fact, ...], outcome: ReplyOutcome | None) -> RequestRecord:
        target, now = self.target, self._clock()
        return RequestRecord(
            id=self._id,
            path=self._path,
            dialect=self._dialect,
            begun_at=self._arrived_at,
            seconds=now - self._arrived,
            status=self.status,
            model=target.model if target is not None else None,
            service=target.service if target is not None else None,
            backend=target.backend if target is not None else None,
            stream=target.stream if target is not None else None,
            queued=self._queue_seconds(now),
            first_token=None if self._first_token is None else self._first_token - self._arrived,
            tokens=_tokens(self.usage),
            finish_reason=self.finish_reason,
            attempts=self._attempt_records(facts, now),
            tools=tuple(self._tools),
            facts=facts,
            outcome=outcome,
            left=self._phase() if self.status == CLIENT_LEFT else None,
            trace=self._trace,
            prefix_broken=self.prefix_broken,
            reread=self.reread,
            number=self.number,
            client=self.client,
            refusal=self.refusal,
            priority=self.priority,
        )

    def _call(self, tool: ToolRecord) -> int:
        """Record that a call begins; return the id of its span."""
        begun, span_id = self._clock() - self._arrived, new_span_id()
        self._calls[tool.call_id] = msgspec.structs.replace(tool, begun=begun, span_id=span_id)
        self._enter(self._tool_stage)
        return span_id

    @property
    def _tool_stage(self) -> RequestStage:
        is_waiting = any(call.status == WAITING for call in self._calls.values())
        return RequestStage.WAITING_FOR_PERSON if is_waiting else RequestStage.RUNNING_TOOL

    def _enter(self, stage: RequestStage) -> None:
        self._stage = stage
        if self._link is not None:
            self._link.board.advance(self.number, stage)

    def _leave_load(self) -> None:
        load = self._load
        if load is None:
            return
        if self._is_waiting:
            load.wait(-1, self.priority)
        elif self._admitted is not None:
            load.run(-1, -self._share)

    def _queue_seconds(self, now: float) -> float | None:
        """Return the seconds of waiting for a model and for slots; None if there was no wait.

        The time of a request that left the queue without a slot counts as waiting, too. Otherwise
        it would be counted as Temper's overhead.
        """
        if self._joined is None and self._admitted is None:
            return self._loaded
        return (self._loaded or 0.0) + self._waited + self._since_joined(now)

    def _since_joined(self, now: float) -> float:
        """Return the seconds of waiting for the current slot."""
        if self._joined is None:
            return 0.0
        return (now if self._is_waiting else self._admitted or now) - self._joined

    def _attempt_records(self, facts: tuple[Fact, ...], now: float) -> tuple[AttemptRecord, ...]:
        """Return the records of the attempts: their verdicts from the facts, and their times."""
        if not self._attempts:
            return ()
        # after a context overflow a new turn starts, and the attempts before it have no verdict
        judged = judged_attempts(facts)[-len(self._attempts) :]
        unjudged = (_OVERFLOWED,) * (len(self._attempts) - len(judged))
        return tuple(
            [
                AttemptRecord(
                    verdict.kind,
                    attempt.begun - self._arrived,
                    (attempt.ended or now) - attempt.begun,
                    verdict.defect,
                    attempt.error,
                    attempt.span_id,
                    attempt.round,
                    attempt.model,
                )
                for verdict, attempt in zip((*unjudged, *judged), self._attempts, strict=True)
            ]
        )

    def _phase(self) -> Phase:
        if self.target is None:
            return "receiving"
        if self._admitted is None:
            return "queued"
        if self._first_token is not None:
            return "streaming"
        return "before_first_token" if len(self._attempts) < 2 else "between_attempts"


def word_for(error: errors.TemperError) -> str:
    """Return the word for an error in logs and metrics, e.g. "timed_out" or "loading"."""
    if isinstance(error, errors.BackendUnavailable) and error.loading:
        return "loading"
    return next((word for kind, word in _FAILURES.items() if isinstance(error, kind)), "failed")


def _tokens(reported: UsageReported | None) -> Tokens:
    if reported is None:
        return Tokens()
    usage = reported.usage
    return Tokens(
        as_integer(usage.get("prompt_tokens")),
        cached_tokens(usage),
        as_integer(usage.get("completion_tokens")),
        prompt_seconds(reported.timings),
    )
