"""One run of an agent: from the prompt to its result, whatever happens in between."""

import asyncio
import dataclasses
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, cast

from msgspec.structs import replace
from pydantic import TypeAdapter, ValidationError

from proxy.agents.model import Model
from proxy.agents.results import (
    AskedAgain,
    Output,
    RunEvent,
    RunResult,
    Text,
    Thought,
    usage_of,
)
from proxy.agents.tracing import NoTracing, Spans
from proxy.agents.turns import ModelTurns
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message
from proxy.conversation.replies import ReasoningDelta, ReplyEvent, TextDelta
from proxy.conversation.requests import Request
from proxy.conversation.tools import Tool, ToolCall
from proxy.conversation.workflows import NO_RULES, Workflow
from proxy.errors import GuardrailsExhausted
from proxy.inference.retry_budget import RetryTicket
from proxy.runner import carry_out
from proxy.serving.request_preparation import ParsedRequest
from proxy.tool_rounds.executor import (
    Added,
    Executor,
    Outcome,
    RoundContext,
    RoundEvent,
    ToolFinished,
    ToolStarted,
)
from proxy.tool_rounds.run import Run
from proxy.tool_rounds.terms import RunTerms, Stop
from proxy.tool_rounds.transcript import Append, Conversation, object_of
from proxy.tools.execution import Limits, run_together


class JoinedTools:
    """Has each call executed by whoever offers its tool; raises ValueError for double names."""

    def __init__(self, executors: Sequence[Executor]) -> None:
        self._specs: list[Tool] = []
        self._executors: dict[str, Executor] = {}
        for executor in executors:
            for spec in executor.specs():
                if spec.name in self._executors:
                    raise ValueError(f"two tools are called {spec.name!r}")
                self._executors[spec.name] = executor
                self._specs.append(spec)

    def specs(self) -> tuple[Tool, ...]:
        return tuple(self._specs)

    async def execute(
        self, calls: Sequence[ToolCall], context: RoundContext
    ) -> tuple[Outcome, ...]:
        groups: dict[int, list[int]] = {}
        for place, call in enumerate(calls):
            groups.setdefault(id(self._executors[call.name]), []).append(place)
        outcomes: dict[int, Outcome] = {}

        async def execute(places: list[int]) -> None:
            some = [calls[place] for place in places]
            executor = self._executors[some[0].name]
            outcomes.update(zip(places, await executor.execute(some, context), strict=True))

        await run_together(partial(execute, places) for places in groups.values())
        return tuple(outcomes[place] for place in range(len(calls)))


_PLACEHOLDER: JsonObject = {"role": "user", "content": ""}
_INVALID = "invalid_answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task(Generic[Output]):
    """What an agent is to do: all that stays the same while it runs.

    `said` is the user's message, behind the `conversation`. `emit` gets all that is shown.
    """

    model: Model
    tools: JoinedTools
    said: Message
    conversation: Conversation
    emit: Callable[[RunEvent], Awaitable[None]]
    instructions: str = ""
    workflow: Workflow = NO_RULES
    output: TypeAdapter[Output] | None = None
    parameters: Mapping[str, JsonValue] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    name: str = "agent"

    def request(self) -> Request:
        """Make the first request; raises `InvalidRequest` for parameters that are none."""
        members: JsonObject = {**self.parameters, "messages": [_PLACEHOLDER]}
        if specs := self.tools.specs():
            members["tools"] = [json.parse(spec.source) for spec in specs]
        if self.output is not None:
            schema: JsonObject = {"name": "answer", "schema": self.output.json_schema()}
            members["response_format"] = {"type": "json_schema", "json_schema": schema}
        request = replace(self.model.request(members), messages=(), workflow=self.workflow)
        system = (_system(self.instructions),) if self.instructions else ()
        return request.append_messages((*system, *self.conversation.history, self.said))


class Running(Generic[Output]):
    """A task that is being done."""

    def __init__(self, task: Task[Output]) -> None:
        self._task = task
        self._run: Run | None = None
        self._turns: ModelTurns | None = None
        self._append: Append | None = None
        self._committed: list[Message] = []
        self._retries: list[str] = []
        self._spans: Spans = NoTracing()
        self._is_cancelled = False
        self._is_interrupted = False
        self._doing: asyncio.Task[object] | None = None

    def cancel(self) -> None:
        """End it in good order: the result says so, and the conversation can be gone on with."""
        if not self._is_cancelled:
            self._is_cancelled = True
            # it may be a hook of the run itself that cancels, behind which nothing is waited for
            asyncio.get_running_loop().call_soon(self._interrupt)

    def _interrupt(self) -> None:
        if self._doing is not None:
            self._is_interrupted = True
            self._doing.cancel()

    async def work(self) -> RunResult[Output]:
        """Do the task; raises what a backend, a request or a hook of the program raises."""
        with self._task.conversation.hold() as self._append:
            try:
                if not self._is_cancelled:
                    self._doing = asyncio.current_task()
                    await self._carry()
            except asyncio.CancelledError:
                if not self._is_interrupted or self._take_back_cancellation():
                    raise
            except GuardrailsExhausted:
                if self._run is None or self._run.stop is not Stop.EXHAUSTED:
                    raise
            finally:
                self._doing = None
                fresh = self._commit_rest()
            for message in fresh:
                await self._task.emit(Added(message))
        return self._result()

    def _take_back_cancellation(self) -> bool:
        """Take back our own cancellation; tell whether somebody else's is left."""
        assert self._doing is not None  # noqa: S101 - it is the one that works
        return self._doing.uncancel() > 0

    async def _carry(self) -> None:
        task, opened = self._task, self._task.model.opened
        with opened.budget.request() as ticket:
            async with opened.lease(task.request()) as parsed:
                named = parsed.request.model or parsed.service.title
                with opened.tracing.run(task.name, named) as self._spans:
                    turns = self._turns = self._make_turns(parsed, ticket)
                    run = self._run = await self._make_run(turns, parsed.request)
                    try:
                        await self._carry_out(run, turns)
                    finally:
                        self._trace(run)

    async def _carry_out(self, run: Run, turns: ModelTurns) -> None:
        carrying = carry_out(run, turns, self._task.tools, self._notice)
        async with aclosing(carrying) as batches:
            async for batch in batches:
                await self._show(batch)

    def _trace(self, run: Run) -> None:
        usage, stop = usage_of(run.usages), run.stop
        tokens = usage.prompt_tokens, usage.completion_tokens
        self._spans.finish("" if stop is None else stop.value, len(run.rounds), tokens)

    def _make_turns(self, parsed: ParsedRequest, ticket: RetryTicket) -> ModelTurns:
        task, opened = self._task, self._task.model.opened
        return ModelTurns(
            preparation=opened.preparation,
            parsed=parsed,
            may_retry=ticket.may_retry,
            key=f"{task.name} {secrets.token_hex(8)}",
            deadline=opened.settings.backend.deadline_seconds,
            on_retry=self._retries.append,
            spans=self._spans,
            aliases=task.aliases,
        )

    async def _make_run(self, turns: ModelTurns, request: Request) -> Run:
        """Fix the terms: rules may be the operator's, and a terminal tool makes prose no answer."""
        prepared = await turns.prepare(request)
        offer, limits = prepared.plan.offer, self._task.limits
        rules = NO_RULES if offer is None else offer.workflow
        if rules.terminal_tools:
            turns.demand_calls()
        terms = RunTerms(
            frozenset(spec.name for spec in self._task.tools.specs()),
            rules,
            limits.rounds,
            limits.failed_rounds,
            limits.result_chars,
            prepared.known.window,
        )
        return Run(request, terms)

    async def _notice(self, event: RoundEvent) -> None:
        match event:
            case Added(message):
                for fresh in self._commit(message):
                    await self._task.emit(Added(fresh))
                return
            case ToolStarted(call, number):
                self._spans.tool_started(call, number)
            case ToolFinished(outcome):
                self._spans.tool_finished(outcome)
        await self._task.emit(event)

    async def _show(self, batch: Sequence[ReplyEvent]) -> None:
        """Show what the model says; what ends a run in its place is in the result."""
        await self._show_retries()
        run = self._run
        is_said = run is not None and run.stop not in (Stop.TERMINAL, Stop.FAILURES)
        for event in batch:
            match event:
                case TextDelta(text) if is_said:
                    await self._task.emit(Text(text))
                case ReasoningDelta(text):
                    await self._task.emit(Thought(text))
                case _:
                    pass

    async def _show_retries(self) -> None:
        while self._retries:
            await self._task.emit(AskedAgain(self._retries.pop(0)))

    def _commit(self, message: Message) -> list[Message]:
        """Add a message to the conversation, before the first one what the user said."""
        assert self._append is not None  # noqa: S101 - it is held while the run goes on
        fresh = [message] if self._committed else [self._task.said, message]
        for one in fresh:
            self._append(one)
        self._committed += fresh
        return fresh

    def _commit_rest(self) -> list[Message]:
        """Add what was committed when the run ended: notes for calls, the last answer."""
        added = self._run.added if self._run is not None else ()
        rest = added[max(0, len(self._committed) - 1) :]
        return [one for message in rest for one in self._commit(message)]

    def _result(self) -> RunResult[Output]:
        run, committed = self._run, tuple(map(object_of, self._committed))
        talk = self._task.conversation
        if run is None or run.stop is None:
            return RunResult(Stop.CANCELLED, None, "", (), committed, talk)
        result: RunResult[Output] = RunResult(
            run.stop,
            None,
            "" if run.stop in (Stop.FAILURES, Stop.CANCELLED) else run.text,
            run.rounds,
            committed,
            talk,
            usage_of(run.usages),
            (*run.facts, *(self._turns.facts if self._turns is not None else ())),
            run.defect,
        )
        return self._with_output(result, run)

    def _with_output(self, result: RunResult[Output], run: Run) -> RunResult[Output]:
        """Add the answer in its form; one that the form does not take is no valid reply."""
        if run.output is not None:
            value = run.output.text if run.output.value is None else run.output.value
            return dataclasses.replace(result, output=cast("Output", value), text=run.output.text)
        if result.stop not in (Stop.ANSWERED, Stop.ROUNDS):
            return result
        if self._task.output is None:
            return dataclasses.replace(result, output=cast("Output", result.text))
        try:
            answer = self._task.output.validate_json(result.text)
        except ValidationError:
            return dataclasses.replace(result, stop=Stop.EXHAUSTED, defect=_INVALID)
        return dataclasses.replace(result, output=answer)


def _system(text: str) -> Message:
    return Message("system", text, json.dump({"role": "system", "content": text}))
