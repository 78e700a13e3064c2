"""Runs a turn against a backend: the only asynchronous code of this package.

One loop sends all attempts. Each batch of a reply passes through a list of policies, and then to
the turn. Policies are plain objects with one method call per batch; an async generator per policy
would cost more:

    backend.stream ──► policy ──► policy ──► Turn.receive_all ──► client
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeAlias

from proxy.conversation.endings import STOP
from proxy.conversation.replies import EventSink, ReplyEvent, ReplyFinished
from proxy.conversation.requests import UpstreamRequest
from proxy.errors import (
    BackendFailed,
    BackendReplyInvalid,
    GuardrailsExhausted,
    InvalidRequest,
    TemperError,
)
from proxy.guardrails.reasoning import EnoughReadError
from proxy.inference.turn import Turn

# Events that arrive together stay in one batch, because the cost of a batch is fixed.
Batch: TypeAlias = Sequence[ReplyEvent]
ReplyEvents: TypeAlias = AsyncGenerator[Batch, None]
Headers: TypeAlias = dict[str, str]  # with lower-case names
Attempt: TypeAlias = Callable[[Headers], AbstractContextManager[Headers]]

# The reason to end an attempt. An `EnoughReadError` ends the attempt, but is not an error.
Failure: TypeAlias = TemperError | EnoughReadError


class ChatBackend(Protocol):
    """The methods of a backend that a turn uses.

    They raise only `BackendFailed`, `InvalidRequest` and their subclasses. Closing an iterator
    cancels the upstream request; the engine stops generating when it notices the cancellation.
    """

    @property
    def name(self) -> str:
        """The address shown in headers, logs and errors, without credentials."""

    def stream(
        self, upstream_request: UpstreamRequest, headers: Headers, sink: EventSink | None = None
    ) -> ReplyEvents:
        """Send a request with `headers`, and stream the reply in batches.

        No batch is empty. The last event of the last batch is `ReplyFinished` or `ReplyUnreadable`.
        Content that `sink` accepts is not yielded.
        """


class BackendPolicy:
    """Observes the attempts of one request, and may change or stop their replies.

    The calls per attempt are one `begin`, any number of `receive`, then `fail` or `end`. The
    methods of this base class do nothing.
    """

    def begin(self, upstream_request: UpstreamRequest, sink: EventSink | None) -> EventSink | None:
        """Begin an attempt; return the sink for content, or None if `receive` needs all content."""
        del upstream_request
        return sink

    def receive(self, batch: Batch) -> tuple[Batch, Failure | None]:
        """Return the events to pass on, possibly none, and the reason to end the attempt."""
        return batch, None

    def fail(self, error: BackendFailed | InvalidRequest) -> None:
        """Record that the attempt failed."""

    def end(self) -> None:
        """Record that the attempt is over; its reply may have been stopped early."""


async def run_turn(
    turn: Turn,
    backend: ChatBackend,
    headers: Headers,
    attempt: Attempt = nullcontext,
    *,
    sink: EventSink | None = None,
    policies: Sequence[BackendPolicy] = (),
) -> ReplyEvents:
    """Run a turn, and yield the events for the client.

    Closing the iterator cancels the upstream request. If a retry fails, the turn ends with the best
    earlier answer. An endless reply is cut off, and a reply that repeats its calls is stopped. Each
    request is sent within the context manager `attempt`, which may add headers. Content that `sink`
    accepts is not yielded, so the sink must pass the content to the turn.
    Raises `BackendFailed`, `InvalidRequest`, `GuardrailsExhausted` and their subclasses.
    """
    while (upstream_request := turn.next_request()) is not None:
        try:
            with attempt(headers) as attempt_headers:
                attempt_sink = _begin(policies, upstream_request, sink)
                batches = backend.stream(upstream_request, attempt_headers, attempt_sink)
                try:
                    async for batch in batches:
                        shown, failure = _receive(turn, policies, batch)
                        if shown:
                            yield shown
                        if failure is not None:
                            _raise_error(failure)
                            break
                finally:
                    # Otherwise the engine generates until the iterator is garbage collected.
                    await batches.aclose()
            _end(policies)
        except (BackendFailed, InvalidRequest) as error:
            last_events = _recover(turn, policies, error)
            if not last_events:
                raise
            yield last_events
        except (GeneratorExit, GuardrailsExhausted):
            _end(policies)
            raise


def _begin(
    policies: Sequence[BackendPolicy], upstream_request: UpstreamRequest, sink: EventSink | None
) -> EventSink | None:
    for policy in policies:
        sink = policy.begin(upstream_request, sink)
    return sink


def _end(policies: Sequence[BackendPolicy]) -> None:
    for policy in policies:
        policy.end()


def _raise_error(failure: Failure) -> None:
    if not isinstance(failure, EnoughReadError):
        raise failure


def _recover(
    turn: Turn, policies: Sequence[BackendPolicy], error: BackendFailed | InvalidRequest
) -> Batch:
    """Return the client's last events after a failed attempt; () if there is no answer."""
    for policy in policies:
        policy.fail(error)
    is_endless = isinstance(error, BackendReplyInvalid) and error.is_endless
    return (turn.cut_off() if is_endless else ()) or turn.abandon()


def end_early(turn: Turn, shown: list[ReplyEvent]) -> None:
    """End a reply that is still arriving; even if this raises, `shown` gets the client's events."""
    try:
        turn.receive_all([ReplyFinished(STOP)], shown)
    except EnoughReadError:  # ending a reply reads its held text, which may raise again
        shown += turn.abandon()


def _receive(
    turn: Turn, policies: Sequence[BackendPolicy], batch: Batch
) -> tuple[list[ReplyEvent], Failure | None]:
    """Return the client's events of a batch, and the reason to end the attempt after them."""
    shown: list[ReplyEvent] = []
    failure: Failure | None = None
    for policy in policies:
        batch, error = policy.receive(batch)
        failure = failure or error
        if not batch:
            return shown, failure
    try:
        try:
            turn.receive_all(batch, shown)
        except EnoughReadError as enough:
            end_early(turn, shown)
            return shown, enough
    except GuardrailsExhausted as exhausted:
        return shown, exhausted
    return shown, failure
