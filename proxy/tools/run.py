"""The Run: the state machine from a request to the end of its tool calls, without I/O.

Theory of operation
-------------------
A run prompts a model, executes the calls of its reply, and prompts the model again, until there is
an answer. `next_step` returns the next step. Each kind of step has a method that receives its
result. The states are:

    READY       the next step is a prompt
    ASKING      the reply arrives, as one turn (`inference.turn`) releases it
    CALLED      the next step is the execution of the reply's calls
    EXECUTING   the calls are being executed
    DONE        the run is over, and `stop` is the reason

The table `_MOVES` lists the transitions; `_move` is the only function that changes the state, and a
transition outside of the table is a bug. Only whole rounds are committed: the assistant's message,
and for each of its calls a result, or a note if there is no result. So the conversation can be
continued wherever the run ended. Rejected replies never become part of the conversation.

`owned` tools are executed in the run. All other tools belong to the client: a reply that calls only
tools of the client is the answer. If a reply mixes calls of both kinds, the owned calls are
executed first, and the model is prompted with their results. If a later reply mixes both kinds
again, its owned calls are dropped.

    prompt   "What is the weather in Rome and Oslo?"
    reply    calls weather({"city": "Rome"}), weather({"city": "Oslo"})     round 1
    prompt   the same, the assistant's message and two tool messages
    reply    "Rome 21 C, Oslo 4 C"                                          Stop.ANSWERED

The client receives text as soon as the turn releases it. Text of a reply with owned calls is sent
as reasoning, so that the content contains only the answer. Although a run has several replies, the
client receives one start, one end, and the usage of the last reply.
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

# The results of one round may fill this fraction of the window. Longer results could displace the
# rest of the conversation.
_SHARE = 0.25
_CHARS_PER_TOKEN = 3  # in JSON; prose has four
_LEAST_CHARS = 200  # a shorter result is of no use


class Stop(Enum):
    """The reason why a run ended.

    `ANSWERED`: the model answered, or called only tools of the client. `TERMINAL`: a terminal tool
    succeeded. `ROUNDS`: the limit of rounds was reached, and the model had to answer. `FAILURES`:
    tools failed in too many rounds in a row. `EXHAUSTED`: no reply was usable. `CANCELLED`: the
    caller canceled the run.
    """

    ANSWERED = "answered"
    TERMINAL = "terminal"
    ROUNDS = "rounds"
    FAILURES = "failures"
    EXHAUSTED = "exhausted"
    CANCELLED = "cancelled"


class RunConfig(msgspec.Struct, frozen=True):
    """The tools and limits of a run.

    `owned` are the names of the tools that are executed in the run. After `rounds` rounds, the
    model has to answer. After `failed_rounds` rounds in a row with a counted failure, the run is
    over. A result has at most `result_chars` characters, and all results of a round together fill
    at most a quarter of the `window` (tokens, None if unknown). `built_in` are Temper's own tools;
    calls of these do not satisfy the client's `tool_choice`.
    """

    owned: frozenset[str]
    workflow: Workflow = NO_RULES
    rounds: int = 10
    failed_rounds: int = 3
    result_chars: int = bounds.RESULT_CHARACTERS
    window: int | None = None
    built_in: frozenset[str] = frozenset()

    def chars_for(self, calls: int) -> int:
        """Return the maximum number of characters of a result in a round of `calls` calls."""
        if self.window is None:
            return self.result_chars
        share = int(self.window * _SHARE * _CHARS_PER_TOKEN) // max(1, calls)
        return min(self.result_chars, max(_LEAST_CHARS, share))


class Ask(msgspec.Struct, frozen=True):
    """Prompt the model with this request; in the `is_last` prompt, it may not call tools."""

    request: Request
    is_last: bool = False


class Execute(msgspec.Struct, frozen=True):
    """Execute these calls."""

    calls: tuple[ToolCall, ...]
    context: RoundContext


Step: TypeAlias = Ask | Execute


class ClientView:
    """Joins the replies of a run to one reply for the client; `Run` adds the final events."""

    def __init__(self) -> None:
        self._is_continued = False
        self._has_text = False
        self._needs_paragraph = False

    def begin_next_reply(self) -> None:
        """Begin another reply; its text starts a new paragraph."""
        self._is_continued = True
        self._needs_paragraph = self._has_text

    def convert(self, events: Sequence[ReplyEvent], *, is_aside: bool) -> list[ReplyEvent]:
        """Return the events for the client.

        With `is_aside`, the reply has calls that the run executes, and its text becomes reasoning.
        """
        visible: list[ReplyEvent] = []
        for event in events:
            if isinstance(event, TextDelta) and is_aside:
                visible.append(ReasoningDelta(event.text))
            elif isinstance(event, TextDelta):
                visible += (TextDelta("\n\n"), event) if self._needs_paragraph else (event,)
                self._has_text, self._needs_paragraph = True, False
            elif isinstance(event, ReasoningDelta | PromptProgress) or (
                isinstance(event, ReplyStarted) and not self._is_continued
            ):
                visible.append(event)
        return visible


class RunState(Enum):
    """The state of a run; see the theory of operation above."""

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
    """The state machine of one request; see the theory of operation above."""

    def __init__(self, request: Request, config: RunConfig) -> None:
        self.config = config
        self.state = RunState.READY
        self.stop: Stop | None = None
        self.defect = ""  # of the last reply, if the run ended because of it
        self.added: tuple[Message, ...] = ()
        self.rounds: tuple[Round, ...] = ()
        self.facts: tuple[Fact, ...] = ()  # about dropped calls; each turn has its own facts, too
        self.usages: tuple[UsageReported, ...] = ()
        self.output: Outcome | None = None  # of the terminal tool that ended the run
        self._request = request
        self._finished: dict[str, Outcome] = {}
        self._failed_rounds = 0
        self._has_mixed = False  # a reply has called both owned tools and tools of the client
        self._is_last = False
        self._view = ClientView()
        self._arriving = ReplyInProgress()
        self._has_called = False
        self._reply = Reply()

    @property
    def text(self) -> str:
        """The text of the last complete reply; "" while the next reply arrives."""
        return self._reply.text

    def next_step(self) -> Step | None:
        """Return the next step; None when the run is over."""
        if self.state is RunState.DONE:
            return None
        if self.state is RunState.CALLED:
            self._move(RunState.EXECUTING)
            self._finished.clear()
            calls = self._select_owned(_calls_of(self._reply))
            history = (*self._request.messages, *self.added)
            chars = self.config.chars_for(len(calls))
            return Execute(calls, RoundContext(len(self.rounds) + 1, history, chars))
        self._move(RunState.ASKING)
        self._reply = Reply()
        self._is_last = len(self.rounds) >= self.config.rounds
        request = self._request
        return Ask(request.append_messages(self.added) if self.added else request, self._is_last)

    def receive(
        self, batch: Sequence[ReplyEvent], *, defect: str | None = None
    ) -> Sequence[ReplyEvent]:
        """Take the released events of a reply; return the events for the client.

        A `defect` means that the last retry was also rejected, so no call of the reply is executed.
        """
        assert self.state is RunState.ASKING, self.state  # noqa: S101 - a bug, not an input
        for event in batch:
            self._note(event)
        last = batch[-1] if batch else None
        if isinstance(last, ReplyFinished):
            return self._conclude(batch, last.reason, defect)
        return self._view.convert(batch, is_aside=self._has_called and self._may_call)

    def finish(self, outcome: Outcome) -> None:
        """Store the outcome of one call, because the run may be canceled before other calls end."""
        self._finished[outcome.call.id] = outcome

    def finish_round(self, outcomes: Sequence[Outcome]) -> Sequence[ReplyEvent]:
        """Commit a round with the outcomes of its calls; return the final events if the run ends.

        The outcomes are in the order of the calls.
        """
        self._move(RunState.READY)
        self._commit(outcomes)
        has_failed = any(outcome.is_failure and outcome.counted for outcome in outcomes)
        self._failed_rounds = self._failed_rounds + 1 if has_failed else 0
        terminal = self.config.workflow.terminal_tools
        successes = [
            outcome
            for outcome in outcomes
            if outcome.call.name in terminal and not outcome.is_failure
        ]
        if successes:
            self.output = successes[0]
            return self._end_with(Stop.TERMINAL, successes[0].text)
        if self._failed_rounds < self.config.failed_rounds:
            return ()
        last = next(outcome.text for outcome in reversed(outcomes) if outcome.is_failure)
        failed = f"Tools failed {self._failed_rounds} times in a row."
        return self._end_with(Stop.FAILURES, f"{failed} The last result: {last}")

    def fail(self, defect: str, explanation: str = "") -> None:
        """End the run because no reply was usable; `explanation` becomes the text of the reply."""
        self.defect, self._reply = defect, Reply(explanation)
        self._end(Stop.EXHAUSTED)

    def cancel(self) -> None:
        """End the run in any state; has no effect on a run that is over."""
        if self.state is not RunState.DONE:
            self._end(Stop.CANCELLED)

    def _move(self, to: RunState) -> None:
        assert to in _MOVES[self.state], (self.state, to)  # noqa: S101 - a bug, not an input
        self.state = to

    def _note(self, event: ReplyEvent) -> None:
        match event:
            case ReplyStarted():  # also when the reply restarts, with a shortened prompt
                self._reset_reply()
            case UsageReported():
                self.usages += (event,)
            case ToolCallStarted(name=name) | ToolCalled(call=ToolCall(name=name)):
                self._has_called = self._has_called or name in self.config.owned
                self._arriving.add(event)
            case _:
                self._arriving.add(event)

    def _reset_reply(self) -> None:
        self._arriving = ReplyInProgress()
        self._has_called = False

    @property
    def _may_call(self) -> bool:
        return not self._is_last and self._request.tool_choice is not ToolUse.NONE

    def _conclude(
        self, batch: Sequence[ReplyEvent], reason: str, defect: str | None
    ) -> Sequence[ReplyEvent]:
        self._reply = self._arriving.finish(reason)
        self._reset_reply()
        calls = _calls_of(self._reply)
        owned = self._select_owned(calls)
        is_complete = reason == CALLS and defect is None
        if is_complete and owned and self._may_execute(is_mixed=len(owned) < len(calls)):
            self._move(RunState.CALLED)
            return self._view.convert(batch, is_aside=True)
        self._move(RunState.DONE)
        self.facts += (Dropped("owned_call"),) * len(owned)
        # The last call of a reply that hit the token limit may be incomplete.
        if defect is None and owned and not is_complete:
            defect = "cut_off"
        self.stop = Stop.ROUNDS if self._is_last else Stop.ANSWERED
        if defect is not None:
            self.stop, self.defect = Stop.EXHAUSTED, defect
        client_calls = tuple(call for call in calls if call not in owned)
        # If the reply calls tools of the client, the client itself adds the message to its history.
        if self._reply.text.strip() and not client_calls and defect is None:
            self.added += (self._reply_message(()),)
        # Dropped calls are not sent. The reason `tool_calls` would announce calls to the client.
        reason = STOP if reason == CALLS and not client_calls else reason
        events = self._view.convert(batch, is_aside=False)
        return [*events, *self._last_events(client_calls, reason)]

    def _may_execute(self, *, is_mixed: bool) -> bool:
        """Return whether owned calls are executed; otherwise they are dropped.

        Once per run, they are executed although the reply also calls tools of the client.
        """
        if not self._may_call:
            return False
        is_tolerated = not (is_mixed and self._has_mixed)
        self._has_mixed = self._has_mixed or is_mixed
        return is_tolerated

    def _select_owned(self, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        return tuple(call for call in calls if call.name in self.config.owned)

    def _reply_message(self, calls: tuple[ToolCall, ...]) -> Message:
        return assistant_message(self._reply.text, calls, reasoning=self._reply.reasoning)

    def _commit(self, outcomes: Sequence[Outcome]) -> None:
        """Commit a round: the reply, and a result or a note for each of its calls."""
        calls = _calls_of(self._reply)
        owned = self._select_owned(calls)
        assert [outcome.call for outcome in outcomes] == [*owned]  # noqa: S101 - an executor's bug
        results = iter(outcomes)
        # In a mixed reply, the client's calls get the result "not run yet" (decision 0023).
        answers = [
            next(results) if call in owned else Outcome(call, POSTPONED, Status.REFUSED)
            for call in calls
        ]
        self.added += (self._reply_message(calls), *(answer.message for answer in answers))
        self.rounds += (Round(self._reply.text, tuple(outcomes)),)
        self._view.begin_next_reply()
        choice = self._request.tool_choice
        # If the client demands a call of its own tool, the demand remains until the model calls it.
        is_satisfied = isinstance(choice, NamedTool) and choice.name in self.config.owned
        # `tool_choice: required` applies to the first reply only, or the run could never end. Calls
        # of Temper's own tools do not satisfy it (decision 0036).
        is_internal = all(call.name in self.config.built_in for call in owned)
        if (choice is ToolUse.REQUIRED and not is_internal) or is_satisfied:
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
            outcomes = notes if state is RunState.CALLED else {**notes, **self._finished}
            self._commit([outcomes[call.id] for call in calls])

    def _end_with(self, stop: Stop, text: str) -> Sequence[ReplyEvent]:
        self._move(RunState.DONE)
        self.stop = stop
        events = self._view.convert([TextDelta(text)], is_aside=False)
        return [*events, *self._last_events((), STOP)]

    def _last_events(self, calls: tuple[ToolCall, ...], reason: str) -> Sequence[ReplyEvent]:
        called = [ToolCalled(index, call) for index, call in enumerate(calls)]
        # only the usage of the last reply, because its prompt contains all earlier rounds
        return [*called, *self.usages[-1:], ReplyFinished(reason)]


def _calls_of(reply: Reply) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(call.id or "", call.name, str(call.arguments)) for call in reply.calls)
