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

from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias

import msgspec

from proxy import bounds
from proxy.conversation.endings import CALLS, STOP
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
from proxy.conversation.workflows import NO_RULES, Workflow
from proxy.facts import Dropped, Fact
from proxy.guardrails.nudges import CANCELLED, NEVER_RUN, POSTPONED
from proxy.tools.executor import Outcome, Round, RoundContext, Status

MOST_ROUNDS = 10
MOST_FAILED_ROUNDS = 3
MOST_RESULT_CHARS = bounds.RESULT_CHARACTERS

_SHARE = 0.25  # of the window, for all results of one round
_CHARS_PER_TOKEN = 3  # of JSON; prose has four
_LEAST_CHARS = 200  # a shorter result would not be worth reading


class Stop(Enum):
    """Why a run is over.

    `ANSWERED`: by an answer, or by calls of the client's own tools. `TERMINAL`: a terminal tool has
    succeeded. `ROUNDS`: there were as many as there may be, and the model was asked for an answer.
    `FAILURES`: tools failed round after round. `EXHAUSTED`: no reply was fit to be used.
    `CANCELLED`: somebody wanted it to end.
    """

    ANSWERED = "answered"
    TERMINAL = "terminal"
    ROUNDS = "rounds"
    FAILURES = "failures"
    EXHAUSTED = "exhausted"
    CANCELLED = "cancelled"


class RunTerms(msgspec.Struct, frozen=True):
    """The terms of a run.

    `owned` are the tools that are executed here. After `rounds` rounds of tools the model is asked
    for an answer; after `failed_rounds` in a row, each with a failure that counts, it is over. A
    result has `result_chars` characters at most, and all of a round share a part of the `window`,
    in tokens, where it is known.
    """

    owned: frozenset[str]
    workflow: Workflow = NO_RULES
    rounds: int = MOST_ROUNDS
    failed_rounds: int = MOST_FAILED_ROUNDS
    result_chars: int = MOST_RESULT_CHARS
    window: int | None = None

    def chars_for(self, calls: int) -> int:
        if self.window is None:
            return self.result_chars
        fair = int(self.window * _SHARE * _CHARS_PER_TOKEN) // max(1, calls)
        return min(self.result_chars, max(_LEAST_CHARS, fair))


class Ask(msgspec.Struct, frozen=True):
    """Send this to the model; if it `is_last`, tools may no longer be called."""

    request: Request
    is_last: bool = False


class Execute(msgspec.Struct, frozen=True):
    """Execute these calls."""

    calls: tuple[ToolCall, ...]
    context: RoundContext


Step: TypeAlias = Ask | Execute


class ClientView:
    """Joins replies without their calls, usage and ends, which only the run knows."""

    def __init__(self) -> None:
        self._has_gone_on = False
        self._has_text = False
        self._is_next = False

    def go_on(self) -> None:
        """Begin another reply, whose text begins a paragraph."""
        self._has_gone_on = True
        self._is_next = self._has_text

    def of(self, events: Sequence[ReplyEvent], *, are_asides: bool) -> list[ReplyEvent]:
        """Return what the client sees of events; text that is an aside becomes reasoning."""
        shown: list[ReplyEvent] = []
        for event in events:
            if isinstance(event, TextDelta) and are_asides:
                shown.append(ReasoningDelta(event.text))
            elif isinstance(event, TextDelta):
                shown += (TextDelta("\n\n"), event) if self._is_next else (event,)
                self._has_text, self._is_next = True, False
            elif isinstance(event, ReasoningDelta | PromptProgress) or (
                isinstance(event, ReplyStarted) and not self._has_gone_on
            ):
                shown.append(event)
        return shown


class RunState(Enum):
    """Where a run stands."""

    READY = "ready"
    ASKING = "asking"
    CALLED = "called"
    EXECUTING = "executing"
    DONE = "done"


_MOVES = {
    RunState.READY: (RunState.ASKING, RunState.DONE),
    RunState.ASKING: (RunState.CALLED, RunState.DONE),
    RunState.CALLED: (RunState.EXECUTING, RunState.DONE),
    RunState.EXECUTING: (RunState.READY, RunState.DONE),
    RunState.DONE: (),
}


class Run:
    """The work on one request; see the module's theory of operation."""

    def __init__(self, request: Request, terms: RunTerms) -> None:
        self.terms = terms
        self.state = RunState.READY
        self.stop: Stop | None = None  # why it is over
        self.defect = ""  # what was wrong with the last reply, if the run ended because of it
        self.added: tuple[Message, ...] = ()
        self.rounds: tuple[Round, ...] = ()
        self.facts: tuple[Fact, ...] = ()  # what happened to calls, beyond the facts of the turns
        self.usages: tuple[UsageReported, ...] = ()
        self.output: Outcome | None = None  # of the terminal tool that ended it
        self._request = request
        self._finished: dict[str, Outcome] = {}
        self._failed_rounds = 0
        self._has_mixed = False
        self._is_last = False
        self._view = ClientView()
        self._heard = ReplyInProgress()
        self._has_called = False
        self._reply = Reply()

    @property
    def text(self) -> str:
        """The text of the last reply; "" while it arrives, and if there is none."""
        return self._reply.text

    def next_step(self) -> Step | None:
        """Return what to do next; None when the run is over."""
        if self.state is RunState.DONE:
            return None
        if self.state is RunState.CALLED:
            self._move(RunState.EXECUTING)
            self._finished.clear()
            calls = self._select_owned(_calls_of(self._reply))
            history = (*self._request.messages, *self.added)
            chars = self.terms.chars_for(len(calls))
            return Execute(calls, RoundContext(len(self.rounds) + 1, history, chars))
        self._move(RunState.ASKING)
        self._reply = Reply()
        self._is_last = len(self.rounds) >= self.terms.rounds
        request = self._request
        return Ask(request.append_messages(self.added) if self.added else request, self._is_last)

    def receive(
        self, batch: Sequence[ReplyEvent], *, defect: str | None = None
    ) -> Sequence[ReplyEvent]:
        """Take what a turn released of its reply; return what the client sees of it.

        A `defect` says that the turn's ladder has ended: then nothing of the reply is executed.
        """
        assert self.state is RunState.ASKING, self.state  # noqa: S101 - a bug, not an input
        for event in batch:
            self._hear(event)
        last = batch[-1] if batch else None
        if isinstance(last, ReplyFinished):
            return self._conclude(batch, last.reason, defect)
        return self._view.of(batch, are_asides=self._has_called and self._may_call)

    def finish(self, outcome: Outcome) -> None:
        """Take the outcome of one call of the step: it counts even if the others never end."""
        self._finished[outcome.call.id] = outcome

    def finish_round(self, outcomes: Sequence[Outcome]) -> Sequence[ReplyEvent]:
        """Take the outcomes of all calls, in order; return the last events if the run is over."""
        self._move(RunState.READY)
        self._commit(outcomes)
        has_failed = any(one.is_failure and one.counted for one in outcomes)
        self._failed_rounds = self._failed_rounds + 1 if has_failed else 0
        terminal = self.terms.workflow.terminal_tools
        done = [one for one in outcomes if one.call.name in terminal and not one.is_failure]
        if done:
            self.output = done[0]
            return self._end_with(Stop.TERMINAL, done[0].text)
        if self._failed_rounds < self.terms.failed_rounds:
            return ()
        last = next(one.text for one in reversed(outcomes) if one.is_failure)
        failed = f"Tools failed {self._failed_rounds} times in a row."
        return self._end_with(Stop.FAILURES, f"{failed} The last result: {last}")

    def fail(self, defect: str, words: str = "") -> None:
        """End the run because no reply was usable; `words` replace one."""
        self.defect, self._reply = defect, Reply(words)
        self._end(Stop.EXHAUSTED)

    def cancel(self) -> None:
        """End the run in any state; one that is over stays as it is."""
        if self.state is not RunState.DONE:
            self._end(Stop.CANCELLED)

    def _move(self, to: RunState) -> None:
        assert to in _MOVES[self.state], (self.state, to)  # noqa: S101 - a bug, not an input
        self.state = to

    def _hear(self, event: ReplyEvent) -> None:
        match event:
            case ReplyStarted():  # again, after a prompt proved too long and was shortened
                self._forget()
            case UsageReported():
                self.usages += (event,)
            case ToolCallStarted(name=name) | ToolCalled(call=ToolCall(name=name)):
                self._has_called = self._has_called or name in self.terms.owned
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
        is_whole = reason == CALLS and defect is None
        if is_whole and owned and self._may_execute(is_mixed=len(owned) < len(calls)):
            self._move(RunState.CALLED)
            return self._view.of(batch, are_asides=True)
        self._move(RunState.DONE)
        self.facts += (Dropped("owned_call"),) * len(owned)
        if defect is None and owned and not is_whole:
            defect = "cut_off"
        self.stop = Stop.ROUNDS if self._is_last else Stop.ANSWERED
        if defect is not None:
            self.stop, self.defect = Stop.EXHAUSTED, defect
        left = tuple(call for call in calls if call not in owned)
        if self._reply.text.strip() and not left and defect is None:
            self.added += (self._reply_message(()),)
        reason = STOP if reason == CALLS and not left else reason
        return [*self._view.of(batch, are_asides=False), *self._last_events(left, reason)]

    def _may_execute(self, *, is_mixed: bool) -> bool:
        """Return whether owned calls are run or left out; one mixed reply is tolerated."""
        if not self._may_call:
            return False
        is_forgiven = not (is_mixed and self._has_mixed)
        self._has_mixed = self._has_mixed or is_mixed
        return is_forgiven

    def _select_owned(self, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        return tuple(call for call in calls if call.name in self.terms.owned)

    def _reply_message(self, calls: tuple[ToolCall, ...]) -> Message:
        return assistant_message(self._reply.text, calls, reasoning=self._reply.reasoning)

    def _commit(self, outcomes: Sequence[Outcome]) -> None:
        """Commit a round: the reply, and a result or a note for each of its calls."""
        calls = _calls_of(self._reply)
        owned = self._select_owned(calls)
        assert [one.call for one in outcomes] == [*owned]  # noqa: S101 - an executor's bug
        results = iter(outcomes)
        answers = [
            next(results) if call in owned else Outcome(call, POSTPONED, Status.REFUSED)
            for call in calls
        ]
        self.added += (self._reply_message(calls), *(answer.message for answer in answers))
        self.rounds += (Round(self._reply.text, tuple(outcomes)),)
        self._view.go_on()
        choice = self._request.tool_choice
        is_satisfied = isinstance(choice, NamedTool) and choice.name in self.terms.owned
        if choice is ToolUse.REQUIRED or is_satisfied:
            self._request = self._request.choosing(ToolUse.AUTO)

    def _end(self, stop: Stop) -> None:
        """End the run; calls without an outcome get a note."""
        state = self.state
        self._move(RunState.DONE)
        self.stop = stop
        if state in (RunState.CALLED, RunState.EXECUTING):
            note = NEVER_RUN if state is RunState.CALLED else CANCELLED
            calls = self._select_owned(_calls_of(self._reply))
            notes = {call.id: Outcome(call, note, Status.CANCELLED) for call in calls}
            known = notes if state is RunState.CALLED else {**notes, **self._finished}
            self._commit([known[call.id] for call in calls])

    def _end_with(self, stop: Stop, text: str) -> Sequence[ReplyEvent]:
        self._move(RunState.DONE)
        self.stop = stop
        said = self._view.of([TextDelta(text)], are_asides=False)
        return [*said, *self._last_events((), STOP)]

    def _last_events(self, calls: tuple[ToolCall, ...], reason: str) -> Sequence[ReplyEvent]:
        called = [ToolCalled(index, call) for index, call in enumerate(calls)]
        return [*called, *self.usages[-1:], ReplyFinished(reason)]


def _calls_of(reply: Reply) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(call.id or "", call.name, str(call.arguments)) for call in reply.calls)
