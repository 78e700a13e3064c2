"""Records one exchange: each raw generation of the model, and the answer sent to the client.

    generation    [["text", "Let me look."], ["call", 0, "k", "find"], ["arguments", 0, "{}"],
                   ["finished", "tool_calls"]]

Each list in a generation is a `Piece`; deltas of one kind are joined. The recorder is a policy that
is added to a request only if recording is configured. An exchange of more than four million
characters is not recorded.
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
from proxy.conversation.messages import Message
from proxy.conversation.requests import Request, UpstreamRequest
from proxy.conversation.tools import ToolUse
from proxy.conversation.workflows import NO_RULES
from proxy.dialects.lenient_json import as_count, as_object, cached_tokens, prompt_seconds
from proxy.errors import BackendFailed, InvalidRequest
from proxy.facts import Compacted, repairs
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
    RecordedReading,
    RecordedRound,
    RecordedRun,
    RecordedVerdict,
)
from proxy.profiles.known_model import KnownModel

if TYPE_CHECKING:  # imported only if the operator has configured tools
    from proxy.tools.executor import Round
    from proxy.tools.run import RunConfig

FAILED = "failed"
# the kinds of the last piece of a generation, and the kinds that are sent as several deltas
ENDINGS = ("finished", "unreadable", FAILED)
_DELTAS = ("text", "reasoning", "arguments")
_MOST_CHARACTERS = 4 * 2**20


class ExchangeRecorder(BackendPolicy):
    """Collects the generations and the answer of one exchange."""

    def __init__(self) -> None:
        # texts as lists of deltas, joined once at the end: joining at each delta is quadratic
        self._generations: list[list[tuple[Piece, list[str]]]] = []
        self._rounds: list[int] = []
        self._run: RecordedRun | None = None
        self._answer = replies.ReplyInProgress()
        self._finish_reason: str | None = None
        self._characters = 0
        self._sent: Sequence[Message] = ()
        self._reported: replies.UsageReported | None = None

    async def record_answer(self, batches: ReplyEvents) -> ReplyEvents:
        """Forward the client's events unchanged, and collect the answer from them."""
        async with aclosing(batches) as events:
            async for batch in events:
                for event in batch:
                    self._note_answer(event)
                yield batch

    def begin(self, upstream_request: UpstreamRequest, sink: replies.EventSink | None) -> None:
        # content that goes to a sink bypasses this policy, but a recording needs the whole reply
        del sink
        self._generations.append([])
        # `_sent` is the prompt of the first generation with a usage. A prompt that was too long has
        # no usage, so the shorter prompt that is sent next replaces it.
        if self._reported is None:
            self._sent = upstream_request.messages

    def receive(self, batch: Batch) -> tuple[Batch, Failure | None]:
        if self._reported is None:
            reports = (event for event in batch if isinstance(event, replies.UsageReported))
            self._reported = next(reports, None)
        for piece in filter(None, map(piece_of, batch)):
            self.note(piece)
        return batch, None

    def fail(self, error: BackendFailed | InvalidRequest) -> None:
        self.note([FAILED, word_for(error)])

    def end(self) -> None:
        """Add an ending to a generation that has none because the guardrails stopped it early."""
        pieces = self._generations[-1]
        if self.is_whole and not (pieces and pieces[-1][0][0] in ENDINGS):
            self.note(["finished", STOP])

    def begin_round(self) -> None:
        """Begin a tool round; the following generations belong to it."""
        self._rounds.append(len(self._generations))

    def end_run(self, config: "RunConfig", rounds: "Sequence[Round]") -> None:
        ends = [*self._rounds[1:], len(self._generations)]
        parts = zip_longest(self._rounds, ends, rounds)
        self._run = RecordedRun(
            owned=tuple(sorted(config.owned)),
            most_rounds=config.rounds,
            most_failed_rounds=config.failed_rounds,
            rounds=tuple(_round(end - first, tool_round) for first, end, tool_round in parts),
        )
        self._characters += sum(
            len(outcome.text) for tool_round in rounds for outcome in tool_round.outcomes
        )

    def note(self, piece: Piece) -> None:
        """Add a piece to the current generation, or extend its last piece by a delta."""
        head, text = piece[:-1], str(piece[-1])
        self._characters += len(text)
        if not self.is_whole:
            return
        pieces = self._generations[-1]
        if pieces and head[0] in _DELTAS and pieces[-1][0] == head:
            pieces[-1][1].append(text)
        else:
            pieces.append((head, [text]))

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
                index: message.failed
                for index, message in enumerate(plan.request.messages)
                if message.failed is not None
            },
            generations=tuple(
                tuple([*head, "".join(texts)] for head, texts in pieces)
                for pieces in self._generations
            ),
            run=self._run,
            reading=self._reading(record),
            answer=answer_of(self._answer, self._finish_reason),
            verdict=RecordedVerdict(
                outcome=record.outcome.value if record.outcome is not None else None,
                attempts=tuple((attempt.kind, attempt.defect) for attempt in record.attempts),
                repairs=repairs(record.facts),
            ),
        )

    @property
    def is_whole(self) -> bool:
        """False if the exchange is too large, so that it is not recorded."""
        return self._characters <= _MOST_CHARACTERS

    def _reading(self, record: RequestRecord) -> RecordedReading | None:
        if self._reported is None:
            return None
        usage, cuts = self._reported.usage, (f for f in record.facts if isinstance(f, Compacted))
        is_shortened = any(cut.is_shortened for cut in cuts)
        sent = (as_object(json.parse(message.source)) for message in self._sent)
        return RecordedReading(
            tokens=as_count(usage.get("prompt_tokens")),
            cached=cached_tokens(usage),
            seconds=prompt_seconds(self._reported.timings),
            reread=record.reread,
            messages=tuple(sent) if is_shortened else None,
        )

    def _note_answer(self, event: replies.ReplyEvent) -> None:
        # the recorded answer is the last reply, without the texts that came before tool calls
        if isinstance(event, replies.ReplyStarted):
            self._answer = replies.ReplyInProgress()
        elif isinstance(event, replies.ReplyFinished):
            self._finish_reason = event.reason
        elif isinstance(event, replies.TextDelta | replies.ToolCallArgumentsDelta):
            self._characters += len(event.text)
        if self.is_whole and not isinstance(event, replies.ReasoningDelta):
            self._answer.add(event)


_KINDS: Mapping[type[replies.ReplyEvent], str] = {
    replies.TextDelta: "text",
    replies.ReasoningDelta: "reasoning",
    replies.ToolCallStarted: "call",
    replies.ToolCallArgumentsDelta: "arguments",
    replies.ReplyFinished: "finished",
    replies.ReplyUnreadable: "unreadable",
}


def piece_of(event: replies.ReplyEvent) -> Piece | None:
    """Convert an event of a backend; None for an event that the guardrails ignore, e.g. usage."""
    if (kind := _KINDS.get(type(event))) is None:
        return None
    return [kind, event.text] if isinstance(event, replies.TextDelta) else [kind, *astuple(event)]


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
            raise ValueError(f"{piece} is not a valid part of a generation")


def answer_of(events: replies.ReplyInProgress, finish_reason: str | None) -> RecordedAnswer:
    answer = events.finish("")
    calls = [RecordedCall(name=call.name, arguments=str(call.arguments)) for call in answer.calls]
    return RecordedAnswer(text=answer.text, calls=tuple(calls), finish_reason=finish_reason)


def _round(generations: int, tool_round: "Round | None") -> RecordedRound:
    """Convert a tool round; None stands for the last generations of a run, which have no calls."""
    outcomes = (
        RecordedOutcome(
            name=outcome.call.name,
            arguments=outcome.call.arguments,
            text=outcome.text,
            status=outcome.status.value,
            counted=outcome.counted,
        )
        for outcome in (tool_round.outcomes if tool_round is not None else ())
    )
    return RecordedRound(generations=generations, outcomes=tuple(outcomes))


def _request(request: Request) -> JsonObject:
    """Convert a request to the chat dialect, with the additional field `allowed_tools`."""
    chat: JsonObject = {name: json.parse(raw) for name, raw in request.fields.items()}
    if "messages" not in chat:
        chat["messages"] = [json.parse(message.source) for message in request.messages]
    if "tools" not in chat and request.tools:
        chat["tools"] = [json.parse(tool.source) for tool in request.tools]
    # engines do not know `allowed_tools`, so the fields that are sent upstream do not contain it
    if request.allowed_tools is not None and isinstance(request.tool_choice, ToolUse):
        names = sorted(request.allowed_tools)
        allowed: JsonObject = {
            "mode": request.tool_choice.value,
            "tools": [{"type": "function", "function": {"name": name}} for name in names],
        }
        chat["tool_choice"] = {"type": "allowed_tools", "allowed_tools": allowed}
    return chat


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
