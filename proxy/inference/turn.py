"""The Turn: everything between a request and its answer, without any I/O.

Theory of operation
-------------------
A turn sends one upstream request after another until a reply is fit for the client. Like a protocol
engine it has two methods. `next_request()` returns the request to send, or None once the turn is
over. `receive(event)` takes one event of the reply and returns the client's events. The caller owns
sockets, clocks and tasks.

    ASKING      an upstream request is ready to be sent
    LISTENING   a reply is arriving; the client has seen no content of it
    COMMITTED   the client has seen some of the answer; it can only be completed
    SPENT       all attempts were rejected; `fallback_model` may get one attempt
    DONE        the client has received everything, the finish reason last

A turn with a `fallback_model` waits in SPENT until the caller calls `hand_over` or `settle`. After
`hand_over`, the turn sends one request to the fallback model. `settle` ends the turn as if there
were no fallback model. The reply of the fallback model is read to its end before the client sees
any of it. If that reply is rejected, the turn is settled.

After an answer in text, a close-out check may ask the model for remaining work
(`guardrails.close_out`). By then the client has received the whole text. Only the finish reason
waits, because the check may add calls.

`_MOVES` lists the allowed state changes. Only `_move` changes the state; a change that is not in
the table is a bug. Shown content commits the turn (`inference.sent_answer`): the client sees a
later attempt only after all of it was read, and that attempt can only add text and calls. An open
call has to be completed: an answer counts only if one of its calls begins with the shown part. If
no attempt completes the open call, the turn ends with `CallBrokeOff`, so that no client executes an
incomplete call.

A reply is read while it arrives (`guardrails.reading`). The parts that the verdict cannot change
are shown at once (`inference.text_gate`). When it is complete, it is judged (`guardrails.review`).
If it is rejected, `guardrails.retry` chooses the next attempt. Without tools and schemas,
everything is passed on as it arrives.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from proxy import facts
from proxy.conversation.endings import CALLS, LENGTH, STOP, is_cut
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Messages
from proxy.conversation.replies import (
    ReplyEvent,
    ReplyFinished,
    ReplyStarted,
    ReplyUnreadable,
    UsageReported,
)
from proxy.conversation.requests import UpstreamRequest
from proxy.conversation.tools import ToolCall, ToolUse, WrittenCall
from proxy.errors import CallBrokeOff, GuardrailsExhausted
from proxy.guardrails.close_out import (
    LEAST_TOKENS,
    Cause,
    CloseOut,
    find_cause,
    moves_prompt,
    pick_new_calls,
)
from proxy.guardrails.grounding import Progress, judge_progress
from proxy.guardrails.nudges import (
    ask_for_remaining_work,
    demand_completed_call,
    demand_ending,
    demand_same_call,
    insist_on_json,
    is_done,
    report_results,
)
from proxy.guardrails.offer import OfferedTools, TextPolicy
from proxy.guardrails.rescue.marks import contains_remnant
from proxy.guardrails.retry import FIRST, Attempt, Failure, may_be_answer, next_attempt
from proxy.guardrails.review import NewId
from proxy.guardrails.schemas.rewriting import bind_members, call_schema
from proxy.guardrails.verdict import Accepted, Defect, Rejected, Verdict
from proxy.inference import reply_reader, text_gate
from proxy.inference.call_gate import CallGate
from proxy.inference.plan import RequestPlan
from proxy.inference.sent_answer import SentAnswer


class Candidate(msgspec.Struct, frozen=True):
    """An answer, the `reader` that can show it, and the usage of its reply.

    `text_without_calls` is the text of the answer without the markup of probable calls. It is None
    if the text has no such markup.
    """

    answer: Accepted
    reader: reply_reader.TurnReader
    usage: UsageReported | None
    text_without_calls: str | None = None


def choose_better(best: Candidate | None, other: Candidate, *, is_resumed: bool) -> Candidate:
    """Choose the better of two rejected answers.

    An answer with calls is better than text, and a later answer is better than an earlier answer.
    But if the client has seen the beginning of an earlier answer (`is_resumed`), a later text does
    not replace that answer.
    """
    has_text = bool(other.answer.text.strip()) and not is_resumed
    if best is None or other.answer.calls or (has_text and not best.answer.calls):
        return other
    return best


class Check(msgspec.Struct, frozen=True):
    """The close-out check of an `answer` that the client has seen.

    The reply to the check is judged against the `offer`. It may have `most_tokens`, or as many as
    the engine allows if `most_tokens` is None. The check is sent at most `tries` times.
    """

    cause: Cause
    answer: Candidate
    offer: OfferedTools
    most_tokens: int | None
    tries: int


_COUNTED = ("prompt_tokens", "completion_tokens", "total_tokens")


def annotate(
    usage: UsageReported, spent: Sequence[UsageReported], fallback: str = ""
) -> UsageReported:
    """Add to a usage the token sums of all attempts, if there were several attempts.

        {"total_tokens": 59, "temper": {"attempts": 2, "total_tokens": 130, "fallback": "big"}}

    `fallback` is the fallback model if it generated the answer, else "".
    """
    if len(spent) < 2 and not fallback:
        return usage
    known = usage.usage.get("temper")
    sums: JsonObject = {**(known if isinstance(known, dict) else {}), "attempts": len(spent)}
    for name in _COUNTED:
        sums[name] = sum(_count(attempt.usage, name) or 0 for attempt in spent)
    if fallback:
        sums["fallback"] = fallback
    return replace(usage, usage={**usage.usage, "temper": sums})


def add_completion(usage: UsageReported, later: UsageReported) -> UsageReported:
    """Add the tokens of a later reply to the answer's usage."""
    added = _count(later.usage, "completion_tokens") or 0
    counts = ((name, _count(usage.usage, name)) for name in _COUNTED[1:])
    sums: JsonObject = {name: count + added for name, count in counts if count is not None}
    return replace(usage, usage={**usage.usage, **sums})


def _count(usage: JsonObject, name: str) -> int | None:
    value = usage.get(name)
    return value if isinstance(value, int) else None


MayRetry: TypeAlias = Callable[[], bool]

# Defects of replies in which the model probably meant to call a tool.
_MEANT_A_CALL = (Defect.ANNOUNCED, Defect.UNKNOWN_SYNTAX, Defect.DOUBTFUL)
# Defects of replies whose text a person can understand without an added explanation.
_READABLE = (
    Defect.PROSE,
    Defect.ANNOUNCED,
    Defect.DOUBTFUL,
    Defect.INVALID_ANSWER,
    Defect.STEP_MISSING,
    Defect.EMPTY,
    Defect.EXECUTED,
    Defect.ECHO,
    Defect.MISPLACED,
    Defect.INVENTED,
)
_CONSTRAINED = ("constrained", "ending")  # the kinds of attempts with a schema
# After these defects, an answer in prose does not end the turn; only a corrected call does. A model
# that may answer in prose gives up with an apology instead of a corrected call (decision 0027).
_BAD_CALLS = (
    Defect.UNKNOWN_TOOL,
    Defect.WRONG_TOOL,
    Defect.BROKEN_ARGUMENTS,
    Defect.INVALID_ARGUMENTS,
)
# The minimum token limit of a constrained attempt. The limit is otherwise twice the length of the
# first reply, but the arguments may be longer.
_LEAST_TOKENS = 512

# Every other event is content, which `receive` passes to the reader.
_TURNING_POINTS = frozenset((ReplyStarted, UsageReported, ReplyFinished, ReplyUnreadable))


class TurnState(Enum):
    """The state of a turn; see the module's theory of operation."""

    ASKING = "asking"
    LISTENING = "listening"
    COMMITTED = "committed"
    SPENT = "spent"
    DONE = "done"


# `_show` runs per token, and in Python 3.11 reading an Enum member takes ten times as long as
# reading a global.
_LISTENING, _COMMITTED = TurnState.LISTENING, TurnState.COMMITTED
# state -> the states that may follow
_MOVES = {
    TurnState.ASKING: (
        TurnState.LISTENING,
        TurnState.COMMITTED,
        TurnState.SPENT,
        TurnState.DONE,
    ),
    TurnState.LISTENING: (TurnState.COMMITTED, TurnState.ASKING, TurnState.DONE),
    TurnState.COMMITTED: (TurnState.ASKING, TurnState.DONE),
    TurnState.SPENT: (TurnState.ASKING, TurnState.DONE),
    TurnState.DONE: (),
}


class Turn:
    """The state machine of one request; see the module's theory of operation."""

    def __init__(self, plan: RequestPlan, new_id: NewId, may_retry: MayRetry) -> None:
        self._plan = plan
        self._new_id = new_id
        self._may_retry = may_retry
        self.state = TurnState.ASKING
        self._attempt = FIRST
        self._failures: list[Failure] = []
        self._nudges: Messages = ()
        self._denied: tuple[WrittenCall, ...] = ()
        self._rejected_tools: set[str] = set()
        self.facts: tuple[facts.Fact, ...] = plan.facts
        self._has_started = False
        self._usage: UsageReported | None = None
        self.spent: list[UsageReported] = []  # the reported usage of each attempt
        self._best: Candidate | None = None
        self._sent = SentAnswer()
        self._shown_by: reply_reader.TurnReader | None = None
        self._check: Check | None = None
        self.fallback_model = ""  # gets one attempt after all attempts of the first model failed
        self._first_plan = plan
        self._reader = self._make_reader()

    @property
    def messages(self) -> Messages:
        """The messages that fit the window; each attempt sends them first."""
        return self._plan.messages

    @property
    def is_shortened(self) -> bool:
        """Whether the sent conversation is shorter than the client's."""
        return any(isinstance(fact, facts.Compacted) and fact.is_shortened for fact in self.facts)

    @property
    def is_spent(self) -> bool:
        """Whether the turn waits for `hand_over` or `settle`."""
        return self.state is TurnState.SPENT

    @property
    def is_final(self) -> bool:
        """Whether the reply has to be an answer, because the limit of tool rounds is reached."""
        return self._plan.is_final

    def hand_over(self, other: "Turn") -> None:
        """Send the next request to the fallback model; `other` is a turn planned for this model.

        The prompt of that request is the client's conversation without the nudges of this turn.
        """
        self._plan, self._nudges, self._denied = other._plan, (), ()  # noqa: SLF001 - also a turn
        other_facts = (fact for fact in self.facts if not isinstance(fact, facts.Compacted))
        compactions = (fact for fact in self._plan.facts if isinstance(fact, facts.Compacted))
        self.facts = (*other_facts, *compactions)  # the context is reported for the last prompt
        self._attempt = Attempt("fallback")
        self._reader = self._make_reader()
        self._move(TurnState.ASKING)

    def settle(self, result: str) -> Sequence[ReplyEvent]:
        """End the turn with the first model's best answer.

        `result` says why the fallback model gave no answer.
        Raises `GuardrailsExhausted` and `CallBrokeOff` as `receive` does.
        """
        self.facts += (facts.FellBack(self.fallback_model, result),)
        self.fallback_model = ""
        failure = self._failures[-1]
        self._plan, self._attempt = self._first_plan, failure.attempt
        return self._fall_back(failure)

    def next_request(self) -> UpstreamRequest | None:
        """Return the next upstream request; None if the turn is spent or done."""
        if self.state in (TurnState.SPENT, TurnState.DONE):
            return None
        self._usage = None
        self.facts += (facts.Asked(self._attempt.kind),)
        self._move(TurnState.LISTENING if self._shown_by is None else TurnState.COMMITTED)
        is_constrained = self._attempt.kind in _CONSTRAINED
        most = self._check.most_tokens if self._check is not None else None
        first_reply = _count(self.spent[0].usage, "completion_tokens") if self.spent else None
        # Under a grammar, a model that does not want to call may write white space or an endless
        # string, up to the end of the window.
        if is_constrained and first_reply:
            most = max(_LEAST_TOKENS, 2 * first_reply)
        schema = self._schema() if is_constrained else None
        return self._plan.request_for(self._attempt, self._nudges, schema, most)

    def receive(self, event: ReplyEvent) -> Sequence[ReplyEvent]:
        """Take one event of the reply; return the client's events.

        Raises `GuardrailsExhausted` if the last attempt was rejected and the turn is strict. Raises
        its subclass `CallBrokeOff` if the client has seen a part of a call that no attempt
        completed.
        """
        if type(event) not in _TURNING_POINTS:  # true of nearly every event of a reply
            return self._show(self._reader.read(event))
        match event:
            case ReplyStarted():
                is_first, self._has_started = not self._has_started, True
                return (event,) if is_first else ()
            case UsageReported():
                self._usage = event
                self.spent.append(event)
                return ()
            case ReplyFinished(reason):
                return self._judge(reason)
            case _ if self._check is not None:
                return self._end_check(self._check, "failed")
            case _:
                return self._reject(Rejected(Defect.UNREADABLE, (), Accepted()))

    def receive_all(self, batch: Sequence[ReplyEvent], shown: list[ReplyEvent]) -> None:
        """Take events that arrived together.

        The client's events are appended to `shown`, even if an error is raised.
        """
        if len(batch) == 1:
            shown += self.receive(batch[0])
            return
        if _TURNING_POINTS.isdisjoint(map(type, batch)):
            shown += self._show(self._reader.read_all(batch))
            return
        start = 0
        kinds = enumerate(map(type, batch))
        for index in [index for index, kind in kinds if kind in _TURNING_POINTS]:
            if start < index:
                shown += self._show(self._reader.read_all(batch[start:index]))
            shown += self.receive(batch[index])
            start = index + 1
        if start < len(batch):
            shown += self._show(self._reader.read_all(batch[start:]))

    def abandon(self) -> Sequence[ReplyEvent]:
        """End the turn after its upstream request failed.

        Returns the best answer of earlier attempts. Returns () if there is none, if a call is open,
        or if the client has seen a part of the failed reply.
        """
        if self._check is not None:
            return self._end_check(self._check, "failed")
        if self._is_fallback:
            return self._abandon_fallback()
        best = self._best
        if best is None or self._shown_by is self._reader or self._sent.open_call:
            return ()
        self.fallback_model = ""  # a fallback is for rejected replies, not for failed servers
        is_empty = not (best.answer.text.strip() or best.answer.calls)
        return () if is_empty else self._fall_back(self._failures[-1])

    def cut_off(self) -> Sequence[ReplyEvent]:
        """End the turn before the end of its reply; return () if there is no answer to show."""
        if self._check is not None:
            return self._end_check(self._check, "failed")
        if self.is_spent or (self._is_fallback and self._shown_by is not self._reader):
            may_settle = not (self._plan.policy.is_strict or self._sent.open_call)
            result = "unavailable" if self.is_spent else "failed"
            return self.settle(result) if may_settle else ()
        if self.state not in (TurnState.LISTENING, TurnState.COMMITTED):
            return ()
        events, verdict = self._reader.finish(LENGTH)
        answer = verdict.fallback if isinstance(verdict, Rejected) else verdict
        if not (answer.text.strip() or answer.calls or self._sent.is_begun):
            return ()
        self.facts += verdict.facts
        shown = self._show(events)
        best = Candidate(replace(answer, reason=LENGTH), self._reader, self._usage)
        return [*shown, *self._complete(best)]

    def _move(self, to: TurnState) -> None:
        assert to in _MOVES[self.state], (self.state, to)  # noqa: S101 - a bug, not an input
        self.state = to

    def _make_reader(self) -> reply_reader.TurnReader:
        offer, streams = self._constraints, self._plan.streams_calls
        if offer is None:
            return self._make_reader_without_tools()
        if self._plan.is_untouchable:
            return reply_reader.ObservingReader(offer, self._new_id, streams_calls=streams)
        if self._attempt.kind == "ending":
            offer = replace(offer.for_ending(), rescues=True)
        elif self._attempt.kind == "constrained":
            policy = TextPolicy.REQUIRE  # the schema demands a call, which arrives as text
            offer = replace(offer, answer_schema=None, text_policy=policy, rescues=True)
        if self._denied:
            offer = replace(offer, denied=self._denied)
        if any(failure.defect is Defect.INVENTED for failure in self._failures):
            offer = replace(offer, accepts_invented_values=True)
        return reply_reader.GuardedReader(
            offer,
            self._make_gate(offer),
            self._new_id,
            self._sent,
            insistence=0 if self._is_fallback else len(self._failures),
            shows_pieces=self._plan.shows_pieces,
        )

    def _make_reader_without_tools(self) -> reply_reader.TurnReader:
        plan, request = self._plan, self._plan.request
        new_id, splitter = self._new_id, plan.make_splitter()
        if not plan.is_untouchable and request.answer_schema is not None and not plan.is_final:
            return reply_reader.ResponseFormatReader(
                request.answer_schema,
                new_id,
                streams=plan.shows_pieces and not self._is_fallback,
                splitter=splitter,
            )
        if not plan.is_untouchable and request.tool_choice is ToolUse.NONE:
            return reply_reader.TextOnlyReader(new_id, splitter=splitter)
        return reply_reader.PassthroughReader(
            new_id, streams_calls=plan.streams_calls, splitter=splitter
        )

    def _make_gate(self, offer: OfferedTools) -> text_gate.ReplyGate:
        if self._sent.is_begun or self._is_fallback:
            meant_a_call = any(failure.defect in _MEANT_A_CALL for failure in self._failures)
            adds_text = meant_a_call or not self._sent.is_begun
            return text_gate.ContinuationGate(self._sent, adds_text=adds_text)
        policy = offer.text_policy
        may_be_text = policy in (TextPolicy.ACCEPT, TextPolicy.AUTO) or any(
            may_be_answer(failure, policy) for failure in self._failures
        )
        streams_calls = self._plan.streams_calls and not offer.denied
        gate = text_gate.FirstReplyGate(
            self._sent,
            CallGate(offer, self._sent) if streams_calls else None,
            shows_prose=may_be_text
            and offer.answer_schema is None,  # an answer in JSON is checked before it is shown
            may_answer=not offer.missing_steps,
        )
        if self._attempt.kind == "ending":  # an engine may ignore the schema and repeat a result
            return text_gate.LookaheadGate(gate, offer, is_retry=True)
        return text_gate.hold_possible_calls(gate, offer, is_retry=bool(self._failures))

    @property
    def _constraints(self) -> OfferedTools | None:
        """The tools and rules for the next reply.

        If all calls of this turn were rejected, the reply has to correct one of them. The fallback
        model does not have to, because it did not make these calls.
        """
        offer, best = self._plan.offer, self._best
        if offer is None or best is None or best.answer.calls or self._is_fallback:
            return offer
        has_called = any(failure.defect in _BAD_CALLS for failure in self._failures)
        if offer.text_policy is not TextPolicy.AUTO or not has_called:
            return offer
        return offer.after_bad_call(may_withdraw=not self._rejected_tools)

    def _schema(self) -> JsonObject:
        offer = self._constraints
        assert offer is not None  # noqa: S101 - only calls are constrained
        if self._attempt.kind == "ending":
            respond = offer.for_ending().respond
            assert respond is not None  # noqa: S101 - the rules of an ending have it
            return call_schema([respond])
        if open_call := self._sent.open_call:
            tools = [tool for tool in offer.tools if tool.name == open_call.name]
            return call_schema([bind_members(tool, open_call.arguments.bind()) for tool in tools])
        # Only the tools of the rejected calls are allowed. Temper harmed 17 simulated runs; in 6 of
        # them a grammar over all tools had forced a call of a different tool (decision 0027).
        rejected = self._rejected_tools
        due = [tool for tool in offer.due if tool.name in rejected or offer.is_respond(tool.name)]
        has_rejected = any(tool.name in rejected for tool in due)
        return call_schema(due if has_rejected else offer.due)

    def _show(self, events: list[ReplyEvent]) -> list[ReplyEvent]:
        if self.state is not _COMMITTED and any(map(text_gate.is_content, events)):
            assert self.state is _LISTENING, self.state  # noqa: S101 - a bug
            self._move(_COMMITTED)
            self._shown_by = self._reader
        return events

    def _judge(self, reason: str) -> Sequence[ReplyEvent]:
        most = self._plan.refusals.most_tokens
        if most is not None and facts.AnswerLimited(most) not in self.facts:
            self.facts += (facts.AnswerLimited(most),)
        if self._check is not None:
            return self._judge_check(self._check, reason)
        events, verdict = self._reader.finish(reason)
        shown = self._show(events)
        # A truncated reply, or one without text, does not show how the model ends its reasoning.
        is_ended = facts.EndedThoughts() in verdict.facts
        if is_ended or (isinstance(verdict, Accepted) and verdict.text and not is_cut(reason)):
            self._plan.policy.habit.note(is_shown=is_ended)
        if isinstance(verdict, Accepted) and not self._sent.admits(verdict.calls):
            verdict = self._judge_open(verdict)
        match verdict:
            case Accepted():
                self.facts += verdict.facts
                answer = Candidate(verdict, self._reader, self._usage)
                if (check := self._plan_check(answer)) is not None:
                    return [*shown, *self._begin_check(check)]
                return [*shown, *self._complete(self._fill(self._prefer_confirmed(answer)))]
            case Rejected():
                return [*shown, *self._reject(verdict)]

    def _judge_open(self, answer: Accepted) -> Verdict:
        """Judge a valid answer that has no call to complete the open call."""
        if is_cut(answer.reason):
            return answer
        if facts.Refused("cut_off") in answer.facts:
            return replace(answer, reason=LENGTH)
        nudge = demand_completed_call(answer.text)
        return Rejected(Defect.NOT_CONTINUED, nudge, answer, answer.facts)

    def _prefer_confirmed(self, answer: Candidate) -> Candidate:
        """Return the earlier answer if the model was nudged about it and had nothing to add."""
        reply, last = answer.answer, self._failures[-1] if self._failures else None
        if reply.text.strip() or reply.calls or is_cut(reply.reason):
            return answer
        if last is None or self._best is None or self._is_fallback:
            return answer
        if not may_be_answer(last, self._text_policy):
            return answer
        return self._best

    def _fill(self, answer: Candidate) -> Candidate:
        """Replace an empty answer to the attempt `ending` with a report of the tool results."""
        reply, offer = answer.answer, self._plan.offer
        has_content = reply.text.strip() or reply.calls or self._sent.text.strip()
        if self._attempt.kind != "ending" or offer is None or has_content:
            return answer
        return replace(answer, answer=replace(reply, text=report_results(offer)))

    def _reject(self, rejected: Rejected) -> Sequence[ReplyEvent]:
        self.facts += (*rejected.facts, facts.RejectedReply(rejected.defect.value))
        if self._is_fallback:
            return self._end_fallback(rejected)
        self._failures.append(Failure(self._attempt, rejected.defect, rejected.objection))
        self._denied += rejected.denied
        self._rejected_tools |= {rejected.tool} - {""}
        self._remember(rejected)
        self._move(TurnState.ASKING)
        policy = self._plan.policy
        disabled = policy.disabled_attempts
        if self._plan.offer is None:  # there is no call that a grammar could force
            disabled |= {"constrained"}
        attempt = next_attempt(
            self._failures,
            self._text_policy,
            policy.attempts,
            disabled,
            may_demand_words=self._may_end_in_words,
            progress=self._progress,
        )
        if attempt is not None and not self._may_retry():
            self.facts += (facts.Withheld(),)
            # the fallback is only for a turn that has used all its attempts
            attempt, self.fallback_model = None, ""
        if attempt is None:
            return self._fall_back(self._failures[-1])
        self._attempt = attempt
        self._reader = self._make_reader()
        nudge = rejected.nudge
        # after an unreadable reply there is no nudge
        if nudge and (open_call := self._sent.open_call):
            nudge = demand_same_call(nudge, open_call.name, open_call.arguments.text)
        if attempt.kind == "ending" and self._plan.offer is not None:
            nudge = demand_ending(self._plan.offer)
        self._nudges += insist_on_json(nudge) if attempt.kind in _CONSTRAINED else nudge
        return ()

    def _end_fallback(self, rejected: Rejected) -> Sequence[ReplyEvent]:
        """End the turn after a rejected reply of the fallback; its prose may be the answer."""
        failure = Failure(self._attempt, rejected.defect)
        if failure.defect is Defect.PROSE and may_be_answer(failure, self._text_policy):
            return self._complete(Candidate(rejected.fallback, self._reader, self._usage))
        return self.settle("rejected")

    def _abandon_fallback(self) -> Sequence[ReplyEvent]:
        if self._shown_by is not self._reader:
            return self.settle("failed")
        self.facts += (facts.FellBack(self.fallback_model, "failed"),)
        return ()

    @property
    def _is_fallback(self) -> bool:
        return self._attempt.kind == "fallback"

    @property
    def _progress(self) -> Progress:
        offer = self._plan.offer
        return Progress.UNKNOWN if offer is None else judge_progress(offer)

    @property
    def _may_end_in_words(self) -> bool:
        """Whether tools have run since the user's last message, and a text may be the answer."""
        offer = self._plan.offer
        if offer is None or self._sent.has_calls or offer.answer_schema is not None:
            return False
        return bool(offer.executed) and offer.may_answer and not self._plan.is_final

    @property
    def _text_policy(self) -> TextPolicy:
        offer = self._plan.offer
        return TextPolicy.ACCEPT if offer is None else offer.text_policy

    def _remember(self, rejected: Rejected) -> None:
        """Store a rejected reply's answer if it continues the shown content and is the best."""
        answer = rejected.fallback
        if self._attempt.kind in _CONSTRAINED:  # its text is part of a call, never an answer
            answer = replace(answer, text="")
        if self._sent.admits(answer.calls):
            is_resumed = self._shown_by not in (None, self._reader)
            candidate = Candidate(answer, self._reader, self._usage, rejected.text_without_calls)
            self._best = choose_better(self._best, candidate, is_resumed=is_resumed)

    def _fall_back(self, failure: Failure) -> Sequence[ReplyEvent]:
        defects = [failure.defect for failure in self._failures]
        best, open_call = self._best, self._sent.open_call
        # The model announced a call twice without making one, or its reply was empty twice.
        is_stuck = sum(map(defects.count, _MEANT_A_CALL)) > 1 or defects.count(Defect.EMPTY) > 1
        is_answer = may_be_answer(failure, self._text_policy)
        has_markup = best is not None and best.text_without_calls is not None
        is_exhausted = is_stuck or (has_markup and len(defects) > 1) or not is_answer
        if is_exhausted and self.fallback_model:
            self._move(TurnState.SPENT)
            return ()
        if is_exhausted:
            self.facts += (facts.LadderEnded(failure.defect.value),)
        # without tools, the client has already received the reply, so no explanation can replace it
        is_lost = failure.defect is Defect.UNREADABLE and self._plan.offer is None
        if is_lost or (self._plan.policy.is_strict and not is_answer):
            self._move(TurnState.DONE)
            raise GuardrailsExhausted(len(defects), failure.defect.value, failure.objection)
        if open_call and not (best and self._sent.admits(best.answer.calls)):
            self.facts += (facts.BrokeOff(open_call.name),)
            self._move(TurnState.DONE)
            raise CallBrokeOff(len(self._failures), failure.defect.value, open_call.name)
        # every rejected reply is stored as `_best`, unless a call is open
        assert best is not None  # noqa: S101
        return self._complete(self._explain(best) if is_exhausted else best)

    def _explain(self, best: Candidate) -> Candidate:
        """Remove call markup from the answer; add an explanation if its text is not enough."""
        text, sent, plain = best.answer.text, self._sent.text, best.text_without_calls
        has_all_text = plain is None
        if plain is not None:
            text = (plain if sent else plain.strip()) or sent
        elif contains_remnant(text):
            text, has_all_text = sent, False
        is_readable = all(failure.defect in _READABLE for failure in self._failures)
        is_explained = bool(text.strip()) and has_all_text and is_readable
        offer = self._plan.offer
        explanation = self.explanation
        if explanation and offer is not None and self._may_end_in_words:
            explanation = report_results(offer)  # an apology would deny the executed calls
        if explanation and not (is_explained or best.answer.calls or self._sent.has_calls):
            text = f"{text}\n\n{explanation}" if text.strip() else text + explanation
        return replace(best, answer=replace(best.answer, text=text))

    @property
    def explanation(self) -> str:
        """Why no reply was usable, with the last objection; "" if `Policy.explains` is off."""
        if not self._plan.policy.explains:
            return ""
        rejection = next(
            (failure for failure in reversed(self._failures) if failure.objection),
            self._failures[-1],
        )
        return facts.explain_end(len(self._failures), rejection.defect.value, rejection.objection)

    def _plan_check(self, best: Candidate) -> Check | None:
        """Return the close-out check for an answer; None if the turn ends without a check."""
        answer, plan, offer = best.answer, self._plan, self._plan.offer
        policy = plan.policy
        is_text = bool(answer.text.strip()) and not (answer.calls or self._sent.has_calls)
        if offer is None or not is_text or answer.reason != STOP or not self._has_attempts:
            return None
        remaining = plan.request.max_tokens
        if remaining is not None:
            usage = {} if best.usage is None else best.usage.usage
            # if the usage is unknown, assume the maximum: one token per character
            remaining -= _count(usage, "completion_tokens") or len(answer.text)
        cause = find_cause(policy.close_out, plan.request.messages, offer)
        is_short = remaining is not None and remaining < LEAST_TOKENS
        if cause is None or is_short or moves_prompt(plan.messages, policy.quirks.replay):
            return None
        if not self._may_retry():
            self.facts += (facts.Withheld(), facts.ClosedOut(cause.name, "withheld"))
            return None
        tries = policy.close_out_tries if policy.close_out is CloseOut.ALWAYS else 1
        return Check(cause, best, offer, remaining, tries)

    @property
    def _has_attempts(self) -> bool:
        count = facts.attempts(self.facts)
        return count < self._plan.policy.attempts and not self._is_fallback

    def _begin_check(self, check: Check) -> Sequence[ReplyEvent]:
        """Show the answer, but not its finish reason, and send the close-out check."""
        best, cause = check.answer, check.cause
        shown = self._show(self._show_missing_part(best))
        self._send_check(check, ask_for_remaining_work(best.answer.text, cause.tool, cause.error))
        return shown

    def _send_check(self, check: Check, nudge: Messages) -> None:
        self._check = check
        self._nudges += nudge
        self._attempt = Attempt("close_out", self._attempt.parsing)
        gate = text_gate.UnseenGate(self._sent)
        self._reader = reply_reader.GuardedReader(check.offer, gate, self._new_id, self._sent)
        self._move(TurnState.ASKING)

    def _judge_check(self, check: Check, reason: str) -> Sequence[ReplyEvent]:
        _, verdict = self._reader.finish(reason)
        answer = verdict.fallback if isinstance(verdict, Rejected) else verdict
        if calls := pick_new_calls(answer.calls, check.offer, self._new_id):
            self.facts += answer.facts
            return self._end_check(check, "called", calls)
        is_confirmed = is_done(answer.text)
        if is_confirmed and check.tries > 1 and self._has_attempts:
            self._send_check(replace(check, tries=1), ask_for_remaining_work(answer.text))
            return ()
        return self._end_check(check, "done" if is_confirmed else "nothing")

    def _end_check(
        self, check: Check, outcome: str, calls: Sequence[ToolCall] = ()
    ) -> Sequence[ReplyEvent]:
        """End the turn with the shown answer and the calls of the check."""
        self._check = None
        self._move(TurnState.DONE)
        self.facts += (facts.ClosedOut(check.cause.name, outcome),)
        usage = check.answer.usage
        if calls and usage is not None and self._usage is not None:
            usage = add_completion(usage, self._usage)
        added = self._sent.complete_calls(calls)
        return [*added, *self._last_events(usage, check.answer.answer.reason)]

    def _complete(self, best: Candidate) -> Sequence[ReplyEvent]:
        """Show the missing part of an answer, and end the turn."""
        if self._is_fallback:
            self.facts += (facts.FellBack(self.fallback_model, "answered"),)
        self._move(TurnState.DONE)
        return [*self._show_missing_part(best), *self._last_events(best.usage, best.answer.reason)]

    def _show_missing_part(self, best: Candidate) -> list[ReplyEvent]:
        is_only_reply = self._shown_by in (None, best.reader)
        return best.reader.complete(best.answer, is_only_reply=is_only_reply)

    def _last_events(self, usage: UsageReported | None, reason: str) -> Sequence[ReplyEvent]:
        fallback = self.fallback_model if self._is_fallback else ""
        reported = [] if usage is None else [annotate(usage, self.spent, fallback)]
        has_calls = bool(self._sent.calls) and not self._sent.open_call
        return [*reported, ReplyFinished(CALLS if has_calls and not is_cut(reason) else reason)]
