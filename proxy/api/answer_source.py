"""The source of an answer's events: for most requests one turn, sent to one backend.

It waits for a slot, asks, shortens a prompt that proves too long, and notes what happens.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from proxy.api.streaming import AnswerStream
from proxy.backends.client import Backend, ReplyEvents
from proxy.conversation.replies import (
    EventSink,
    PromptProgress,
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ToolCalled,
    ToolCallStarted,
    UsageReported,
)
from proxy.engine import Headers, converse
from proxy.errors import ContextOverflow
from proxy.facts import Compacted, Fact, WindowFilled
from proxy.inference.turn import Turn, TurnState
from proxy.observability.live_request import LiveRequest
from proxy.observability.record import Load
from proxy.serving.request_preparation import MOST_SHORTENINGS

_SEEN = (TextDelta, ToolCallStarted, ToolCalled)

Shorter: TypeAlias = Callable[[ContextOverflow], Awaitable[Turn | None]]


class AnswerSource(Protocol):
    """Yields the events of one answer, and collects the facts about it."""

    @property
    def backend(self) -> str:
        """The backend's name, for headers and errors."""

    @property
    def turn_facts(self) -> tuple[Fact, ...]:
        """Facts about the last prompt that was sent."""

    @property
    def facts(self) -> tuple[Fact, ...]:
        """All facts so far."""

    @property
    def is_done(self) -> bool:
        """Whether the answer ended normally."""

    def events(self, headers: Headers, stream: AnswerStream | None) -> ReplyEvents:
        """Yield batches of events while holding a slot of the backend.

        `headers` are sent to the backend. Content that `stream` takes at once is in no batch.
        """

    def cut_off(self) -> Sequence[ReplyEvent]:
        """Return the final events of an answer that ran out of time."""


async def _no_shorter(_: ContextOverflow) -> Turn | None:
    return None


@dataclass(frozen=True, slots=True)
class SlotTerms:
    """An answer's share of its backend: a slot to wait for, and the window in tokens.

    `room` is the tokens of all slots together, 0 if unknown. `load` counts who holds a slot.
    `shorter` makes a turn with a shorter prompt after an overflow, or returns None.
    """

    backend: Backend
    slot: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    window: int | None = None
    room: int = 0
    load: Load | None = None
    shorter: Shorter = _no_shorter

    def share(self, turn: Turn) -> float:
        """Return the prompt's share of the backend's room, 0 if the room is unknown."""
        if not self.room:
            return 0.0
        return sum(fact.sent for fact in turn.facts if isinstance(fact, Compacted)) / self.room


class ShownEvents:
    """Records in `live` what the client is sent; `window` is the backend's, in tokens."""

    def __init__(self, live: LiveRequest, window: int | None) -> None:
        self.has_content = False
        self.facts: tuple[Fact, ...] = ()
        self._live = live
        self._window = window

    def note(self, batch: Sequence[ReplyEvent]) -> None:
        """Record events that are sent together."""
        if not self.has_content and any(isinstance(event, _SEEN) for event in batch):
            self.has_content = True
            self._live.note_first_token()
        if batch and not isinstance(batch[-1], TextDelta):
            for event in batch[-2:]:  # the usage and the end are the last
                self._note_end(event)

    def _note_end(self, event: ReplyEvent) -> None:
        if isinstance(event, UsageReported):
            self._live.usage = event
            total, window = event.usage.get("total_tokens"), self._window
            self.facts = (WindowFilled(window),) if window is not None and total == window else ()
        elif isinstance(event, ReplyFinished):
            self._live.finish_reason = event.reason
        elif isinstance(event, PromptProgress):
            self._live.note_progress(event)


class SingleTurn:
    """An answer of one turn, recorded in `live`."""

    def __init__(self, turn: Turn, terms: SlotTerms, live: LiveRequest) -> None:
        self.turn = turn
        self._terms = terms
        self._live = live
        self._shown = ShownEvents(live, terms.window)
        self._shortenings = 0

    @property
    def backend(self) -> str:
        return self._terms.backend.name

    @property
    def turn_facts(self) -> tuple[Fact, ...]:
        return self.turn.facts

    @property
    def facts(self) -> tuple[Fact, ...]:
        """Facts of the turn and of the window."""
        return (*self.turn.facts, *self._shown.facts)

    @property
    def is_done(self) -> bool:
        return self.turn.state is TurnState.DONE

    async def events(self, headers: Headers, stream: AnswerStream | None) -> ReplyEvents:
        live, terms = self._live, self._terms
        sink = self._sink_to(stream) if stream is not None else None
        live.wait(terms.load)
        async with terms.slot():
            live.admit(terms.share(self.turn))
            is_over = False
            while not is_over:
                try:
                    batches = converse(self.turn, terms.backend, headers, live.attempt, sink=sink)
                    try:
                        async for batch in batches:
                            self._shown.note(batch)
                            yield batch
                    finally:
                        await batches.aclose()
                    is_over = True
                except ContextOverflow as overflow:
                    # a streaming client that has seen content cannot be sent another answer
                    is_too_late = self._shown.has_content and stream is not None
                    if is_too_late or not await self._shorten(overflow):
                        raise

    def cut_off(self) -> Sequence[ReplyEvent]:
        rest = self.turn.cut_off()
        self._shown.note(rest)
        return rest

    def _sink_to(self, stream: AnswerStream) -> EventSink:
        """Return a sink that takes content while the stream is ready."""

        def take(content: Sequence[ReplyEvent]) -> bool:
            if not stream.is_ready:
                return False
            shown: list[ReplyEvent] = []
            self.turn.receive_all(content, shown)
            if shown:
                self._shown.note(shown)
                stream.show(shown)
            return True

        return take

    async def _shorten(self, overflow: ContextOverflow) -> bool:
        """Start over with a shorter prompt; return whether it could be shortened."""
        if self._shortenings == MOST_SHORTENINGS:
            return False
        self._shortenings += 1
        turn = await self._terms.shorter(overflow)
        self.turn = turn or self.turn
        return turn is not None
