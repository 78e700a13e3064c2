"""One run of an agent: from the prompt to its result.

The turns of a run are prepared like requests of a client, but without HTTP.
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
from proxy.tools.run import Run, RunConfig, Stop
from proxy.tools.runner import carry_out
from proxy.tools.transcript import Append, Conversation, object_of


@dataclass(slots=True, kw_only=True)
class ModelTurns(RunTurns):
    """The turns of one run, which wait for a slot under the queue key `key`.

    `aliases` are additional names of tools. A turn ends after `deadline` seconds, and has at most
    `attempts` generations; None means the setting. `notify` receives each retry or compaction
    before any text of the next attempt. `show` receives the parts of calls, `spans` all attempts,
    and `report` the progress of attempts.
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
    epoch: int = 0  # the number of compactions that `notify` has received
    priority: Priority = Priority.NORMAL

    @property
    def facts(self) -> tuple[Fact, ...]:
        return tuple(fact for turn in self.turns for fact in turn.facts)

    @property
    def usage(self) -> Usage:
        return usage_of(usage for turn in self.turns for usage in turn.spent)

    async def plan(self, request: Request) -> Planned:
        # not `super()`: `slots=True` creates a second class, and `super()` uses the first
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
        # all attempts of a turn go to the same server of a pool, because it has cached the prompt
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
            async with aclosing(_limit_duration(running, self.deadline, backend.name)) as batches:
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
        # a close-out check is a second request after an accepted reply, so it is not a retry
        is_check = turn.facts[-1:] == (Asked("close_out"),)
        if defect is not None and not is_check:
            self.notify(AskedAgain(defect))
        return self.spans.attempt(headers, len(self.turns), defect)


def _call_deltas(batch: Batch, names: dict[int, str]) -> Iterator[CallDelta]:
    """Yield the parts of calls in a batch; `names` stores the tool names by call index."""
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

    `defect` is the reason for the current attempt, "" for the first attempt.
    """

    def __init__(self, report: Callable[[Progress], object] = lambda _: None) -> None:
        self.defect = ""
        self._is_reading = True
        self._report = report
        self._reply = ReplyInProgress()

    @property
    def raw(self) -> str:
        """The reply as the model wrote it; a call is written as `name(arguments)`."""
        reply = self._reply.finish("")
        return "\n".join(
            (reply.text, *(f"{call.name}({call.arguments})" for call in reply.calls))
        ).strip()

    def begin(self, upstream_request: UpstreamRequest, sink: EventSink | None) -> None:
        """Begin an attempt; `sink` is not used, because `raw` must contain the whole reply."""
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
        """Report the progress after an event; return whether the prompt is still being read."""
        # any other event shows that the engine has read the whole prompt
        share = event.share if isinstance(event, PromptProgress) else 1.0
        is_reading = share < 1.0
        stage: Literal["reading", "generating"] = "reading" if is_reading else "generating"
        self._report(Progress(stage, share if is_reading else None, self.defect))
        return is_reading


async def _limit_duration(batches: ReplyEvents, seconds: float, backend: str) -> ReplyEvents:
    """Limit the duration of a reply; raises `BackendTimedOut` after `seconds`.

    The timeout cancels only the wait for a batch, not the consumer that processes the batch.
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
    """Passes each call to the executor of its tool; raises ValueError for duplicate tool names."""

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
            group = [calls[index] for index in indexes]
            _, owner = self._tools[group[0].name]
            outcomes.update(zip(indexes, await owner.execute(group, context), strict=True))

        await run_together(partial(execute, indexes) for indexes in groups.values())
        return tuple(outcomes[index] for index in range(len(calls)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Generic[Output]):
    """The checked arguments of a run; see `Agent` and `Agent.stream`.

    `prompt` is the user's message, which follows the `conversation`.
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
        """Create the first request; raises `InvalidRequest` for invalid parameters."""
        # The decoder checks the parameters, and it requires a message. The real messages are
        # decoded already; they are added later, so that they keep their exact bytes.
        placeholder: JsonObject = {"role": "user", "content": ""}
        members: JsonObject = {**self.parameters, "messages": [placeholder]}
        if self.shows_calls:  # the guardrails stream calls only if the client streams
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
    """A task in progress; `report` receives its progress, and `emit` receives all other events."""

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
        """End the run after its current step, so that the conversation can be continued."""
        if not self._is_cancelled:
            self._is_cancelled = True
            # `call_soon`, because a hook may call this method in the task that is to be canceled
            asyncio.get_running_loop().call_soon(self._interrupt)

    def _interrupt(self) -> None:
        if self._task_in_progress is not None:
            self._is_interrupted = True
            self._task_in_progress.cancel()

    async def work(self) -> RunResult[Output]:
        """Run to the end; raises exceptions of the backend, of the request or of a hook."""
        with self._task.conversation.hold() as self._append:
            try:
                if not self._is_cancelled:
                    self._task_in_progress = asyncio.current_task()
                    await self._run_with_model()
            except asyncio.CancelledError:
                # The method `cancel` has canceled this task. Undo that, but raise the exception if
                # the program has also canceled the task.
                current = self._task_in_progress
                if not self._is_interrupted or current is None or current.uncancel() > 0:
                    raise
            except GuardrailsExhausted as failure:
                if self._run is None or self._run.stop is not Stop.EXHAUSTED:
                    raise
                # not raised: like any other end of a run, it is reported in the result
                self._failure = failure
                await self._show([TextDelta(self._run.text)])
            finally:
                self._task_in_progress = None
                added = self._run.added if self._run is not None else ()
                # If `carry_out` is interrupted, it cannot report its last messages, such as the
                # notes for calls that were not executed. They are committed here.
                uncommitted = added[max(0, len(self._committed) - 1) :]
                number = 0 if self._run is None else len(self._run.rounds)
                events = [
                    event for message in uncommitted for event in self._commit(message, number)
                ]
            for added_event in events:
                await self._emit(added_event)
        return self._result()

    async def _run_with_model(self) -> None:
        task, opened = self._task, self._task.model.opened
        with opened.budget.request() as ticket:
            async with opened.lease(task.request()) as resolved:
                model = resolved.request.model or resolved.service.title
                with opened.tracing.run(task.name, model) as self._spans:
                    turns = self._turns = ModelTurns(
                        preparation=opened.preparation,
                        resolved=resolved,
                        may_retry=ticket.may_retry,
                        # each run has a separate queue key, because keys take turns to get a slot
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
                    run = self._run = await self._create_run(turns, resolved.request)
                    await self._run_to_end(run, turns)

    async def _run_to_end(self, run: Run, turns: ModelTurns) -> None:
        try:
            async with aclosing(carry_out(run, turns, self._task.tools, self._notice)) as batches:
                async for batch in batches:
                    await self._show(batch)
        finally:
            usage, stop = turns.usage, run.stop
            tokens = usage.prompt_tokens, usage.completion_tokens
            self._spans.finish("" if stop is None else stop.value, len(run.rounds), tokens)

    async def _create_run(self, turns: ModelTurns, request: Request) -> Run:
        """Create the run with its limits, and with the rules of the agent or else of the operator.

        If the rules contain a terminal tool, text is not an answer: the run ends with a call of
        that tool.
        """
        planned = await turns.plan(request)
        _check_thinking(request, planned)
        offer, limits = planned.plan.offer, self._task.limits
        rules = NO_RULES if offer is None else offer.workflow
        if rules.terminal_tools:
            # the policy applies to this run only, so it is set by a header, as a client would do
            client = Client(headers={"x-temper-text-policy": "require"})
            turns.resolved = replace(turns.resolved, client=client)
        config = RunConfig(
            frozenset(spec.name for spec in self._task.tools.specs()),
            rules,
            limits.rounds,
            limits.failed_rounds,
            limits.result_chars,
            planned.known.window,
        )
        return Run(request, config)

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
        """Emit the retries, which must precede any event of the next attempt."""
        while self._unreported:
            await self._emit(self._unreported.pop(0))

    async def _show(self, batch: Sequence[ReplyEvent]) -> None:
        """Emit the model's reasoning, and also its text if the run can end with a text answer."""
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
        """Append a message to the conversation; the first call also appends the user's message."""
        assert self._append is not None  # noqa: S101 - `work` has set it
        events = [executor.Added(message, number)]
        if not self._committed:
            events.insert(0, executor.Added(self._task.prompt))
        for added in events:
            self._append(added.message)
            self._committed.append(added.message)
        return events

    def _result(self) -> RunResult[Output]:
        run, turns, committed = self._run, self._turns, tuple(map(object_of, self._committed))
        conversation = self._task.conversation
        if run is None or turns is None or run.stop is None:  # canceled before the first request
            return RunResult(Stop.CANCELLED, None, "", (), committed, conversation)
        stop, text, defect, failure = run.stop, run.text, run.defect, self._failure
        # the mark shows only that the model has finished, and is not part of the answer
        if end_mark := self._task.end_mark:
            text = text.replace(end_mark, "").strip()
        output: object = None
        if run.output is not None:
            text = run.output.text
            # if a terminal tool returns no value, the output is the text of its result
            output = text if run.output.value is None else run.output.value
        elif stop in (Stop.FAILURES, Stop.CANCELLED):
            text = ""  # the text of the last reply is not an answer
        elif stop in (Stop.ANSWERED, Stop.ROUNDS):
            try:
                # The guardrails have checked the schema. The validators of the type run only here.
                output_type = self._task.output
                output = text if output_type is None else output_type.validate_json(text)
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
                run.config.workflow, "" if failure is None else failure.objection
            ),
            completed=self._find_completed(),
        )

    def _find_completed(self) -> tuple[str, ...]:
        """Return the successfully called tools, in the order of their first calls."""
        completed = list_completed_calls(self._task.conversation.history)
        return tuple(dict.fromkeys(call.name for call in completed if not call.has_failed))


def _check_thinking(request: Request, planned: Planned) -> None:
    """Raise `InvalidRequest` if a program requests reasoning that the model does not support.

    Engines ignore such a request, so the program would not notice its mistake.
    """
    thinking, template = request.thinking, planned.known.evidence.template
    is_requested = thinking.is_on or thinking.effort or thinking.budget
    if is_requested and template and not knows_thoughts(template):
        name = planned.known.model or planned.service.title
        problem = f"The chat template of {name!r} does not support reasoning. Remove the setting."
        raise InvalidRequest(problem, EFFORT)


def _list_required(workflow: Workflow, premature_tool: str) -> tuple[str, ...]:
    """Return the required steps, and the prerequisites of a tool that was called too early."""
    prerequisites = (rule.needs for rule in workflow.prerequisites if rule.tool == premature_tool)
    return tuple(dict.fromkeys((*workflow.required_steps, *prerequisites)))
