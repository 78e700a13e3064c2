"""Records one exchange: each raw generation, and what the client got.

Nothing is wrapped unless recordings are configured. What is kept of one exchange is bounded.
"""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict
from itertools import zip_longest
from typing import TYPE_CHECKING

from msgspec.structs import astuple

from proxy.conversation import json, replies
from proxy.conversation.endings import STOP, ending_of
from proxy.conversation.json import JsonObject
from proxy.conversation.requests import Request, UpstreamRequest
from proxy.conversation.tools import ToolUse
from proxy.conversation.workflows import NO_RULES
from proxy.errors import BackendFailed, InvalidRequest
from proxy.facts import repairs
from proxy.guardrails.model_quirks import Quirks
from proxy.inference.driver import BackendPolicy, Batch, Failure, ReplyEvents
from proxy.inference.plan import Policy, RequestPlan
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
    from proxy.tools.executor import Round
    from proxy.tools.run import RunTerms

FAILED = "failed"
ENDINGS = ("finished", "unreadable", FAILED)
_GROWING = ("text", "reasoning", "arguments")
_MOST_CHARACTERS = 4 * 2**20


class ExchangeRecorder(BackendPolicy):
    """Collects the generations and the answer of one exchange."""

    def __init__(self) -> None:
        # pieces that may still grow; joined only once, because joining at each piece is quadratic
        self._generations: list[list[tuple[Piece, list[str]]]] = []
        self._rounds: list[int] = []
        self._run: RecordedRun | None = None
        self._answer = replies.ReplyInProgress()
        self._finish_reason: str | None = None
        self._characters = 0

    async def record_answer(self, batches: ReplyEvents) -> ReplyEvents:
        async with aclosing(batches) as heard:
            async for batch in heard:
                for event in batch:
                    self._note_answer(event)
                yield batch

    def begin(self, upstream_request: UpstreamRequest, sink: replies.EventSink | None) -> None:
        """Begin a generation without the sink: a recording needs the whole reply."""
        del upstream_request, sink
        self._generations.append([])

    def receive(self, batch: Batch) -> tuple[Batch, Failure | None]:
        for piece in filter(None, map(piece_of, batch)):
            self.note(piece)
        return batch, None

    def fail(self, error: BackendFailed | InvalidRequest) -> None:
        self.note([FAILED, word_for(error)])

    def end(self) -> None:
        """Note the end of a generation that was stopped."""
        pieces = self._generations[-1]
        if self.is_whole and not (pieces and pieces[-1][0][0] in ENDINGS):
            self.note(["finished", STOP])

    def begin_round(self) -> None:
        """Begin a round of a run; later generations belong to it."""
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
        """Keep a piece of the generation; a piece that continues a text is joined to it."""
        head, text = piece[:-1], str(piece[-1])
        self._characters += len(text)
        if not self.is_whole:
            return
        stretches = self._generations[-1]
        if stretches and head[0] in _GROWING and stretches[-1][0] == head:
            stretches[-1][1].append(text)
        else:
            stretches.append((head, [text]))

    def exchange(
        self, known: KnownModel, plan: RequestPlan, record: RequestRecord
    ) -> RecordedExchange:
        return RecordedExchange(
            id=record.id,
            at=record.begun_at,
            dialect=record.dialect,
            model=_model(known, plan.policy.quirks),
            policy=_policy(plan.policy),
            request=_request(plan.request),
            failed={
                place: one.failed
                for place, one in enumerate(plan.request.messages)
                if one.failed is not None
            },
            generations=tuple(
                tuple([*head, "".join(texts)] for head, texts in each) for each in self._generations
            ),
            run=self._run,
            answer=answer_of(self._answer, self._finish_reason),
            verdict=RecordedVerdict(
                outcome=record.outcome.value if record.outcome is not None else None,
                attempts=tuple((attempt.kind, attempt.defect) for attempt in record.attempts),
                repairs=repairs(record.facts),
            ),
        )

    @property
    def is_whole(self) -> bool:
        return self._characters <= _MOST_CHARACTERS

    def _note_answer(self, event: replies.ReplyEvent) -> None:
        if isinstance(event, replies.ReplyStarted):
            self._answer = replies.ReplyInProgress()
        elif isinstance(event, replies.ReplyFinished):
            self._finish_reason = event.reason
        elif isinstance(event, replies.TextDelta | replies.ToolCallArgumentsDelta):
            self._characters += len(event.text)
        if self.is_whole and not isinstance(event, replies.ReasoningDelta):
            self._answer.add(event)


_WORDS: Mapping[type[replies.ReplyEvent], str] = {
    replies.TextDelta: "text",
    replies.ReasoningDelta: "reasoning",
    replies.ToolCallStarted: "call",
    replies.ToolCallArgumentsDelta: "arguments",
    replies.ReplyFinished: "finished",
    replies.ReplyUnreadable: "unreadable",
}


def piece_of(event: replies.ReplyEvent) -> Piece | None:
    """Convert an event of a backend; None if it plays no part in judging."""
    if (word := _WORDS.get(type(event))) is None:
        return None
    return [word, event.text] if isinstance(event, replies.TextDelta) else [word, *astuple(event)]


def event_of(piece: Piece) -> replies.ReplyEvent:
    """Convert a recorded piece back; raises ValueError if it is invalid."""
    match piece:
        case ["text", str(text)]:
            return replies.TextDelta(text)
        case ["reasoning", str(text)]:
            return replies.ReasoningDelta(text)
        case ["call", int(index), str() | None as call_id, str(name)]:
            return replies.ToolCallStarted(index, call_id, name)
        case ["arguments", int(index), str(text)]:
            return replies.ToolCallArgumentsDelta(index, text)
        case ["finished", str(reason)]:
            return replies.ReplyFinished(ending_of(reason).reason)
        case ["unreadable", str(detail)]:
            return replies.ReplyUnreadable(detail)
        case _:
            raise ValueError(f"{piece} is not a part of a generation")


def answer_of(events: replies.ReplyInProgress, finish_reason: str | None) -> RecordedAnswer:
    answer = events.finish("")
    calls = [RecordedCall(name=one.name, arguments=str(one.arguments)) for one in answer.calls]
    return RecordedAnswer(text=answer.text, calls=tuple(calls), finish_reason=finish_reason)


def _round(generations: int, ran: "Round | None") -> RecordedRound:
    """Convert a round; the last one of a run has no calls."""
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
    """Convert a request as it is sent, with what only Temper enforces."""
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


def _model(known: KnownModel, quirks: Quirks) -> RecordedModel:
    profile = known.overrides.profile
    return RecordedModel(
        **asdict(known.evidence),
        profile=profile.name if profile is not None else None,
        convention=known.overrides.convention,
        replay=known.overrides.replay,
        opens_thoughts=quirks.opens_thoughts,
    )


def _policy(policy: Policy) -> RecordedPolicy:
    values = {name: getattr(policy, name) for name in RecordedPolicy.__struct_fields__}
    rules = None if policy.workflow == NO_RULES else policy.workflow
    return RecordedPolicy(**values | {"workflow": rules})
