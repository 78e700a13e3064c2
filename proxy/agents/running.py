"""One run of an agent: from the prompt to its result.

Its turns are sent to a model of this process, through the same preparation as a client's request.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Literal, cast

from msgspec.structs import replace
from pydantic import TypeAdapter, ValidationError

from proxy.agents.model import Model, NoTracing, Spans
from proxy.agents.results import (
    AskedAgain,
    CallDelta,
    Output,
    Progress,
    RunEvent,
    RunResult,
    Text,
    Thought,
    Usage,
    usage_of,
)
from proxy.backends.client import Headers, ReplyEvents
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.replies import (
    EventSink,
    PromptProgress,
    ReasoningDelta,
    ReplyEvent,
    ReplyInProgress,
    ReplyStarted,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.conversation.requests import Request, UpstreamRequest
from proxy.conversation.tools import Tool, ToolCall
from proxy.conversation.workflows import NO_RULES, Workflow
from proxy.dialects.dialect import Client
from proxy.dialects.openai_chat.thinking import EFFORT
from proxy.errors import BackendTimedOut, GuardrailsExhausted, InvalidRequest
from proxy.facts import Asked, Compacted, Fact, RejectedReply, judged_attempts
from proxy.guardrails.transcript import list_completed_calls
from proxy.inference.driver import BackendPolicy, Batch, Failure, run_turn
from proxy.inference.turn import Turn
from proxy.profiles.known_model import knows_thoughts
from proxy.serving.admission import Priority
from proxy.serving.request_preparation import Planned
from proxy.serving.run_turns import RunTurns
from proxy.tools import executor
from proxy.tools.execution import Limits, run_together
from proxy.tools.run import Run, RunTerms, Stop
from proxy.tools.runner import carry_out
from proxy.tools.transcript import Append, Conversation, object_of


@dataclass(slots=True, kw_only=True)
class ModelTurns(RunTurns):
    """The turns of one run, which queue for a slot under `key`.

    `aliases` are further names of its tools. A turn may take `deadline` seconds, and a reply
    `attempts` generations, if given. `notify` receives events that precede the text of a turn,
    `show` the parts of calls, `spans` all attempts, and `report` their progress.
    """

    key: str
    deadline: float
    notify: Callable[[RunEvent], None]
    report: Callable[[Progress], object]
    spans: Spans
    show: Callable[[CallDelta], Awaitable[None]] | None = None
    attempts: int | None = None
    aliases: Mapping[str, str] = field(default_factory=dict)
    upstream: dict[str, str] = field(default_factory=dict)
    last_reply: "LastReply | None" = None
    epoch: int = 0  # the number of cuts that were reported
    priority: Priority = Priority.NORMAL

    @property
    def facts(self) -> tuple[Fact, ...]:
        return tuple(fact for turn in self.turns for fact in turn.facts)

    @property
    def usage(self) -> Usage:
        return usage_of(usage for turn in self.turns for usage in turn.spent)

    async def plan(self, request: Request) -> Planned:
        # without arguments `super` finds the class as it was before it had slots
        planned = await RunTurns.plan(self, request)
        plan = planned.plan
        if self.attempts is not None:
            plan = replace(plan, policy=replace(plan.policy, attempts=self.attempts))
            planned = replace(planned, plan=plan)
        if plan.offer is None or not self.aliases:
            return planned
        offer = replace(plan.offer, aliases={**plan.offer.aliases, **self.aliases})
        return replace(planned, plan=replace(plan, offer=offer))

    async def answer(self, turn: Turn) -> ReplyEvents:
        planned = self.planned
        service, known = planned.service, planned.known
        # All attempts of a turn go to one server of a pool: it has the prompt in its cache.
        backend = service.pin()
        self.last_reply = LastReply(self.report)
        policies = (service.fitting.learning(known.model, known.window), self.last_reply)
        names: dict[int, str] = {}
        for fact in turn.facts:
            if isinstance(fact, Compacted) and fact.epoch > self.epoch:
                self.epoch = fact.epoch
                self.notify(fact)
        async with service.admission.slot(self.key, self.priority):
            attempt = partial(self._attempt, turn)
            running = run_turn(turn, backend, planned.headers, attempt, policies=policies)
            async with aclosing(_within(running, self.deadline, backend.name)) as batches:
                async for batch in batches:
                    self.note(batch)
                    yield batch
                    if self.show is not None:  # after the text of the same batch
                        for delta in _call_deltas(batch, names):
                            await self.show(delta)

    def _attempt(self, turn: Turn, headers: Headers) -> AbstractContextManager[Headers]:
        defects = [fact.defect for fact in turn.facts if isinstance(fact, RejectedReply)]
        defect = defects[-1] if defects else None
        if self.last_reply is not None:
            self.last_reply.defect = defect or ""
        is_check = turn.facts[-1:] == (Asked("close_out"),)  # its answer was accepted
        if defect is not None and not is_check:
            self.notify(AskedAgain(defect))
        return self.spans.attempt(headers, len(self.turns), defect)


def _call_deltas(batch: Batch, names: dict[int, str]) -> Iterator[CallDelta]:
    """Yield the parts of calls in a batch; `names` holds the tools of the calls so far."""
    for event in batch:
        match event:
            case ToolCallStarted(index, _, name):
                names[index] = name
                yield CallDelta(index, name, "")
            case ToolCallArgumentsDelta(index, text):
                yield CallDelta(index, names.get(index, ""), text)
            case ToolCalled(index, call):
                yield CallDelta(index, call.name, call.arguments)
            case _:
                pass


class LastReply(BackendPolicy):
    """Stores the last reply as the backend sent it, and reports the progress of each attempt.

    `defect` is the reason of the current attempt, "" for the first one.
    """

    def __init__(self, report: Callable[[Progress], object] = lambda _: None) -> None:
        self.defect = ""
        self._is_reading = True
        self._report = report
        self._reply = ReplyInProgress()

    @property
    def raw(self) -> str:
        """The reply as the model wrote it, calls as `name(arguments)`."""
        reply = self._reply.finish("")
        return "\n".join(
            (reply.text, *(f"{call.name}({call.arguments})" for call in reply.calls))
        ).strip()

    def begin(self, upstream_request: UpstreamRequest, sink: EventSink | None) -> None:
        """Begin an attempt without the sink: content that it takes would be missing here."""
        del upstream_request, sink
        self._reply, self._is_reading = ReplyInProgress(), True
        self._report(Progress("reading", defect=self.defect))

    def receive(self, batch: Batch) -> tuple[Batch, Failure | None]:
        for event in batch:
            self._reply.add(event)
            if self._is_reading and not isinstance(event, ReplyStarted):
                self._is_reading = self._report_reading(event)
        return batch, None

    def _report_reading(self, event: ReplyEvent) -> bool:
        """Report the progress of an event; return whether the prompt is still being read."""
        # any other event shows that the prompt was read
        share = event.share if isinstance(event, PromptProgress) else 1.0
        is_reading = share < 1.0
        stage: Literal["reading", "generating"] = "reading" if is_reading else "generating"
        self._report(Progress(stage, share if is_reading else None, self.defect))
        return is_reading


async def _within(batches: ReplyEvents, seconds: float, backend: str) -> ReplyEvents:
    """Limit the duration of a reply; raises `BackendTimedOut` beyond it.

    Only waiting for the backend counts: the consumer between two batches must not be canceled.
    """
    end = asyncio.get_running_loop().time() + seconds
    async with aclosing(batches):
        while True:
            try:
                async with asyncio.timeout_at(end):
                    batch = await anext(batches)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                problem = f"did not finish within {seconds:g} s"
                raise BackendTimedOut(backend, problem, is_overall=True) from error
            yield batch


class JoinedTools:
    """Dispatches each call to the executor of its tool; raises ValueError for duplicate names."""

    def __init__(self, executors: Sequence[executor.Executor]) -> None:
        self._tools: dict[str, tuple[Tool, executor.Executor]] = {}
        for owner in executors:
            for spec in owner.specs():
                if spec.name in self._tools:
                    raise ValueError(f"two tools have the name {spec.name!r}")
                self._tools[spec.name] = spec, owner

    def specs(self) -> tuple[Tool, ...]:
        return tuple(spec for spec, _ in self._tools.values())

    async def execute(
        self, calls: Sequence[ToolCall], context: executor.RoundContext
    ) -> tuple[executor.Outcome, ...]:
        groups: dict[int, list[int]] = {}
        for index, call in enumerate(calls):
            groups.setdefault(id(self._tools[call.name][1]), []).append(index)
        outcomes: dict[int, executor.Outcome] = {}

        async def execute(indexes: list[int]) -> None:
            some = [calls[index] for index in indexes]
            _, owner = self._tools[some[0].name]
            outcomes.update(zip(indexes, await owner.execute(some, context), strict=True))

        await run_together(partial(execute, indexes) for indexes in groups.values())
        return tuple(outcomes[index] for index in range(len(calls)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Generic[Output]):
    """The task of a run, in its final form.

    `prompt` is the user's message, after the `conversation`. The `end_mark` is removed from the
    text. With `shows_calls`, calls are emitted while they are written.
    """

    model: Model
    tools: JoinedTools
    prompt: Message
    conversation: Conversation
    instructions: str = ""
    workflow: Workflow = NO_RULES
    output: TypeAdapter[Output] | None = None
    parameters: Mapping[str, JsonValue] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    name: str = "agent"
    end_mark: str = ""
    priority: Priority = Priority.NORMAL
    shows_calls: bool = False

    def request(self) -> Request:
        """Make the first request; raises `InvalidRequest` for invalid parameters."""
        # The decoder of requests checks the parameters and needs a message. The real messages are
        # typed already, and are added with their exact bytes.
        placeholder: JsonObject = {"role": "user", "content": ""}
        members: JsonObject = {**self.parameters, "messages": [placeholder]}
        if self.shows_calls:  # the guardrails release calls early only to a streaming client
            members["stream"] = True
        if specs := self.tools.specs():
            members["tools"] = [json.parse(spec.source) for spec in specs]
        if self.output is not None:
            schema: JsonObject = {"name": "answer", "schema": self.output.json_schema()}
            members["response_format"] = {"type": "json_schema", "json_schema": schema}
        request = replace(
            self.model.request(members),
            messages=(),
            workflow=self.workflow,
            checks_answer=self.output is not None,
        )
        messages = [*self.conversation.history, self.prompt]
        if self.instructions:
            system: JsonObject = {"role": "system", "content": self.instructions}
            messages.insert(0, Message("system", self.instructions, json.dump(system)))
        return request.append_messages(tuple(messages))


class Running(Generic[Output]):
    """A task in progress; `emit` receives all events, and `report` the progress."""

    def __init__(
        self,
        task: Task[Output],
        emit: Callable[[RunEvent], Awaitable[None]],
        report: Callable[[Progress], object],
    ) -> None:
        self._task = task
        self._emit = emit
        self._report = report
        self._run: Run | None = None
        self._turns: ModelTurns | None = None
        self._append: Append | None = None
        self._committed: list[Message] = []
        self._unreported: list[RunEvent] = []
        self._spans: Spans = NoTracing()
        self._is_cancelled = False
        self._is_interrupted = False
        self._task_in_progress: asyncio.Task[object] | None = None
        self._failure: GuardrailsExhausted | None = None

    def cancel(self) -> None:
        """End the run between two steps: the conversation can be continued."""
        if not self._is_cancelled:
            self._is_cancelled = True
            # A hook of the run itself may call this, and its own task must not be canceled here.
            asyncio.get_running_loop().call_soon(self._interrupt)

    def _interrupt(self) -> None:
        if self._task_in_progress is not None:
            self._is_interrupted = True
            self._task_in_progress.cancel()

    async def work(self) -> RunResult[Output]:
        """Do the task; raises exceptions of the backend, the request or a hook of the program."""
        with self._task.conversation.hold() as self._append:
            try:
                if not self._is_cancelled:
                    self._task_in_progress = asyncio.current_task()
                    await self._carry()
            except asyncio.CancelledError:
                # undo the cancellation of `cancel`; another one may remain
                doing = self._task_in_progress
                if not self._is_interrupted or doing is None or doing.uncancel() > 0:
                    raise
            except GuardrailsExhausted as failure:
                if self._run is None or self._run.stop is not Stop.EXHAUSTED:
                    raise
                # An end of the run like any other: the result says so, not an exception.
                self._failure = failure
                await self._show([TextDelta(self._run.text)])
            finally:
                self._task_in_progress = None
                added = self._run.added if self._run is not None else ()
                rest = added[max(0, len(self._committed) - 1) :]  # notes for calls, the last answer
                number = 0 if self._run is None else len(self._run.rounds)
                fresh = [event for message in rest for event in self._commit(message, number)]
            for added_event in fresh:
                await self._emit(added_event)
        return self._result()

    async def _carry(self) -> None:
        task, opened = self._task, self._task.model.opened
        with opened.budget.request() as ticket:
            async with opened.lease(task.request()) as resolved:
                named = resolved.request.model or resolved.service.title
                with opened.tracing.run(task.name, named) as self._spans:
                    turns = self._turns = ModelTurns(
                        preparation=opened.preparation,
                        resolved=resolved,
                        may_retry=ticket.may_retry,
                        key=f"{task.name} {secrets.token_hex(8)}",
                        deadline=opened.settings.backend.deadline_seconds,
                        notify=self._unreported.append,
                        report=self._report,
                        spans=self._spans,
                        show=self._show_call if task.shows_calls else None,
                        attempts=task.limits.attempts,
                        aliases=task.aliases,
                        priority=task.priority,
                    )
                    run = self._run = await self._make_run(turns, resolved.request)
                    await self._carry_out(run, turns)

    async def _carry_out(self, run: Run, turns: ModelTurns) -> None:
        carrying = carry_out(run, turns, self._task.tools, self._notice)
        try:
            async with aclosing(carrying) as batches:
                async for batch in batches:
                    await self._show(batch)
        finally:
            usage, stop = turns.usage, run.stop
            tokens = usage.prompt_tokens, usage.completion_tokens
            self._spans.finish("" if stop is None else stop.value, len(run.rounds), tokens)

    async def _make_run(self, turns: ModelTurns, request: Request) -> Run:
        """Fix the terms of the run; its rules may be those of the operator for this model.

        With a terminal tool, prose is not an answer: the run ends with a call of that tool.
        """
        planned = await turns.plan(request)
        _check_thinking(request, planned)
        offer, limits = planned.plan.offer, self._task.limits
        rules = NO_RULES if offer is None else offer.workflow
        if rules.terminal_tools:
            strict = Client(headers={"x-temper-text-policy": "require"})
            turns.resolved = replace(turns.resolved, client=strict)
        terms = RunTerms(
            frozenset(spec.name for spec in self._task.tools.specs()),
            rules,
            limits.rounds,
            limits.failed_rounds,
            limits.result_chars,
            planned.known.window,
        )
        return Run(request, terms)

    async def _notice(self, event: executor.RoundEvent) -> None:
        await self._report_retries()
        match event:
            case executor.Added(message, number):
                for added in self._commit(message, number):
                    await self._emit(added)
                return
            case executor.ToolStarted(call, number):
                self._spans.tool_started(call, number)
            case executor.ToolFinished(outcome):
                self._spans.tool_finished(outcome)
        await self._emit(event)

    async def _show_call(self, delta: CallDelta) -> None:
        await self._report_retries()
        await self._emit(delta)

    async def _report_retries(self) -> None:
        """Report retries before any event of the next attempt."""
        while self._unreported:
            await self._emit(self._unreported.pop(0))

    async def _show(self, batch: Sequence[ReplyEvent]) -> None:
        """Emit text of the model, except the text that a run without an answer ends with."""
        await self._report_retries()
        run = self._run
        is_answer = run is not None and run.stop not in (Stop.TERMINAL, Stop.FAILURES)
        for event in batch:
            match event:
                case TextDelta(text) if is_answer and text:
                    await self._emit(Text(text))
                case ReasoningDelta(text):
                    await self._emit(Thought(text))
                case _:
                    pass

    def _commit(self, message: Message, number: int) -> list[executor.Added]:
        """Add a message to the conversation; the user message precedes the first one."""
        assert self._append is not None  # noqa: S101 - it is held while the run goes on
        fresh = [executor.Added(message, number)]
        if not self._committed:
            fresh.insert(0, executor.Added(self._task.prompt))
        for added in fresh:
            self._append(added.message)
            self._committed.append(added.message)
        return fresh

    def _result(self) -> RunResult[Output]:
        run, turns, committed = self._run, self._turns, tuple(map(object_of, self._committed))
        conversation = self._task.conversation
        if run is None or turns is None or run.stop is None:  # canceled before the first request
            return RunResult(Stop.CANCELLED, None, "", (), committed, conversation)
        stop, text, defect, failure = run.stop, run.text, run.defect, self._failure
        if task_mark := self._task.end_mark:
            text = text.replace(task_mark, "").strip()
        output: object = None
        if run.output is not None:
            text = run.output.text
            output = text if run.output.value is None else run.output.value
        elif stop in (Stop.FAILURES, Stop.CANCELLED):
            text = ""
        elif stop in (Stop.ANSWERED, Stop.ROUNDS):
            try:
                # The schema was checked before; validators of a pydantic model are only known here.
                form = self._task.output
                output = text if form is None else form.validate_json(text)
            except ValidationError:
                stop, defect = Stop.EXHAUSTED, "invalid_answer"
        return RunResult(
            stop,
            cast("Output | None", output),
            text,
            run.rounds,
            committed,
            conversation,
            turns.usage,
            (*run.facts, *turns.facts),
            defect,
            objection="" if failure is None else failure.objection,
            attempts=len(judged_attempts(turns.turns[-1].facts)) if turns.turns else 0,
            reply="" if turns.last_reply is None else turns.last_reply.raw,
            required=_list_required(
                run.terms.workflow, "" if failure is None else failure.objection
            ),
            completed=self._find_completed(),
        )

    def _find_completed(self) -> tuple[str, ...]:
        """Return the successfully called tools, in the order of their first calls."""
        done = list_completed_calls(self._task.conversation.history)
        return tuple(dict.fromkeys(call.name for call in done if not call.has_failed))


def _check_thinking(request: Request, planned: Planned) -> None:
    """Raise `InvalidRequest` if a program requests reasoning that the model does not have.

    An engine ignores such a request, so that the program would not notice.
    """
    thinking, template = request.thinking, planned.known.evidence.template
    is_wanted = thinking.is_on or thinking.effort or thinking.budget
    if is_wanted and template and not knows_thoughts(template):
        name = planned.known.model or planned.service.title
        problem = f"The chat template of {name!r} does not support reasoning. Remove the setting."
        raise InvalidRequest(problem, EFFORT)


def _list_required(workflow: Workflow, early: str) -> tuple[str, ...]:
    """Return the required steps, and the prerequisites of a tool that was called too early."""
    needed = (rule.needs for rule in workflow.prerequisites if rule.tool == early)
    return tuple(dict.fromkeys((*workflow.required_steps, *needed)))
