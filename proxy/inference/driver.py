"""Runs a turn against a backend: the only asynchronous code of this room.

One loop drives all attempts. The replies of a backend pass through a list of policies on their way
to the turn; each is a plain object, so a further policy costs a call and no generator:

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
    BackendSpokeNonsense,
    GuardrailsExhausted,
    InvalidRequest,
    TemperError,
)
from proxy.guardrails.reasoning import EnoughReadError
from proxy.inference.turn import Turn

# Events that arrive together stay in one batch: a batch costs the same whatever its size.
Batch: TypeAlias = Sequence[ReplyEvent]
ReplyEvents: TypeAlias = AsyncGenerator[Batch, None]
Headers: TypeAlias = dict[str, str]  # with lower-case names
Attempt: TypeAlias = Callable[[Headers], AbstractContextManager[Headers]]

# The reason to end an attempt; an `EnoughReadError` ends it without an error.
Failure: TypeAlias = TemperError | EnoughReadError


class ChatBackend(Protocol):
    """The part of a backend that a turn needs.

    Every method raises only `BackendFailed` and `InvalidRequest` kinds of errors. Closing an
    iterator cancels the work upstream at once, or as soon as the engine notices.
    """

    @property
    def name(self) -> str:
        """The address shown in headers, logs and errors, without credentials."""

    def stream(
        self, upstream_request: UpstreamRequest, headers: Headers, sink: EventSink | None = None
    ) -> ReplyEvents:
        """Send a request with `headers`, and stream the reply in batches.

        No batch is empty; the last one ends with `ReplyFinished` or `ReplyUnreadable`. Content
        that `sink` accepts is in no batch; without a sink the caller receives the whole reply.
        """


class BackendPolicy:
    """Follows the attempts of one request, and may change their replies; this one does nothing.

    Each attempt is one `begin`, any number of `receive`, and then `fail` or `end`.
    """

    def begin(self, upstream_request: UpstreamRequest, sink: EventSink | None) -> EventSink | None:
        """Begin an attempt; return the sink that may take content past this policy."""
        del upstream_request
        return sink

    def receive(self, batch: Batch) -> tuple[Batch, Failure | None]:
        """Return the events to pass on, possibly none, and the reason to end the attempt."""
        return batch, None

    def fail(self, error: BackendFailed | InvalidRequest) -> None:
        """Note that an attempt failed."""

    def end(self) -> None:
        """Note that an attempt is over, perhaps before the reply was."""


async def run_turn(
    turn: Turn,
    backend: ChatBackend,
    headers: Headers,
    attempt: Attempt = nullcontext,
    *,
    sink: EventSink | None = None,
    policies: Sequence[BackendPolicy] = (),
) -> ReplyEvents:
    """Stream the client's events of a turn; closing the iterator cancels the work upstream.

    If a later attempt fails, the turn falls back to the best earlier answer. An endless reply is
    cut off, and one that repeats its calls is stopped. Each attempt runs within an `attempt`, which
    may add to the headers that travel upstream. A `sink` that accepts content has to give it to the
    turn: it is not in the stream.
    Raises `BackendFailed`, `InvalidRequest` and `GuardrailsExhausted` kinds of errors.
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
                    # Not left to the garbage collector: the engine would go on generating.
                    await batches.aclose()
            _end(policies)
        except (BackendFailed, InvalidRequest) as error:
            rest = _recover(turn, policies, error)
            if not rest:
                raise
            yield rest
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
    """Return the client's events after a failed attempt, () without another answer."""
    for policy in policies:
        policy.fail(error)
    is_endless = isinstance(error, BackendSpokeNonsense) and error.is_endless
    return (turn.cut_off() if is_endless else ()) or turn.abandon()


def end_early(turn: Turn, shown: list[ReplyEvent]) -> None:
    """End a reply that is not read further; appends the client's events, even if it raises."""
    try:
        turn.receive_all([ReplyFinished(STOP)], shown)
    except EnoughReadError:  # the text that was held back until the end is too much as well
        shown += turn.abandon()


def _receive(
    turn: Turn, policies: Sequence[BackendPolicy], batch: Batch
) -> tuple[list[ReplyEvent], Failure | None]:
    """Return the client's events of a batch, also if the attempt fails at the end of it."""
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
