"""Listens to one exchange for a recording: each raw generation, and what the client got of them.

Nobody wraps anything where no recording was asked for. What is kept of one exchange is bounded.
"""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from proxy.backends.client import Backend, BackendWrapper, ReplyEvents
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import (
    EventSink,
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ReplyInProgress,
    ReplyStarted,
    ReplyUnreadable,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCallStarted,
)
from proxy.conversation.requests import Question, Request
from proxy.conversation.tools import ToolUse
from proxy.conversation.workflows import NO_RULES
from proxy.engine import Headers
from proxy.errors import BackendFailed, InvalidRequest
from proxy.facts import repairs
from proxy.inference.preparation import Policy, RequestPlan
from proxy.observability.live_request import word_for
from proxy.observability.record import RequestRecord
from proxy.observability.recording import (
    Piece,
    RecordedAnswer,
    RecordedCall,
    RecordedExchange,
    RecordedModel,
    RecordedOutcome,
    RecordedPolicy,
    RecordedRound,
    RecordedRun,
    RecordedVerdict,
)
from proxy.profiles.known_model import KnownModel

if TYPE_CHECKING:  # nothing of runs is imported where nobody has tools to run
    from proxy.tool_rounds.executor import Round
    from proxy.tool_rounds.terms import RunTerms

FAILED = "failed"
ENDINGS = ("finished", "unreadable", FAILED)
_GROWING = ("text", "reasoning", "arguments")
_MOST_CHARACTERS = 4 * 2**20


@dataclass(slots=True)
class _Stretch:
    """A piece that may still grow; joined once, or a long text would cost its square."""

    head: Piece
    texts: list[str]

    @property
    def piece(self) -> Piece:
        return [*self.head, "".join(self.texts)]


class ExchangeRecorder:
    """What is heard of one exchange."""

    def __init__(self) -> None:
        self._generations: list[list[_Stretch]] = []
        self._rounds: list[int] = []
        self._run: RecordedRun | None = None
        self._answer = ReplyInProgress()
        self._finish_reason: str | None = None
        self._characters = 0

    def wrap(self, backend: Backend) -> Backend:
        """Return a backend whose replies are recorded."""
        return _RecordedBackend(backend, self)

    async def record_answer(self, batches: ReplyEvents) -> ReplyEvents:
        """Record a client's events on their way."""
        async with aclosing(batches) as heard:
            async for batch in heard:
                for event in batch:
                    self._note_answer(event)
                yield batch

    def begin(self) -> None:
        self._generations.append([])

    def begin_round(self) -> None:
        """Begin a round of a run: the generations from here on belong to it."""
        self._rounds.append(len(self._generations))

    def end_run(self, terms: "RunTerms", rounds: "Sequence[Round]") -> None:
        ends = [*self._rounds[1:], len(self._generations)]
        parts = zip_longest(self._rounds, ends, rounds)
        self._run = RecordedRun(
            owned=tuple(sorted(terms.owned)),
            most_rounds=terms.rounds,
            most_failed_rounds=terms.failed_rounds,
            rounds=tuple(_round(end - first, ran) for first, end, ran in parts),
        )
        self._characters += sum(len(one.text) for ran in rounds for one in ran.outcomes)

    def note(self, piece: Piece) -> None:
        """Keep a piece of the generation; what continues a text becomes part of it."""
        head, text = piece[:-1], str(piece[-1])
        self._characters += len(text)
        if not self.is_whole:
            return
        stretches = self._generations[-1]
        if stretches and head[0] in _GROWING and stretches[-1].head == head:
            stretches[-1].texts.append(text)
        else:
            stretches.append(_Stretch(head, [text]))

    def exchange(
        self, known: KnownModel, plan: RequestPlan, record: RequestRecord
    ) -> RecordedExchange:
        """Return the whole exchange, once it is over."""
        return RecordedExchange(
            id=record.id,
            at=record.begun_at,
            dialect=record.dialect,
            model=_model(known),
            policy=_policy(plan.policy),
            request=_request(plan.request),
            generations=tuple(
                tuple(stretch.piece for stretch in generation) for generation in self._generations
            ),
            run=self._run,
            answer=self._record_answer(),
            verdict=verdict_of(record),
        )

    @property
    def is_whole(self) -> bool:
        return self._characters <= _MOST_CHARACTERS

    def _note_answer(self, event: ReplyEvent) -> None:
        if isinstance(event, ReplyStarted):
            self._answer = ReplyInProgress()
        elif isinstance(event, ReplyFinished):
            self._finish_reason = event.reason
        elif isinstance(event, TextDelta | ToolCallArgumentsDelta):
            self._characters += len(event.text)
        if self.is_whole and not isinstance(event, ReasoningDelta):
            self._answer.add(event)

    def _record_answer(self) -> RecordedAnswer:
        answer = self._answer.finish(self._finish_reason or "")
        calls = (
            RecordedCall(name=call.name, arguments=str(call.arguments)) for call in answer.calls
        )
        return RecordedAnswer(
            text=answer.text, calls=tuple(calls), finish_reason=self._finish_reason
        )


def piece_of(event: ReplyEvent) -> Piece | None:
    """Write an event of a backend down; None for what nobody judges."""
    piece: Piece | None = None
    match event:
        case TextDelta(text):
            piece = ["text", text]
        case ReasoningDelta(text):
            piece = ["reasoning", text]
        case ToolCallStarted(index, call_id, name):
            piece = ["call", index, call_id, name]
        case ToolCallArgumentsDelta(index, text):
            piece = ["arguments", index, text]
        case ReplyFinished(reason):
            piece = ["finished", reason]
        case ReplyUnreadable(detail):
            piece = ["unreadable", detail]
        case _:
            pass
    return piece


def event_of(piece: Piece) -> ReplyEvent:
    """Read an event that was written down; raises ValueError if it is none."""
    match piece:
        case ["text", str(text)]:
            return TextDelta(text)
        case ["reasoning", str(text)]:
            return ReasoningDelta(text)
        case ["call", int(index), str() | None as call_id, str(name)]:
            return ToolCallStarted(index, call_id, name)
        case ["arguments", int(index), str(text)]:
            return ToolCallArgumentsDelta(index, text)
        case ["finished", str(reason)]:
            return ReplyFinished(reason)
        case ["unreadable", str(detail)]:
            return ReplyUnreadable(detail)
        case _:
            raise ValueError(f"{piece} is no piece of a generation")


def verdict_of(record: RequestRecord) -> RecordedVerdict:
    """Return what the guardrails made of a request."""
    return RecordedVerdict(
        outcome=record.outcome.value if record.outcome is not None else None,
        attempts=tuple((attempt.kind, attempt.defect) for attempt in record.attempts),
        repairs=repairs(record.facts),
    )


class _RecordedBackend(BackendWrapper):
    """A backend whose replies are kept."""

    def __init__(self, backend: Backend, recorder: ExchangeRecorder) -> None:
        super().__init__(backend)
        self._recorder = recorder

    async def ask(
        self, question: Question, headers: Headers, sink: EventSink | None = None
    ) -> ReplyEvents:
        self._recorder.begin()
        try:
            # without the sink: a recording has to see all of the reply
            async with aclosing(self._backend.ask(question, headers)) as batches:
                async for batch in batches:
                    for piece in filter(None, map(piece_of, batch)):
                        self._recorder.note(piece)
                    yield batch
        except (BackendFailed, InvalidRequest) as error:
            self._recorder.note([FAILED, word_for(error)])
            raise


def _round(generations: int, ran: "Round | None") -> RecordedRound:
    """Write down a round; the last one of a run has no calls."""
    outcomes = (
        RecordedOutcome(
            name=one.call.name,
            arguments=one.call.arguments,
            text=one.text,
            status=one.status.value,
            counted=one.counted,
        )
        for one in (ran.outcomes if ran is not None else ())
    )
    return RecordedRound(generations=generations, outcomes=tuple(outcomes))


def _request(request: Request) -> JsonObject:
    """Write a request as it goes upstream, and with it what is enforced here only."""
    written: JsonObject = {name: json.parse(raw) for name, raw in request.fields.items()}
    if "messages" not in written:
        written["messages"] = [json.parse(one.source) for one in request.messages]
    if "tools" not in written and request.tools:
        written["tools"] = [json.parse(one.source) for one in request.tools]
    if request.allowed_tools is not None and isinstance(request.tool_choice, ToolUse):
        named = sorted(request.allowed_tools)
        some: JsonObject = {
            "mode": request.tool_choice.value,
            "tools": [{"type": "function", "function": {"name": name}} for name in named],
        }
        written["tool_choice"] = {"type": "allowed_tools", "allowed_tools": some}
    return written


def _model(known: KnownModel) -> RecordedModel:
    evidence, overrides = known.evidence, known.overrides
    return RecordedModel(
        names=evidence.names,
        architecture=evidence.architecture,
        template=evidence.template,
        takes_tools=evidence.takes_tools,
        profile=overrides.profile.name if overrides.profile is not None else None,
        convention=overrides.convention,
        replay=overrides.replay,
    )


def _policy(policy: Policy) -> RecordedPolicy:
    return RecordedPolicy(
        mode=policy.mode,
        text_policy=policy.text_policy,
        attempts=policy.attempts,
        is_strict=policy.is_strict,
        most_repeats=policy.most_repeats,
        most_rounds=policy.most_rounds,
        workflow=None if policy.workflow == NO_RULES else policy.workflow,
        streams_calls=policy.streams_calls,
        most_failures=policy.most_failures,
    )
