"""The Run: everything between a request and the end of the work on it, without any I/O.

Theory of operation
-------------------
A run asks a model, has the calls of its reply executed, and asks again, until there is an answer.
It has one method that says what to do next, and one for each thing that can be done:

    READY       the model is to be asked
    ASKING      its reply is arriving, as one turn (`inference.turn`) lets it out
    CALLED      calls of the reply are to be executed
    EXECUTING   they are being executed
    DONE        it is over, and `stop` says why

What may happen in which state is the table `_MOVES`; `_move` is the only place that changes the
state, and a move that is not in the table is a bug and not an event. Nothing is committed but whole
rounds: the assistant's message, and behind it a result, or a note in place of one, for each of its
calls. So the history can be gone on with wherever a run ends, and retries never show in it.

A tool that is not owned is the client's, and is never executed here: calls of such tools alone are
the answer. A reply with calls of both kinds has the owned ones executed, and the model is asked to
look at their results first; if it mixes them again, the owned calls are left out.

The client sees text as the turn lets it out, but text that comes with owned calls, or behind them,
as reasoning, so that what it gets as content is the answer. It sees one beginning and one end, and
the usage of the last reply.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import TypeAlias

import msgspec

from proxy.conversation.messages import Message, assistant_message
from proxy.conversation.replies import (
    PromptProgress,
    ReasoningDelta,
    Reply,
    ReplyEvent,
    ReplyFinished,
    ReplyInProgress,
    ReplyStarted,
    TextDelta,
    ToolCalled,
    ToolCallStarted,
    UsageReported,
)
from proxy.conversation.requests import Request
from proxy.conversation.tools import NamedTool, ToolCall, ToolUse
from proxy.facts import Dropped, Fact
from proxy.guardrails.nudges import CANCELLED, NEVER_RUN, POSTPONED
from proxy.tool_rounds.executor import Outcome, Round, RoundContext, Status
from proxy.tool_rounds.terms import RunTerms, Stop


class Ask(msgspec.Struct, frozen=True):
    """Put this to the model; when it `is_last`, tools may no longer be called."""

    request: Request
    is_last: bool = False


class Execute(msgspec.Struct, frozen=True):
    """Execute these calls."""

    calls: tuple[ToolCall, ...]
    context: RoundContext


Step: TypeAlias = Ask | Execute


_BETWEEN = TextDelta("\n\n")


class ClientView:
    """Joins replies; their calls, usage and ends are left out, as only the run knows of them."""

    def __init__(self) -> None:
        self._has_gone_on = False
        self._has_text = False
        self._is_next = False

    def go_on(self) -> None:
        """Take what comes from now on for another reply, whose text begins a paragraph."""
        self._has_gone_on = True
        self._is_next = self._has_text

    def of(self, events: Sequence[ReplyEvent], *, are_asides: bool) -> list[ReplyEvent]:
        """Return what the client sees of events; text that is an aside goes out as reasoning."""
        return [shown for event in events for shown in self._show(event, are_asides)]

    def _show(self, event: ReplyEvent, are_asides: bool) -> Iterator[ReplyEvent]:  # noqa: FBT001 - as it was called
        match event:
            case ReplyStarted() if not self._has_gone_on:
                yield event
            case TextDelta(text) if are_asides:
                yield ReasoningDelta(text)
            case TextDelta():
                if self._is_next:
                    yield _BETWEEN
                self._has_text, self._is_next = True, False
                yield event
            case ReasoningDelta() | PromptProgress():
                yield event
            case _:
                pass


_CALLS = "tool_calls"
_CUT_OFF = "cut_off"


class RunState(Enum):
    """Where a run stands."""

    READY = "ready"
    ASKING = "asking"
    CALLED = "called"
    EXECUTING = "executing"
    DONE = "done"


class RunMove(Enum):
    """What can happen to a run."""

    ASKED = "asked"
    ANSWERED = "answered"
    CALLS_MADE = "calls_made"
    EXECUTION_BEGUN = "execution_begun"
    EXECUTED = "executed"
    ENDED = "ended"


_MOVES = {
    (RunState.READY, RunMove.ASKED): RunState.ASKING,
    (RunState.ASKING, RunMove.ANSWERED): RunState.DONE,
    (RunState.ASKING, RunMove.CALLS_MADE): RunState.CALLED,
    (RunState.CALLED, RunMove.EXECUTION_BEGUN): RunState.EXECUTING,
    (RunState.EXECUTING, RunMove.EXECUTED): RunState.READY,
    (RunState.READY, RunMove.ENDED): RunState.DONE,
    (RunState.ASKING, RunMove.ENDED): RunState.DONE,
    (RunState.CALLED, RunMove.ENDED): RunState.DONE,
    (RunState.EXECUTING, RunMove.ENDED): RunState.DONE,
}


class Run:
    """The work on one request; see the module's theory of operation."""

    def __init__(self, request: Request, terms: RunTerms) -> None:
        self._request = request
        self._terms = terms
        self._state = RunState.READY
        self._stop: Stop | None = None
        self._defect = ""
        self._added: list[Message] = []
        self._rounds: list[Round] = []
        self._facts: list[Fact] = []
        self._usages: list[UsageReported] = []
        self._output: Outcome | None = None
        self._finished: dict[str, Outcome] = {}
        self._failed_rounds = 0
        self._has_mixed = False
        self._is_last = False
        self._view = ClientView()
        self._heard = ReplyInProgress()
        self._has_called = False
        self._reply = Reply()

    @property
    def terms(self) -> RunTerms:
        return self._terms

    @property
    def state(self) -> RunState:
        return self._state

    @property
    def stop(self) -> Stop | None:
        """Why it is over; None while it is not."""
        return self._stop

    @property
    def defect(self) -> str:
        """What was wrong with the last reply of a run that ended for it."""
        return self._defect

    @property
    def added(self) -> tuple[Message, ...]:
        return tuple(self._added)

    @property
    def rounds(self) -> tuple[Round, ...]:
        return tuple(self._rounds)

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What happened to calls, beyond what the turns tell."""
        return tuple(self._facts)

    @property
    def usages(self) -> tuple[UsageReported, ...]:
        return tuple(self._usages)

    @property
    def text(self) -> str:
        """The text of the last reply; "" while it arrives, and where there is none."""
        return self._reply.text

    @property
    def output(self) -> Outcome | None:
        """What became of the terminal tool that ended the run."""
        return self._output

    def next_step(self) -> Step | None:
        """Return what is to be done now; None when it is over."""
        if self._state is RunState.DONE:
            return None
        if self._state is RunState.CALLED:
            self._move(RunMove.EXECUTION_BEGUN)
            return self._execution()
        self._move(RunMove.ASKED)
        self._reply = Reply()
        self._is_last = len(self._rounds) >= self._terms.rounds
        request = self._request
        return Ask(request.append_messages(self.added) if self._added else request, self._is_last)

    def receive(
        self, batch: Sequence[ReplyEvent], *, defect: str | None = None
    ) -> Sequence[ReplyEvent]:
        """Take what a turn let out of its reply; returns what the client sees of it.

        A `defect` says that the turn's ladder has ended: then nothing of the reply is executed.
        """
        assert self._state is RunState.ASKING, self._state  # noqa: S101 - a bug, not an input
        for event in batch:
            self._hear(event)
        last = batch[-1] if batch else None
        if isinstance(last, ReplyFinished):
            return self._conclude(batch, last.reason, defect)
        return self._view.of(batch, are_asides=self._has_called and self._may_call)

    def finish(self, outcome: Outcome) -> None:
        """Take what became of one call of the step: it counts even if the others never end."""
        self._finished[outcome.call.id] = outcome

    def finish_round(self, outcomes: Sequence[Outcome]) -> Sequence[ReplyEvent]:
        """Take what became of all calls of the step, in their order; returns the client's events.

        There are none unless the run is over.
        """
        self._move(RunMove.EXECUTED)
        self._commit(outcomes)
        has_failed = any(one.is_failure and one.counted for one in outcomes)
        self._failed_rounds = self._failed_rounds + 1 if has_failed else 0
        terminal = self._terms.workflow.terminal_tools
        done = [one for one in outcomes if one.call.name in terminal and not one.is_failure]
        if done:
            self._output = done[0]
            return self._end_with(Stop.TERMINAL, done[0].text)
        if self._failed_rounds >= self._terms.failed_rounds:
            last = next(one.text for one in reversed(outcomes) if one.is_failure)
            rounds = self._failed_rounds
            return self._end_with(
                Stop.FAILURES, f"Tools failed {rounds} times in a row. The last result: {last}"
            )
        return ()

    def fail(self, defect: str) -> None:
        """End it because no reply of the model was fit to be used."""
        self._defect = defect
        self._end(Stop.EXHAUSTED)

    def cancel(self) -> None:
        """End it, wherever it stands; what is over stays as it is."""
        if self._state is not RunState.DONE:
            self._end(Stop.CANCELLED)

    def _move(self, move: RunMove) -> None:
        to = _MOVES.get((self._state, move))
        assert to is not None, f"{move} in {self._state}"  # noqa: S101 - a bug, not an input
        self._state = to

    def _execution(self) -> Execute:
        self._finished.clear()
        calls = self._select_owned(_calls_of(self._reply))
        history = (*self._request.messages, *self._added)
        chars = self._terms.chars_for(len(calls))
        return Execute(calls, RoundContext(len(self._rounds) + 1, history, chars))

    def _hear(self, event: ReplyEvent) -> None:
        match event:
            case ReplyStarted():  # once more, where a prompt proved too long and was shortened
                self._forget()
            case UsageReported():
                self._usages.append(event)
            case ToolCallStarted(name=name) | ToolCalled(call=ToolCall(name=name)):
                self._has_called = self._has_called or name in self._terms.owned
                self._heard.add(event)
            case _:
                self._heard.add(event)

    def _forget(self) -> None:
        self._heard = ReplyInProgress()
        self._has_called = False

    @property
    def _may_call(self) -> bool:
        return not self._is_last and self._request.tool_choice is not ToolUse.NONE

    def _conclude(
        self, batch: Sequence[ReplyEvent], reason: str, defect: str | None
    ) -> Sequence[ReplyEvent]:
        self._reply = self._heard.finish(reason)
        self._forget()
        calls = _calls_of(self._reply)
        owned = self._select_owned(calls)
        is_whole = reason == _CALLS and defect is None
        if is_whole and owned and self._may_execute(is_mixed=len(owned) < len(calls)):
            self._move(RunMove.CALLS_MADE)
            return self._view.of(batch, are_asides=True)
        self._move(RunMove.ANSWERED)
        self._facts += [Dropped("owned_call")] * len(owned)
        if defect is None and owned and not is_whole:
            defect = _CUT_OFF
        self._stop = self._reason_to_stop(defect)
        self._defect = defect or ""
        left = tuple(call for call in calls if call not in owned)
        if self._reply.text.strip() and not left and defect is None:
            self._added.append(self._reply_message(()))
        reason = "stop" if reason == _CALLS and not left else reason
        return [*self._view.of(batch, are_asides=False), *self._last_events(left, reason)]

    def _may_execute(self, *, is_mixed: bool) -> bool:
        """Return whether owned calls are run, or left out; a mixed reply is forgiven once."""
        if not self._may_call:
            return False
        is_forgiven = not (is_mixed and self._has_mixed)
        self._has_mixed = self._has_mixed or is_mixed
        return is_forgiven

    def _reason_to_stop(self, defect: str | None) -> Stop:
        if defect is not None:
            return Stop.EXHAUSTED
        return Stop.ROUNDS if self._is_last else Stop.ANSWERED

    def _select_owned(self, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        return tuple(call for call in calls if call.name in self._terms.owned)

    def _reply_message(self, calls: tuple[ToolCall, ...]) -> Message:
        return assistant_message(self._reply.text, calls, reasoning=self._reply.reasoning)

    def _commit(self, outcomes: Sequence[Outcome]) -> None:
        """Commit a round: the reply, and for each of its calls a result or a note."""
        calls = _calls_of(self._reply)
        owned = self._select_owned(calls)
        assert [one.call for one in outcomes] == [*owned]  # noqa: S101 - an executor's bug
        results = iter(outcomes)
        answers = [
            next(results) if call in owned else Outcome(call, POSTPONED, Status.REFUSED)
            for call in calls
        ]
        self._added += [self._reply_message(calls), *(answer.message for answer in answers)]
        self._rounds.append(Round(self._reply.text, tuple(outcomes)))
        self._view.go_on()
        choice = self._request.tool_choice
        is_satisfied = isinstance(choice, NamedTool) and choice.name in self._terms.owned
        if choice is ToolUse.REQUIRED or is_satisfied:
            self._request = self._request.choosing(ToolUse.AUTO)

    def _end(self, stop: Stop) -> None:
        """End it; calls that have no outcome get a note."""
        state = self._state
        self._move(RunMove.ENDED)
        self._stop = stop
        if state in (RunState.CALLED, RunState.EXECUTING):
            note = NEVER_RUN if state is RunState.CALLED else CANCELLED
            calls = self._select_owned(_calls_of(self._reply))
            notes = {call.id: Outcome(call, note, Status.CANCELLED) for call in calls}
            known = notes if state is RunState.CALLED else {**notes, **self._finished}
            self._commit([known[call.id] for call in calls])

    def _end_with(self, stop: Stop, text: str) -> Sequence[ReplyEvent]:
        """End it with a text in place of the model's answer."""
        self._move(RunMove.ENDED)
        self._stop = stop
        return [
            *self._view.of([TextDelta(text)], are_asides=False),
            *self._last_events((), "stop"),
        ]

    def _last_events(self, calls: tuple[ToolCall, ...], reason: str) -> Sequence[ReplyEvent]:
        called = [ToolCalled(index, call) for index, call in enumerate(calls)]
        return [*called, *self._usages[-1:], ReplyFinished(reason)]


def _calls_of(reply: Reply) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(call.id or "", call.name, str(call.arguments)) for call in reply.calls)
