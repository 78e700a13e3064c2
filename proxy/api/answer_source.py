"""The answer to a request: the source of its events, and how they are brought to the client.

For most requests the source is one turn, sent to one backend: it waits for a slot, asks, shortens a
prompt that proves too long, and notes what happens.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import KW_ONLY, dataclass
from typing import TypeAlias

import msgspec

from proxy.api.client_connection import ClientConnection
from proxy.api.errors import describe
from proxy.api.streaming import AnswerStream, Deadline, StreamTimeouts, WholeAnswer
from proxy.backends.affinity import PREFIX_HEADER
from proxy.backends.client import ChatBackend, ReplyEvents
from proxy.conversation.replies import (
    EventSink,
    PromptProgress,
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    TextDelta,
    ToolCalled,
    ToolCallStarted,
    UsageReported,
)
from proxy.dialects.dialect import AnswerBuilder, Answering, StreamEncoder
from proxy.errors import BackendTimedOut, ContextOverflow, TemperError
from proxy.facts import Compacted, Fact, WindowFilled, context, outcome, report
from proxy.guardrails.reasoning import EnoughHeardError
from proxy.inference.driver import BackendPolicy, run_turn
from proxy.inference.turn import Turn, TurnState
from proxy.observability.exchange_recorder import ExchangeRecorder
from proxy.observability.live_request import LiveRequest
from proxy.observability.record import Load

_SEEN = frozenset((TextDelta, ToolCallStarted, ToolCalled))

Shorter: TypeAlias = Callable[[ContextOverflow], Awaitable[Turn | None]]


class SlotTerms(msgspec.Struct, frozen=True):
    """An answer's share of its backend: a slot to wait for, and the window in tokens.

    `room` is the tokens of all slots together, 0 if unknown. `load` counts who holds a slot.
    `shorter` makes a turn with a shorter prompt after an overflow, or returns None. `estimate`
    returns the tokens of a prompt that was not measured.
    """

    backend: ChatBackend
    slot: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    window: int | None = None
    room: int = 0
    load: Load | None = None
    shorter: Shorter | None = None
    estimate: Callable[[], int] = lambda: 0
    policies: Sequence[BackendPolicy] = ()

    def share(self, turn: Turn) -> float:
        """Return the prompt's share of the backend's room, 0 if the room is unknown."""
        return _fitted_tokens(turn) / self.room if self.room else 0.0

    def prompt_tokens(self, turn: Turn) -> int:
        """Return the tokens of the prompt, as far as they are known before the answer."""
        return _fitted_tokens(turn) or self.estimate()


def _fitted_tokens(turn: Turn) -> int:
    return sum(fact.sent for fact in turn.facts if isinstance(fact, Compacted))


@dataclass(eq=False)
class AnswerSource(ABC):
    """Answers one request with the events that it yields, and collects the facts about them.

    Its `turn` is the one that is answered now; the headers of `upstream` are sent to the backend.
    What the client gets is recorded in `live`, and by a `recorder`.
    """

    turn: Turn
    terms: SlotTerms
    live: LiveRequest
    answering: Answering
    _: KW_ONLY
    upstream: dict[str, str]
    recorder: ExchangeRecorder | None = None

    def __post_init__(self) -> None:
        self._has_shown_content = False
        self._window_facts: tuple[Fact, ...] = ()
        self.live.facts_so_far = lambda: self.facts

    @property
    def backend(self) -> str:
        """The backend's name, for headers and errors."""
        return self.terms.backend.name

    @property
    @abstractmethod
    def facts(self) -> tuple[Fact, ...]:
        """All facts so far."""

    @property
    @abstractmethod
    def is_done(self) -> bool:
        """Whether the answer ended normally."""

    @abstractmethod
    def events(self, stream: AnswerStream | None) -> ReplyEvents:
        """Yield batches of events while holding a slot of the backend.

        Content that `stream` takes at once is in no batch.
        """

    async def stream(self, connection: ClientConnection, stream: AnswerStream) -> None:
        """Stream the answer, or stop all work as soon as the client has gone."""
        async with aclosing(self._batches(stream)) as batches:
            await connection.while_connected(stream.send(batches, self))

    async def whole(self, connection: ClientConnection, timeouts: StreamTimeouts) -> None:
        """Answer with one body, under the same conditions as a stream."""
        async with aclosing(self._batches(None)) as batches:
            await connection.while_connected(self._send_whole(batches, connection, timeouts))

    def close(self) -> None:
        """Record how the answer ended, and drop the reference back to this."""
        live = self.live
        live.facts, live.facts_so_far = self.facts, None
        live.set_backend(self.backend)
        if self.is_done:
            live.outcome = outcome(live.facts)

    def encoder(self, first: ReplyEvent | None) -> StreamEncoder:
        return self.answering.begin(first)

    def headers(self) -> Mapping[str, str]:
        headers = {"x-temper-backend": self.backend}
        if prefix := self.upstream.get(PREFIX_HEADER):
            headers[PREFIX_HEADER] = prefix
        if shape := context(self.turn.facts):
            headers["x-temper-context"] = shape
        return headers

    def comments(self) -> Sequence[str]:
        reported = report(self.facts)
        shape = reported.pop("context", "")
        facts = "; ".join(f"{name}={value}" for name, value in reported.items())
        return [f"x-temper {facts}", *([f"x-temper-context {shape}"] if shape else [])]

    def cut_off(self, failure: TemperError) -> Sequence[ReplyEvent]:
        """Return the final events of an answer that ran out of time."""
        if not (isinstance(failure, BackendTimedOut) and failure.is_overall):
            return ()
        rest = self.turn.cut_off()
        self._note_shown(rest)
        return rest

    def _note_shown(self, batch: Sequence[ReplyEvent]) -> None:
        """Record what the client is sent."""
        if not self._has_shown_content and not _SEEN.isdisjoint(map(type, batch)):
            self._has_shown_content = True
            self.live.note_first_token()
        if batch and not isinstance(batch[-1], TextDelta):
            for event in batch[-2:]:  # the usage and the end are the last
                self._note_end(event)

    def _note_end(self, event: ReplyEvent) -> None:
        match event:
            case UsageReported(usage):
                self.live.usage, window = event, self.terms.window
                is_full = usage.get("total_tokens") == window
                self._window_facts = (WindowFilled(window),) if window and is_full else ()
            case ReplyFinished(reason):
                self.live.finish_reason = reason
            case PromptProgress():
                self.live.note_progress(event)
            case _:
                pass

    def _batches(self, stream: AnswerStream | None) -> ReplyEvents:
        batches = self.events(stream)
        if stream is not None and self.answering.tells_prompt_size:
            batches = self._with_prompt_size(batches)
        return batches if self.recorder is None else self.recorder.record_answer(batches)

    async def _with_prompt_size(self, batches: ReplyEvents) -> ReplyEvents:
        """Add the size of the prompt to the first events, unless the backend reports it there.

        Claude Code shows it, and compacts by it, before the usage at the end is known.
        """
        has_begun = False
        async with aclosing(batches):
            async for batch in batches:
                if not has_begun and not any(isinstance(one, PromptProgress) for one in batch):
                    tokens = self.terms.prompt_tokens(self.turn)
                    batch = (*batch, PromptProgress(tokens, 0, tokens))
                has_begun = True
                yield batch

    async def _send_whole(
        self, batches: ReplyEvents, connection: ClientConnection, timeouts: StreamTimeouts
    ) -> None:
        """Assemble one body from the same events that a stream would show."""
        async with WholeAnswer(connection, timeouts.keep_alive, self.headers) as answer:
            builder: AnswerBuilder | None = None
            try:
                async with Deadline(timeouts.deadline, self.backend):
                    async for batch in batches:
                        # a turn that was restarted, with a shorter prompt, starts once more
                        if builder is None or isinstance(batch[0], ReplyStarted):
                            builder = self.answering.builder(batch[0])
                        for event in batch:
                            builder.add(event)
            except TemperError as error:
                rest = self.cut_off(error) if builder is not None else ()
                if builder is None or not rest:
                    self.live.status = describe(error).status
                    await answer.fail(error)
                    return
                for event in rest:
                    builder.add(event)
            body = (builder or self.answering.builder(None)).build()
            reported = {f"x-temper-{name}": value for name, value in report(self.facts).items()}
            await answer.end(reported, body)


class SingleTurn(AnswerSource):
    """An answer of one turn."""

    @property
    def facts(self) -> tuple[Fact, ...]:
        return (*self.turn.facts, *self._window_facts)

    @property
    def is_done(self) -> bool:
        return self.turn.state is TurnState.DONE

    async def events(self, stream: AnswerStream | None) -> ReplyEvents:
        live, terms = self.live, self.terms
        sink = self._sink_to(stream) if stream is not None else None
        live.wait(terms.load)
        async with terms.slot():
            live.admit(terms.share(self.turn))
            is_over = False
            while not is_over:
                try:
                    batches = run_turn(
                        self.turn,
                        terms.backend,
                        self.upstream,
                        live.attempt,
                        sink=sink,
                        policies=terms.policies,
                    )
                    try:
                        async for batch in batches:
                            self._note_shown(batch)
                            yield batch
                    finally:
                        await batches.aclose()
                    is_over = True
                except ContextOverflow as overflow:
                    # a streaming client that has seen content cannot be sent another answer
                    is_too_late = self._has_shown_content and stream is not None
                    if is_too_late or not await self._shorten(overflow):
                        raise

    def _sink_to(self, stream: AnswerStream) -> EventSink:
        """Return a sink that takes content while the stream is ready."""

        def take(content: Sequence[ReplyEvent]) -> bool:
            if not stream.is_ready:
                return False
            shown: list[ReplyEvent] = []
            try:
                self.turn.receive_all(content, shown)
            except EnoughHeardError:
                return False  # it is for the loop to stop the model
            if shown:
                self._note_shown(shown)
                stream.show(shown)
            return True

        return take

    async def _shorten(self, overflow: ContextOverflow) -> bool:
        """Start over with a shorter prompt; return whether it could be shortened."""
        turn = await self.terms.shorter(overflow) if self.terms.shorter is not None else None
        self.turn = turn or self.turn
        return turn is not None
