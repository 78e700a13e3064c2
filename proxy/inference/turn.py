"""The Turn: everything between a request and the answer to it, without any I/O.

Theory of operation
-------------------
A turn puts one question after another to a backend until one of the replies is fit for the
client. Like a protocol engine it has two methods. `next_question()` gives what to ask, or None
when there is nothing more to ask; `receive(event)` takes one event of the backend's reply and
returns the events that the client gets for it. The caller owns sockets, clocks and tasks.

    ASKING      a question is waiting to be put to the model
    LISTENING   an answer is arriving; the client has seen no content of it
    COMMITTED   the client has seen some of the answer; it can only be completed
    DONE        the client has got everything, the finish reason last

What may happen in which state is the table `_MOVES`; `_move` is the only place that changes the
state, and a move that is not in the table is a bug and not an event. What was shown commits the
turn (`inference.sent_answer`): a later attempt is heard to its end before the client sees anything
of it (`RESUMED`), and may then add text and calls. A call that is open has to be completed: an
answer counts only if one of its calls begins with what was shown, and if none ever does the turn
ends with `CallBrokeOff`, so that nobody runs half a call.

A reply is read while it arrives (`guardrails.reading`), shown as far as it is safe
(`inference.text_gate`), judged when it is complete (`guardrails.review`), and if it is rejected the
ladder (`guardrails.retry`) names the next attempt. Where there is nothing to guard, everything
is passed on as it comes.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from itertools import groupby
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Message
from proxy.conversation.replies import (
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    ReplyUnreadable,
    UsageReported,
)
from proxy.conversation.requests import Question
from proxy.errors import CallBrokeOff, GuardrailsExhausted
from proxy.facts import (
    Asked,
    BrokeOff,
    Compacted,
    Fact,
    LadderEnded,
    Refused,
    RejectedReply,
    Withheld,
)
from proxy.guardrails.nudges import demand_open_call, insist_on_json, keep_calls
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.retry import FIRST, AttemptKind, Failure, is_an_answer, next_attempt
from proxy.guardrails.review import NewId
from proxy.guardrails.schemas.members import pin_members
from proxy.guardrails.schemas.schema import call_schema
from proxy.guardrails.verdict import Accepted, Defect, Rejected, Verdict
from proxy.inference.call_gate import CallGate
from proxy.inference.prepared import PreparedTurn
from proxy.inference.reply_reader import (
    GuardedReader,
    ObservingReader,
    PassthroughReader,
    TurnReader,
)
from proxy.inference.sent_answer import SentAnswer
from proxy.inference.text_gate import (
    ContinuationGate,
    FirstReplyGate,
    ReplyGate,
    hold_possible_calls,
    is_content,
)


class Candidate(msgspec.Struct, frozen=True):
    """An answer, with the `listening` that can show it and what its reply cost."""

    answer: Accepted
    listening: TurnReader
    usage: UsageReported | None


class BestCandidate:
    """The most faithful answer so far: calls before text, later before earlier."""

    def __init__(self) -> None:
        self.found: Candidate | None = None

    def offer(self, candidate: Candidate, *, is_meant: bool, is_resumed: bool) -> None:
        """Take the candidate if it is better.

        What the client has seen the beginning of is not replaced by text that was rejected later
        (`is_resumed`), and no text by that of a constrained attempt, which was not meant for
        anybody.
        """
        if self.found is None or candidate.answer.calls:
            self.found = candidate
            return
        best = self.found.answer
        is_said = bool(candidate.answer.text.strip()) and not (is_resumed or best.calls)
        if is_said and (is_meant or not best.text.strip()):
            self.found = candidate


_COUNTED = ("prompt_tokens", "completion_tokens", "total_tokens")


class UsageTotals:
    """Adds up what backends report; `first_reply` is the first one's length in tokens, if known."""

    def __init__(self) -> None:
        self.first_reply: int | None = None
        self._attempts = 0
        self._sums: dict[str, int] = {}

    def add(self, reported: UsageReported) -> None:
        if not self._attempts:
            self.first_reply = _count(reported.usage, "completion_tokens")
        self._attempts += 1
        for name in _COUNTED:
            self._sums[name] = self._sums.get(name, 0) + (_count(reported.usage, name) or 0)

    def annotate(self, usage: UsageReported) -> UsageReported:
        """Return the usage with a member `temper` for all attempts, if there were several."""
        if self._attempts < 2:
            return usage
        sums: JsonObject = {"attempts": self._attempts, **self._sums}
        return replace(usage, usage={**usage.usage, "temper": sums})


def _count(usage: JsonObject, name: str) -> int | None:
    value = usage.get(name)
    return value if isinstance(value, int) else None


MayRetry: TypeAlias = Callable[[], bool]

CUT_OFF = "length"
_MEANT = (Defect.ANNOUNCED, Defect.UNKNOWN_SYNTAX)
_WHOLE = ("stop", "tool_calls")
_LEAST_TOKENS = 512

_TURNING_POINTS = frozenset((ReplyStarted, UsageReported, ReplyFinished, ReplyUnreadable))


class TurnState(Enum):
    """Where a turn stands."""

    ASKING = "asking"
    LISTENING = "listening"
    COMMITTED = "committed"
    DONE = "done"


class TurnMove(Enum):
    """What can happen to a turn."""

    ASKED = "asked"
    RESUMED = "resumed"
    SHOWN = "shown"
    REJECTED = "rejected"
    FINISHED = "finished"


_MOVES = {
    (TurnState.ASKING, TurnMove.ASKED): TurnState.LISTENING,
    (TurnState.ASKING, TurnMove.RESUMED): TurnState.COMMITTED,
    (TurnState.ASKING, TurnMove.FINISHED): TurnState.DONE,
    (TurnState.LISTENING, TurnMove.SHOWN): TurnState.COMMITTED,
    (TurnState.LISTENING, TurnMove.REJECTED): TurnState.ASKING,
    (TurnState.LISTENING, TurnMove.FINISHED): TurnState.DONE,
    (TurnState.COMMITTED, TurnMove.REJECTED): TurnState.ASKING,
    (TurnState.COMMITTED, TurnMove.FINISHED): TurnState.DONE,
}


class Turn:
    """One request on its way to an answer; see the module's theory of operation."""

    def __init__(
        self,
        prepared: PreparedTurn,
        new_id: NewId,
        may_retry: MayRetry,
        *,
        attempts: int,
        is_strict: bool,
    ) -> None:
        self._prepared = prepared
        self._new_id = new_id
        self._may_retry = may_retry
        self._attempts = attempts
        self._is_strict = is_strict
        self._state = TurnState.ASKING
        self._attempt = FIRST
        self._failures: list[Failure] = []
        self._nudges: tuple[Message, ...] = ()
        self._facts = list(prepared.facts)
        self._started: ReplyStarted | None = None
        self._usage: UsageReported | None = None
        self._spent = UsageTotals()
        self._best = BestCandidate()
        self._sent = SentAnswer()
        self._shown_by: TurnReader | None = None
        self._listening = self._listen()

    @property
    def state(self) -> TurnState:
        return self._state

    @property
    def facts(self) -> tuple[Fact, ...]:
        return tuple(self._facts)

    @property
    def is_shortened(self) -> bool:
        """Whether the conversation goes out shorter than the client wrote it."""
        return any(isinstance(fact, Compacted) and fact.sent < fact.client for fact in self._facts)

    def next_question(self) -> Question | None:
        """Return what to ask the backend, None when the turn is done."""
        if self._state is TurnState.DONE:
            return None
        self._usage = None
        self._facts.append(Asked(self._attempt.kind.value))
        self._move(TurnMove.ASKED if self._shown_by is None else TurnMove.RESUMED)
        return self._prepared.question(
            self._attempt, self._nudges, self._schema(), self._most_tokens()
        )

    def receive(self, event: ReplyEvent) -> Sequence[ReplyEvent]:
        """Take one event of the reply; returns the client's events.

        Raises `GuardrailsExhausted` when the ladder ends and the turn is strict, or when a call
        stays open that the client has seen.
        """
        if _is_heard(event):  # nearly always
            return self._show(self._listening.hear(event))
        match event:
            case ReplyStarted():
                return self._announce(event)
            case UsageReported():
                self._usage = event
                self._spent.add(event)
                return ()
            case ReplyFinished(reason):
                return self._judge(reason)
            case _:
                return self._reject(Rejected(Defect.UNREADABLE, (), Accepted()))

    def receive_all(self, batch: Sequence[ReplyEvent], shown: list[ReplyEvent]) -> None:
        """Take events that arrived together; appends the client's events, also before it raises."""
        if len(batch) == 1:
            shown += self.receive(batch[0])
            return
        if _TURNING_POINTS.isdisjoint(map(type, batch)):
            shown += self._show(self._listening.hear_all(batch))
            return
        for is_heard, events in groupby(batch, _is_heard):
            if is_heard:
                shown += self._show(self._listening.hear_all([*events]))
            else:
                for event in events:
                    shown += self.receive(event)

    def abandon(self) -> Sequence[ReplyEvent]:
        """End the turn although its question could not be answered.

        Returns the best answer that earlier attempts allow; nothing if there is none, or if the
        client has already seen a part of the reply that broke off.
        """
        fallback = self._best.found
        if fallback is None or self._shown_by is self._listening or self._sent.open_call:
            return ()
        if not (fallback.answer.text.strip() or fallback.answer.calls):
            return ()
        return self._fall_back(self._failures[-1])

    def cut_off(self) -> Sequence[ReplyEvent]:
        """End the turn in the middle of a reply that does not end, as at a limit of tokens.

        Returns the client's last events; nothing if the reply has nothing to give.
        """
        if self._state not in (TurnState.LISTENING, TurnState.COMMITTED):
            return ()
        events, verdict = self._listening.finish(CUT_OFF)
        answer = verdict.fallback if isinstance(verdict, Rejected) else verdict
        if not (answer.text.strip() or answer.calls or self._sent.is_begun):
            return ()
        self._facts += verdict.facts
        shown = self._show(events)
        best = Candidate(replace(answer, reason=CUT_OFF), self._listening, self._usage)
        return [*shown, *self._complete(best)]

    def _move(self, move: TurnMove) -> None:
        to = _MOVES.get((self._state, move))
        assert to is not None, f"{move} in {self._state}"  # noqa: S101 - a bug, not an input
        self._state = to

    def _listen(self) -> TurnReader:
        offer, streams = self._prepared.offer, self._prepared.streams_calls
        if offer is None:
            return PassthroughReader(self._new_id, streams_calls=streams)
        if self._prepared.is_observed:
            return ObservingReader(offer, self._new_id, streams_calls=streams)
        if self._attempt.kind is AttemptKind.CONSTRAINED:
            offer = replace(offer, answer_schema=None, text_policy=TextPolicy.REQUIRE)
        return GuardedReader(
            offer,
            self._release(offer),
            self._new_id,
            self._sent,
            insistence=len(self._failures),
            shows_pieces=self._prepared.shows_pieces,
        )

    def _release(self, offer: OfferedTools) -> ReplyGate:
        if self._sent.is_begun:
            was_meant = any(one.defect in _MEANT for one in self._failures)
            return ContinuationGate(self._sent, adds_text=was_meant)
        release = FirstReplyGate(
            self._sent,
            CallGate(offer, self._sent) if self._prepared.streams_calls else None,
            shows_prose=self._welcomes_prose(offer),
            is_answer_due=not offer.missing_steps,
        )
        return hold_possible_calls(release, offer, is_asked_again=bool(self._failures))

    def _welcomes_prose(self, offer: OfferedTools) -> bool:
        """Return whether prose is an answer whatever follows; JSON has to be checked first."""
        if offer.answer_schema is not None:
            return False
        return offer.text_policy in (TextPolicy.ACCEPT, TextPolicy.AUTO) or any(
            is_an_answer(failure, offer.text_policy) for failure in self._failures
        )

    def _schema(self) -> JsonObject | None:
        offer = self._prepared.offer
        if offer is None or self._attempt.kind is not AttemptKind.CONSTRAINED:
            return None
        if open_call := self._sent.open_call:
            tools = [one for one in offer.tools if one.name == open_call.name]
            return call_schema([pin_members(tool, open_call.arguments.members) for tool in tools])
        return call_schema(offer.due)

    def _most_tokens(self) -> int | None:
        """Bound the constrained attempt, which has no end of its own if no call comes of it."""
        if self._attempt.kind is not AttemptKind.CONSTRAINED or not self._spent.first_reply:
            return None
        return max(_LEAST_TOKENS, 2 * self._spent.first_reply)

    def _announce(self, started: ReplyStarted) -> Sequence[ReplyEvent]:
        if self._started is not None:
            return ()
        self._started = started
        return (started,)

    def _show(self, events: list[ReplyEvent]) -> list[ReplyEvent]:
        is_committed = self._state is TurnState.COMMITTED
        if not is_committed and any(is_content(event) for event in events):
            self._move(TurnMove.SHOWN)
            self._shown_by = self._listening
        return events

    def _judge(self, reason: str) -> Sequence[ReplyEvent]:
        events, verdict = self._listening.finish(reason)
        shown = self._show(events)
        if isinstance(verdict, Accepted) and not self._sent.admits(verdict.calls):
            verdict = self._judge_open(verdict)
        match verdict:
            case Accepted():
                self._facts += verdict.facts
                answer = Candidate(verdict, self._listening, self._usage)
                return [*shown, *self._complete(self._prefer_confirmed(answer))]
            case Rejected():
                return [*shown, *self._reject(verdict)]

    def _judge_open(self, answer: Accepted) -> Verdict:
        """Judge a good answer of which no call goes on with the one that the client has seen."""
        if answer.reason not in _WHOLE:
            return answer
        if Refused("cut_off") in answer.facts:
            return replace(answer, reason=CUT_OFF)
        nudge = demand_open_call(answer.text)
        return Rejected(Defect.NOT_CONTINUED, nudge, answer, answer.facts)

    def _prefer_confirmed(self, answer: Candidate) -> Candidate:
        """Return what was said before, where the model was asked about it and adds nothing."""
        given, last = answer.answer, self._failures[-1] if self._failures else None
        if given.text.strip() or given.calls or given.reason not in _WHOLE:
            return answer
        if last is None or self._best.found is None or not is_an_answer(last, self._text_policy):
            return answer
        return self._best.found

    def _reject(self, rejected: Rejected) -> Sequence[ReplyEvent]:
        self._facts += (*rejected.facts, RejectedReply(rejected.defect.value))
        self._failures.append(Failure(self._attempt, rejected.defect))
        self._remember(rejected.fallback)
        self._move(TurnMove.REJECTED)
        left_out = self._prepared.left_out
        attempt = next_attempt(self._failures, self._text_policy, self._attempts, left_out)
        if attempt is not None and not self._may_retry():
            self._facts.append(Withheld())
            attempt = None
        if attempt is None:
            return self._fall_back(self._failures[-1])
        self._attempt = attempt
        self._listening = self._listen()
        self._nudges += self._insist(rejected.nudge)
        return ()

    def _insist(self, nudge: tuple[Message, ...]) -> tuple[Message, ...]:
        """Add to a nudge what the next attempt has to keep to; one that is asked raw needs none."""
        if nudge and (open_call := self._sent.open_call):
            nudge = keep_calls(nudge, open_call.name, open_call.arguments.beginning)
        return insist_on_json(nudge) if self._attempt.kind is AttemptKind.CONSTRAINED else nudge

    @property
    def _text_policy(self) -> TextPolicy:
        offer = self._prepared.offer
        return TextPolicy.ACCEPT if offer is None else offer.text_policy

    def _remember(self, answer: Accepted) -> None:
        """Keep an answer in case nothing better comes; it has to go on where the client stands."""
        if self._sent.admits(answer.calls):
            self._best.offer(
                Candidate(answer, self._listening, self._usage),
                is_meant=self._attempt.kind is not AttemptKind.CONSTRAINED,
                is_resumed=self._shown_by not in (None, self._listening),
            )

    def _fall_back(self, failure: Failure) -> Sequence[ReplyEvent]:
        if self._is_narrated() or not is_an_answer(failure, self._text_policy):
            self._facts.append(LadderEnded(failure.defect.value))
        if self._is_strict and not is_an_answer(failure, self._text_policy):
            self._move(TurnMove.FINISHED)
            raise GuardrailsExhausted(len(self._failures), failure.defect.value)
        best, open_call = self._best.found, self._sent.open_call
        if open_call and not (best and self._sent.admits(best.answer.calls)):
            self._facts.append(BrokeOff(open_call.name))
            self._move(TurnMove.FINISHED)
            raise CallBrokeOff(len(self._failures), failure.defect.value, open_call.name)
        assert best is not None  # noqa: S101 - every rejection leaves one, unless a call is open
        return self._complete(best)

    def _is_narrated(self) -> bool:
        """Return whether the model was asked for a call, or for anything at all, and gave none."""
        defects = [failure.defect for failure in self._failures]
        return sum(map(defects.count, _MEANT)) > 1 or defects.count(Defect.EMPTY) > 1

    def _complete(self, best: Candidate) -> Sequence[ReplyEvent]:
        """Show what the client still lacks of an answer, and end the turn."""
        is_own = self._shown_by in (None, best.listening)
        self._move(TurnMove.FINISHED)
        rest = best.listening.complete(best.answer, is_own=is_own)
        usage = [self._spent.annotate(best.usage)] if best.usage is not None else []
        has_calls = bool(self._sent.calls) and not self._sent.open_call
        reason = "tool_calls" if has_calls and best.answer.reason in _WHOLE else best.answer.reason
        return [*rest, *usage, ReplyFinished(reason)]


def _is_heard(event: ReplyEvent) -> bool:
    return type(event) not in _TURNING_POINTS
