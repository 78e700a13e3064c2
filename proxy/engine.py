"""Puts a turn's questions to a backend: the only asynchronous code between the two edges."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

from proxy.backends.client import ChatBackend, Headers, ReplyEvents
from proxy.conversation.endings import STOP
from proxy.conversation.replies import EventSink, ReplyEvent, ReplyFinished
from proxy.errors import BackendFailed, BackendSpokeNonsense, GuardrailsExhausted, InvalidRequest
from proxy.guardrails.reasoning import EnoughHeardError
from proxy.inference.turn import Turn

Attempt: TypeAlias = Callable[[Headers], AbstractContextManager[Headers]]


async def run_turn(
    turn: Turn,
    backend: ChatBackend,
    headers: Headers,
    attempt: Attempt = nullcontext,
    *,
    sink: EventSink | None = None,
) -> ReplyEvents:
    """Stream the client's events of a turn; closing the iterator cancels the work upstream.

    A later attempt that fails costs nothing that an earlier one gave: the turn falls back to it.
    A reply that does not end is cut off, and one that repeats its calls is stopped.
    Each attempt runs within an `attempt`, which may add to the headers that travel upstream.
    Content that a `sink` takes has to be given to the turn there, and is not in the stream.
    Raises `BackendFailed`, `InvalidRequest` and `GuardrailsExhausted` kinds of errors.
    """
    while (upstream_request := turn.next_request()) is not None:
        try:
            with attempt(headers) as own:
                batches = backend.stream(upstream_request, own, sink)
                try:
                    async for batch in batches:
                        shown, failure = _receive(turn, batch)
                        if shown:
                            yield shown
                        if isinstance(failure, EnoughHeardError):
                            break
                        if failure is not None:
                            raise failure
                finally:
                    await batches.aclose()
        except (BackendFailed, InvalidRequest) as error:
            is_endless = isinstance(error, BackendSpokeNonsense) and error.is_endless
            rest = (turn.cut_off() if is_endless else ()) or turn.abandon()
            if not rest:
                raise
            yield rest


def end_early(turn: Turn, shown: list[ReplyEvent]) -> None:
    """End a reply of which enough was heard; appends the client's events, even if it raises."""
    try:
        turn.receive_all([ReplyFinished(STOP)], shown)
    except EnoughHeardError:  # what was held back until its end is too much as well
        shown += turn.abandon()


def _receive(
    turn: Turn, batch: Sequence[ReplyEvent]
) -> tuple[list[ReplyEvent], GuardrailsExhausted | EnoughHeardError | None]:
    """Return what the client gets for a batch, also where the turn fails at the end of it."""
    shown: list[ReplyEvent] = []
    try:
        turn.receive_all(batch, shown)
    except EnoughHeardError as enough:
        try:
            end_early(turn, shown)
        except GuardrailsExhausted as failure:
            return shown, failure
        return shown, enough
    except GuardrailsExhausted as failure:
        return shown, failure
    return shown, None
