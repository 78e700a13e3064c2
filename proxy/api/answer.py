"""The answer to one planned request: waits for a slot, runs the turn, and encodes its events.

An `Answer` has one turn, sent to one backend. Its subclass `tool_run.ToolRun` has several turns.
The subclass is used for requests that may call tools of the operator.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from proxy.api.client_connection import ClientConnection
from proxy.api.errors import describe
from proxy.api.streaming import AnswerStream, Deadline, StreamTimeouts, WholeAnswer
from proxy.backends.affinity import PREFIX_HEADER
from proxy.backends.client import ReplyEvents
from proxy.backends.pool import PinnedMember
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
from proxy.dialects.dialect import AnswerBuilder, Client, StreamEncoder
from proxy.errors import (
    BackendTimedOut,
    BackendUnavailable,
    ContextOverflow,
    TemperError,
    UnknownModel,
)
from proxy.facts import (
    Asked,
    Compacted,
    Fact,
    RejectedReply,
    Resent,
    WindowFilled,
    context,
    outcome,
    report,
)
from proxy.guardrails.reasoning import EnoughReadError
from proxy.inference.driver import run_turn
from proxy.inference.turn import MayRetry, Turn, TurnState
from proxy.observability.exchange_recorder import ExchangeRecorder
from proxy.observability.live_request import LiveRequest
from proxy.observability.record import Load
from proxy.profiles.known_model import KnownModel
from proxy.serving.admission import Priority, Slot
from proxy.serving.request_preparation import MOST_SHORTENINGS, Planned, RequestPreparation
from proxy.serving.rereading import PromptReading, WatchedPrompt

logger = logging.getLogger(__name__)

# Sends the request to the model's fallback after all attempts of a turn were rejected, and yields
# the events of the fallback's reply (`fallback.FallbackAttempt`).
SendToFallback: TypeAlias = Callable[["Answer"], ReplyEvents]

_CONTENT = frozenset((TextDelta, ToolCallStarted, ToolCalled))


class Received(msgspec.Struct):
    """An accepted and authenticated request of `client`; its body may still be arriving.

    Free slots are given to the queue keys in turn (round robin). The `upstream` headers are sent to
    the backend. Later steps set `planned` and `watched`. `watched` is the prompt, with its
    difference from the previous prompt; it explains why the engine read tokens again.
    """

    connection: ClientConnection
    client: Client
    queue_key: str
    upstream: dict[str, str]
    live: LiveRequest
    stream: AnswerStream
    may_retry: MayRetry
    recorder: ExchangeRecorder | None = None
    planned: Planned | None = None
    watched: WatchedPrompt | None = None


@dataclass(eq=False)
class Answer:
    """Produces the events of one answer, and sends them to the client.

    `load` has the request counts of the service. `preparation` shortens the conversation if the
    backend rejected the prompt as too long. `send_to_fallback` continues a turn if all its attempts
    were rejected.
    """

    received: Received
    planned: Planned
    turn: Turn
    load: Load | None
    preparation: RequestPreparation
    send_to_fallback: SendToFallback | None = None

    def __post_init__(self) -> None:
        self._has_shown_content = False
        self._restarts = 0
        self.fallback_backend = ""  # the server of the fallback model, if that model answered
        self._reread: WatchedPrompt | None = None
        self._window_facts: tuple[Fact, ...] = ()
        self._resent_facts: tuple[Fact, ...] = ()
        self.live, planned = self.received.live, self.planned
        self.reasoning = planned.reasoning
        # retries go to the same server of a pool, because it has cached the prompt (decision 0014)
        self.backend = planned.service.pin()
        known, recorder = planned.known, self.received.recorder
        learning = planned.service.fitting.learning(known.model, known.window)
        self.learning = learning
        self.policies = (learning,) if recorder is None else (learning, recorder)
        self.live.reply = self

    @property
    def backend_name(self) -> str:
        return self.fallback_backend or self.backend.name

    @property
    def latest(self) -> Planned:
        """The plan of the latest turn; a `ToolRun` has a plan per turn."""
        return self.planned

    @property
    def facts(self) -> tuple[Fact, ...]:
        return (*self._resent_facts, *self.turn.facts, *self._window_facts)

    @property
    def tokens(self) -> int:
        """An estimate of the tokens that the current attempt has generated."""
        return self.learning.tokens

    @property
    def is_done(self) -> bool:
        """True if the answer ended normally."""
        return self.turn.state is TurnState.DONE

    async def send(self, timeouts: StreamTimeouts) -> None:
        """Send the answer; stop all work as soon as the client disconnects."""
        received = self.received
        stream = received.stream if self.planned.resolved.request.stream else None
        async with aclosing(self._batches(stream)) as batches:
            sending = (
                self._send_whole(batches, timeouts)
                if stream is None
                else stream.send(batches, self)
            )
            await received.connection.while_connected(sending)

    def close(self) -> None:
        """Record the outcome, and end the reference cycle of this answer and the live request."""
        live = self.live
        self._record_reading(self.turn)
        live.facts, live.reply = self.facts, None
        live.set_backend(self.backend_name)
        if self.is_done:
            live.outcome = outcome(live.facts)

    async def explain(self) -> None:
        """Log why the engine read the prompt again, if it did; called after the answer is sent."""
        reread, watched, planned = self.live.reread, self._reread, self.latest
        self._reread = None
        if reread is not None and watched is not None:
            self.live.reread = await planned.service.fitting.log_reread(
                reread, watched, planned.plan, planned.headers
            )

    async def events(self, stream: AnswerStream | None) -> ReplyEvents:
        """Wait for a slot and run the turn; yields batches of events while the slot is in use.

        Content that was written to `stream` directly is not in any batch (decision 0016).
        """
        sink = self._create_sink(stream) if stream is not None else None
        self.live.wait(self.load)
        async with self._slot():
            self.live.admit(slot_share(self.turn, self.planned.known))
            is_over = False
            while not is_over:
                batches = self._run_turn(self.turn, sink)
                try:
                    async for batch in batches:
                        self._record_sent(batch)
                        yield batch
                    is_over = True
                except UnknownModel:  # the engine was restarted with another model
                    self.planned.service.models.forget_first()
                    raise
                except (ContextOverflow, BackendUnavailable) as failure:
                    if not await self._restart(failure, is_streamed=stream is not None):
                        raise
                finally:
                    await batches.aclose()

    def encoder(self, first: ReplyEvent | None) -> StreamEncoder:
        return self.planned.answering.begin(first)

    def headers(self) -> Mapping[str, str]:
        headers = {"x-temper-backend": self.backend_name}
        if prefix := self.planned.headers.get(PREFIX_HEADER):
            headers[PREFIX_HEADER] = prefix
        if shape := context(self.turn.facts):
            headers["x-temper-context"] = shape
        return headers

    def comments(self) -> Sequence[str]:
        """Return the facts as comments: the headers of a stream are sent before they are known.

        An SSE stream ends, for example, with `: x-temper rescued=1; attempts=2`.
        """
        reported = report(self.facts)
        shape = reported.pop("context", "")
        facts = "; ".join(f"{name}={value}" for name, value in reported.items())
        return [f"x-temper {facts}", *([f"x-temper-context {shape}"] if shape else [])]

    def cut_off(self, failure: TemperError) -> Sequence[ReplyEvent]:
        """Return the final events if `failure` means that the deadline has passed, otherwise ()."""
        if not (isinstance(failure, BackendTimedOut) and failure.is_overall):
            return ()
        final_events = self.turn.cut_off()
        self._record_sent(final_events)
        return final_events

    def _run_turn(self, turn: Turn, sink: EventSink | None = None) -> ReplyEvents:
        fallback, headers = self.planned.service.fallback, self.planned.headers
        if fallback is not None and self.send_to_fallback is not None:
            turn.fallback_model = fallback.model
        return run_turn(
            turn, self.backend, headers, self.live.attempt, sink=sink, policies=self.policies
        )

    async def _restart(
        self, failure: ContextOverflow | BackendUnavailable, *, is_streamed: bool
    ) -> bool:
        """Replace a failed turn by a turn with a shorter prompt, or by a turn on another server.

        Returns False if neither is possible.
        """
        if isinstance(failure, BackendUnavailable):
            return not is_streamed and await self._resend(failure)
        # The engine may report the overflow in the middle of its reply. If a streaming client has
        # already received content, another answer can no longer replace it.
        if (is_streamed and self._has_shown_content) or self._restarts == MOST_SHORTENINGS:
            return False
        self._restarts += 1
        may_retry = self.received.may_retry
        turn = await self.preparation.shorten(self.planned, may_retry, failure)
        self.turn = turn or self.turn
        return turn is not None

    async def _resend(self, failure: BackendUnavailable) -> bool:
        """Restart the turn on another server of the pool after its server failed.

        Without streaming, the client has received nothing yet. A request is sent to another server
        only once, because a request that crashes servers must not reach all of them. This second
        sending does not use the retry budget: without it, the client would get a 502, and would
        usually send the request again.
        """
        if not isinstance(self.backend, PinnedMember) or not self.backend.leave_failed():
            return False
        logger.warning("%s Sending the request to another server.", failure)
        earlier = (fact for fact in self.turn.facts if isinstance(fact, Asked | RejectedReply))
        self._resent_facts = (*earlier, Resent())
        self.turn = await self.preparation.fit(self.planned, self.received.may_retry)
        return True

    def _slot(self) -> Slot:
        received, live = self.received, self.live
        admission = self.planned.service.admission
        return admission.slot(received.queue_key, Priority(live.priority), live.number)

    def _record_sent(self, batch: Sequence[ReplyEvent]) -> None:
        """Record events that are sent to the client."""
        if self.reasoning is not None:
            self.reasoning.add(batch)
        if not self._has_shown_content and not _CONTENT.isdisjoint(map(type, batch)):
            self._has_shown_content = True
            self.live.note_first_token()
        # Nearly all batches of a stream have only text. Usage and finish reason come last.
        if batch and not isinstance(batch[-1], TextDelta):
            for event in batch[-2:]:
                self._record_end(event)

    def _record_end(self, event: ReplyEvent) -> None:
        match event:
            case UsageReported(usage):
                self.live.usage, window = event, self.planned.known.window
                # Engines report the finish reason `length` in two cases: a full window, and
                # `max_tokens`. Only if the window is full, the total equals the window's size.
                is_full = usage.get("total_tokens") == window
                self._window_facts = (WindowFilled(window),) if window and is_full else ()
            case ReplyFinished(reason):
                self.live.finish_reason = reason
            case PromptProgress():
                self.live.note_progress(event)
            case _:
                pass

    def _record_reading(self, turn: Turn) -> None:
        """Record how the engine read the first attempt's prompt; retries have longer prompts."""
        watched, self.received.watched = self.received.watched, None
        if watched is None or not turn.spent:
            return
        live, fitting = self.live, self.planned.service.fitting
        measured = live.until_first_token
        reading = PromptReading(turn.spent[0], self.backend_name, turn.facts, measured)
        reread = fitting.record_reading(watched, reading)
        if reread is not None and live.reread is None:
            live.reread, self._reread = reread, watched

    def _create_sink(self, stream: AnswerStream) -> EventSink:
        """Return a sink that accepts content while the stream can be written directly."""

        def write_content(content: Sequence[ReplyEvent]) -> bool:
            if not stream.is_ready:
                return False
            visible: list[ReplyEvent] = []  # the turn may hold back a part of the content
            try:
                self.turn.receive_all(content, visible)
            except EnoughReadError:
                return False  # only `run_turn` can stop the model
            if visible:
                self._record_sent(visible)
                stream.show(visible)
            return True

        return write_content

    def _batches(self, stream: AnswerStream | None) -> ReplyEvents:
        batches = self.events(stream)
        if self.send_to_fallback is not None:
            batches = self._add_fallback(batches, self.send_to_fallback)
        if stream is not None and self.planned.answering.reports_prompt_size:
            batches = self._add_prompt_size(batches)
        recorder = self.received.recorder
        return batches if recorder is None else recorder.record_answer(batches)

    async def _add_fallback(self, batches: ReplyEvents, send: SendToFallback) -> ReplyEvents:
        """Add the events of the fallback; before it begins, the model's slot is released."""
        async with aclosing(batches):
            async for batch in batches:
                yield batch
        if self.turn.is_spent:
            async with aclosing(send(self)) as batches:
                async for batch in batches:
                    self._record_sent(batch)
                    yield batch

    async def _add_prompt_size(self, batches: ReplyEvents) -> ReplyEvents:
        """Add the size of the prompt to the first events, unless the backend reports it there.

        Claude Code displays this number before it receives the final usage, and uses it to decide
        when to compact its history.
        """
        has_begun = False
        async with aclosing(batches):
            async for batch in batches:
                if not has_begun and not any(isinstance(event, PromptProgress) for event in batch):
                    tokens = _fitted_tokens(self.turn) or self._estimated_tokens()
                    batch = (*batch, PromptProgress(tokens, 0, tokens))
                has_begun = True
                yield batch

    def _estimated_tokens(self) -> int:
        planned = self.planned
        return planned.service.fitting.estimate(planned.known.model, planned.plan)

    async def _send_whole(self, batches: ReplyEvents, timeouts: StreamTimeouts) -> None:
        """Collect the events of the answer, and send one response body."""
        connection = self.received.connection
        async with WholeAnswer(connection, timeouts.keep_alive, self.headers) as answer:
            builder: AnswerBuilder | None = None
            try:
                async with Deadline(timeouts.deadline, self.backend_name):
                    async for batch in batches:
                        # if the turn is restarted, its events begin again with `ReplyStarted`
                        if builder is None or isinstance(batch[0], ReplyStarted):
                            builder = self.planned.answering.builder(batch[0])
                        for event in batch:
                            builder.add(event)
            except TemperError as error:
                final_events = self.cut_off(error) if builder is not None else ()
                if builder is None or not final_events:
                    self.live.status = describe(error).status
                    await answer.fail(error)
                    return
                for event in final_events:
                    builder.add(event)
            body = (builder or self.planned.answering.builder(None)).build()
            reported = {f"x-temper-{name}": value for name, value in report(self.facts).items()}
            await answer.end(reported, body)


def slot_share(turn: Turn, known: KnownModel) -> float:
    """Return the size of the prompt relative to the context of all slots, 0 if unknown."""
    capacity = (known.window or 0) * (known.slots or 1)
    return _fitted_tokens(turn) / capacity if capacity else 0.0


def _fitted_tokens(turn: Turn) -> int:
    """Return the tokens of the prompt after fitting, 0 if unknown."""
    return sum(fact.sent for fact in turn.facts if isinstance(fact, Compacted))
