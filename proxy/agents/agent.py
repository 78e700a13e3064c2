"""An agent: a model, tools, and what it is told; the loop between them is a run."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import groupby
from typing import Generic, Literal

from pydantic import TypeAdapter
from typing_extensions import TypeIs, TypeVar

from proxy.agents.model import Model
from proxy.agents.results import Output, RunResult
from proxy.agents.running import JoinedTools, Task
from proxy.agents.stream import Hooks, RunStream, open_stream
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.messages import Message, user_message
from proxy.conversation.workflows import NO_RULES, Workflow, contradictions
from proxy.dialects.openai_chat.decode import decode_messages
from proxy.serving.admission import Priority
from proxy.tools.execution import Limits
from proxy.tools.executor import Executor
from proxy.tools.function import FunctionTool, expect
from proxy.tools.signature import Function
from proxy.tools.toolset import Toolset
from proxy.tools.transcript import Conversation

Deps = TypeVar("Deps", default=None)

_NO_HOOKS = Hooks()


@dataclass(frozen=True)
class Agent(Generic[Deps, Output]):
    """What runs have in common: write it down once, and run it as often as you like.

    `tools` are functions, `@tool`s, toolsets and whatever else executes calls. `instructions` stand
    before every conversation. A `workflow` says which tools are called in which order; without one
    the operator's rules for the model count. `output` is a type that the answer has to have.
    `parameters` are further members of each request, such as `temperature`, or `id_slot` to keep to
    one slot of a llama-server. An `end_mark`, such as TASK_COMPLETE, is what the instructions want
    behind the last answer; it is left out of the result. Of agents that wait for a slot those of a
    higher `priority` come first. Raises ValueError for rules that nobody can keep.
    """

    model: Model
    tools: Sequence[FunctionTool | Function | Toolset | Executor] = ()
    instructions: str = ""
    workflow: Workflow = NO_RULES
    output: type[Output] | None = None
    name: str = "agent"
    parameters: Mapping[str, JsonValue] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    end_mark: str = ""
    priority: Literal["high", "normal", "low"] = "normal"

    def __post_init__(self) -> None:
        self._check_forms()
        for place, problem in contradictions(self._rules):
            raise ValueError(f"workflow.{place}: {problem}")
        merged = [*self._merge_groups()]
        if all(isinstance(one, Toolset) for one in merged):  # servers may not have begun
            self._bind(None, _NO_HOOKS)

    def _check_forms(self) -> None:
        model: object = self.model
        if not isinstance(model, Model):
            remedy = f"Agent(Model({model!r}), ...)" if isinstance(model, str) else "Agent(Model())"
            raise TypeError(f"an agent's model is a Model, not {model!r:.60}: write {remedy}")
        tools: object = self.tools
        if callable(tools) or isinstance(tools, str):
            raise TypeError("an agent's tools are a list: write Agent(model, [function])")
        for name, kind, form in (
            ("instructions", str, "a text"),
            ("workflow", Workflow, "a Workflow"),
            ("parameters", Mapping, "a dictionary of further members of each request"),
            ("limits", Limits, "a Limits"),
        ):
            expect(f"Agent.{name}", getattr(self, name), kind, form)
        output: object = self.output
        if isinstance(output, str | int | float | list | tuple | dict):
            raise TypeError(f"Agent.output is a type, such as a model of pydantic, not {output!r}")
        known = [one.value for one in Priority]
        if self.priority not in known:
            raise ValueError(f"Agent.priority is one of {', '.join(known)}, not {self.priority!r}")

    async def run(
        self,
        prompt: str | Sequence[JsonObject],
        *,
        conversation: Conversation | None = None,
        deps: Deps | None = None,
        cancel: asyncio.Event | None = None,
        hooks: Hooks = _NO_HOOKS,
        prompt_vars: Mapping[str, object] | None = None,
    ) -> RunResult[Output]:
        """Answer what a user says: a text, or content parts in the form of the chat API.

        It goes on with a `conversation`, and adds to it what is said and done. `deps` is what tools
        find in their context. `prompt_vars` fill the places of `instructions` that stand in braces.
        When `cancel` is set, it ends in good order. Raises `BackendFailed`
        and `InvalidRequest` kinds of errors, and what `hooks` raise; how else it ended is in the
        result.
        """
        running = self.stream(
            prompt,
            conversation=conversation,
            deps=deps,
            cancel=cancel,
            hooks=hooks,
            prompt_vars=prompt_vars,
        )
        async with running as stream:
            async for _ in stream:
                pass
            return stream.result

    def run_sync(
        self,
        prompt: str | Sequence[JsonObject],
        *,
        conversation: Conversation | None = None,
        deps: Deps | None = None,
        hooks: Hooks = _NO_HOOKS,
        prompt_vars: Mapping[str, object] | None = None,
    ) -> RunResult[Output]:
        """Do as `run`, in the thread of a model that was opened by `with`; also in notebooks."""
        work = partial(
            self.run,
            prompt,
            conversation=conversation,
            deps=deps,
            hooks=hooks,
            prompt_vars=prompt_vars,
        )
        future = self.model.portal.start_task_soon(work)
        try:
            return future.result()
        except BaseException:  # KeyboardInterrupt ends the wait, and has to end the work
            future.cancel()
            raise

    def stream(
        self,
        prompt: str | Sequence[JsonObject],
        *,
        conversation: Conversation | None = None,
        deps: Deps | None = None,
        cancel: asyncio.Event | None = None,
        hooks: Hooks = _NO_HOOKS,
        prompt_vars: Mapping[str, object] | None = None,
    ) -> AbstractAsyncContextManager[RunStream[Output]]:
        """Do as `run`, and show what is said and done as it comes; leaving the block ends it."""
        task: Task[Output] = Task(
            model=self.model,
            tools=self._bind(deps, hooks),
            said=_read_prompt(prompt),
            conversation=Conversation() if conversation is None else conversation,
            instructions=_fill(self.instructions, prompt_vars),
            workflow=self._rules,
            output=None if self.output is None else TypeAdapter(self.output),
            parameters=self.parameters,
            aliases=self._aliases,
            limits=self.limits,
            name=self.name,
            end_mark=self.end_mark,
            priority=Priority(self.priority),
        )
        return open_stream(task, hooks, cancel)

    @cached_property
    def _groups(self) -> tuple[Toolset | Executor, ...]:
        """The tools by who executes them, in their order."""
        return tuple(one if _executes(one) else Toolset([one]) for one in self.tools)

    def _merge_groups(self) -> Iterator[Toolset | Executor]:
        """Make one toolset of those in a row: if a tool wants an order, all their calls have it."""
        for is_plain, some in groupby(self._groups, lambda one: type(one) is Toolset):
            if is_plain:
                yield Toolset(tool for one in some if isinstance(one, Toolset) for tool in one)
            else:
                yield from some

    @cached_property
    def _rules(self) -> Workflow:
        """The workflow, with the prerequisites that the tools came with."""
        sets = [one for one in self._groups if isinstance(one, Toolset)]
        own = [rule for one in sets for rule in one.prerequisites]
        more = [rule for rule in own if rule not in self.workflow.prerequisites]
        known = tuple(self.workflow.prerequisites)
        return replace(self.workflow, prerequisites=(*known, *more)) if more else self.workflow

    @property
    def _aliases(self) -> Mapping[str, str]:
        sets = (one for one in self._groups if isinstance(one, Toolset))
        return {alias: name for one in sets for alias, name in one.aliases.items()}

    def _bind(self, deps: Deps | None, hooks: Hooks) -> JoinedTools:
        """Return the tools for a run; raises ValueError for rules about tools there are not."""
        joined = JoinedTools(
            [
                one.bound(deps, self.limits, hooks.approve) if isinstance(one, Toolset) else one
                for one in self._merge_groups()
            ]
        )
        names = [spec.name for spec in joined.specs()]
        for place, name in self._rules.tools():
            if name not in names:
                known = ", ".join(names) or "none"
                raise ValueError(f"workflow.{place}: there is no tool {name!r}, only {known}")
        return joined


def _executes(tool: FunctionTool | Function | Toolset | Executor) -> TypeIs[Toolset | Executor]:
    return hasattr(tool, "execute") and hasattr(tool, "specs")


def _fill(instructions: str, values: Mapping[str, object] | None) -> str:
    """Fill the places in braces; raises ValueError for one that has no value."""
    if values is None:
        return instructions
    try:
        return instructions.format_map(values)
    except KeyError as missing:
        problem = (
            f"the instructions have a place {{{missing.args[0]}}} that prompt_vars do not fill"
        )
        raise ValueError(problem) from None


def _read_prompt(prompt: str | Sequence[JsonObject]) -> Message:
    if isinstance(prompt, str):
        return user_message(prompt)
    given: object = prompt  # of a program that no type checker has read
    if not isinstance(given, Sequence):
        kind = type(given).__name__
        raise TypeError(f"a prompt is a text or a list of content parts, not {kind}")
    if any(isinstance(part, dict) and "role" in part for part in given):
        problem = "a prompt is what the user says now, and no list of messages"
        raise ValueError(f"{problem}: give those before it as conversation=Conversation.of(...)")
    parts: list[JsonValue] = [*prompt]
    (message,) = decode_messages([json.dump({"role": "user", "content": parts})])
    return message
