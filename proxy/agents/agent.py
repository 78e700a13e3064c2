"""An agent: a model, tools and instructions. A run is the loop of model replies and tool calls.

@tool
def weather(city: str) -> str:
    "Get the weather of a city."

async with Model("http://127.0.0.1:8080") as model:
    result = await Agent(model, [weather]).run("How warm is it in Rome?")
    result.text
"""

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
    """The configuration that runs share.

    `tools` are functions, `@tool`s, toolsets, and other executors. `instructions` are the system
    message. `workflow` contains rules for the order of tool calls; by default, the operator's rules
    for the model apply. `output` is the type of the answer. `parameters` are additional members of
    each request, such as `temperature`, or `id_slot` to use one slot of a llama-server. If the
    instructions demand an `end_mark` after the last answer, such as TASK_COMPLETE, the mark is
    removed from the result. Waiting runs with a higher `priority` get a slot first. Raises
    ValueError for contradictory rules.
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
        self._check_types()
        for field_name, problem in contradictions(self._rules):
            raise ValueError(f"workflow.{field_name}: {problem}")
        # The tools are bound here, so that mistakes are reported when the agent is created, not
        # only when a model calls a tool. Other executors, such as tool servers, are checked later,
        # because they know their tools only after they have started.
        merged = [*self._merge_groups()]
        if all(isinstance(group, Toolset) for group in merged):
            self._bind(None, _NO_HOOKS)

    def _check_types(self) -> None:
        # Programs without a type checker pass a URL instead of a Model, or a function instead of a
        # list of tools.
        model: object = self.model
        if not isinstance(model, Model):
            remedy = f"Agent(Model({model!r}), ...)" if isinstance(model, str) else "Agent(Model())"
            raise TypeError(f"Agent.model must be a Model, not {model!r:.60}: write {remedy}")
        tools: object = self.tools
        if callable(tools) or isinstance(tools, str):
            raise TypeError("Agent.tools must be a list: write Agent(model, [function])")
        for name, kind, description in (
            ("instructions", str, "a text"),
            ("workflow", Workflow, "a Workflow"),
            ("parameters", Mapping, "a dictionary of additional fields for each request"),
            ("limits", Limits, "a Limits"),
        ):
            expect(f"Agent.{name}", getattr(self, name), kind, description)
        output: object = self.output
        if isinstance(output, str | int | float | list | tuple | dict):
            problem = "Agent.output must be a type, such as a pydantic model"
            raise TypeError(f"{problem}, not {output!r}")
        known = [priority.value for priority in Priority]
        if self.priority not in known:
            problem = f"Agent.priority must be one of {', '.join(known)}"
            raise ValueError(f"{problem}, not {self.priority!r}")

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
        """Answer a prompt: a text, or content parts of the chat API.

        The run continues `conversation` and appends its messages to it. Tools get `deps` in their
        context. `prompt_vars` are values for placeholders like {name} in `instructions`. If
        `cancel` is set, the run ends after its current step. Raises `BackendFailed`,
        `InvalidRequest`, and exceptions of `hooks`; every other failure is reported in the result.
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
        """Like `run`, for code without `await`; the model must have been opened with `with`.

        The run is executed in the model's thread.
        """
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
        except BaseException:  # for example Ctrl-C: without this, the thread would finish the run
            future.cancel()
            raise

    def stream(  # noqa: PLR0913 - all but the first are keyword arguments
        self,
        prompt: str | Sequence[JsonObject],
        *,
        conversation: Conversation | None = None,
        deps: Deps | None = None,
        cancel: asyncio.Event | None = None,
        hooks: Hooks = _NO_HOOKS,
        prompt_vars: Mapping[str, object] | None = None,
        shows_calls: bool = False,
    ) -> AbstractAsyncContextManager[RunStream[Output]]:
        """Like `run`, but yields events while they happen; leaving the block ends the run.

        With `shows_calls`, the parts of calls are events, too (`CallDelta`). Events are never
        retracted, so if parts of a call were shown, a retry must complete the same call.
        """
        task: Task[Output] = Task(
            model=self.model,
            tools=self._bind(deps, hooks),
            prompt=_read_prompt(prompt),
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
            shows_calls=shows_calls,
        )
        return open_stream(task, hooks, cancel)

    @cached_property
    def _groups(self) -> tuple[Toolset | Executor, ...]:
        """An executor for each entry of `tools`; a function becomes a toolset with one tool."""
        return tuple(tool if _executes(tool) else Toolset([tool]) for tool in self.tools)

    def _merge_groups(self) -> Iterator[Toolset | Executor]:
        """Merge adjacent toolsets.

        A tool without `parallel` must serialize the calls of all tools in `tools`. A toolset
        serializes only its own calls, so separate toolsets would not be enough.
        """
        for is_plain, groups in groupby(self._groups, lambda group: type(group) is Toolset):
            if is_plain:
                yield Toolset(
                    tool for group in groups if isinstance(group, Toolset) for tool in group
                )
            else:
                yield from groups

    @cached_property
    def _rules(self) -> Workflow:
        """The agent's workflow, with the prerequisites that its tools declare."""
        toolsets = [group for group in self._groups if isinstance(group, Toolset)]
        declared = [rule for tools in toolsets for rule in tools.prerequisites]
        added = [rule for rule in declared if rule not in self.workflow.prerequisites]
        known = tuple(self.workflow.prerequisites)
        return replace(self.workflow, prerequisites=(*known, *added)) if added else self.workflow

    @property
    def _aliases(self) -> Mapping[str, str]:
        toolsets = (group for group in self._groups if isinstance(group, Toolset))
        return {alias: name for tools in toolsets for alias, name in tools.aliases.items()}

    def _bind(self, deps: Deps | None, hooks: Hooks) -> JoinedTools:
        """Bind the tools to a run; raises ValueError for rules about unknown tools."""
        joined = JoinedTools(
            [
                group.bound(deps, self.limits, hooks.approve)
                if isinstance(group, Toolset)
                else group
                for group in self._merge_groups()
            ]
        )
        names = [spec.name for spec in joined.specs()]
        for rule, name in self._rules.tools():
            if name not in names:
                known = ", ".join(names) or "none"
                raise ValueError(f"workflow.{rule}: unknown tool {name!r}; available: {known}")
        return joined


def _executes(tool: FunctionTool | Function | Toolset | Executor) -> TypeIs[Toolset | Executor]:
    return hasattr(tool, "execute") and hasattr(tool, "specs")


def _fill(instructions: str, values: Mapping[str, object] | None) -> str:
    """Replace placeholders by values; raises ValueError for a placeholder without a value."""
    if values is None:  # without values, braces are text, for example in a JSON example
        return instructions
    try:
        return instructions.format_map(values)
    except KeyError as missing:
        problem = f"prompt_vars has no value for {{{missing.args[0]}}} in the instructions: add it"
        raise ValueError(problem) from None


def _read_prompt(prompt: str | Sequence[JsonObject]) -> Message:
    if isinstance(prompt, str):
        return user_message(prompt)
    untyped: object = prompt  # the program may not be type-checked
    if not isinstance(untyped, Sequence):
        kind = type(untyped).__name__
        raise TypeError(f"the prompt must be a text or a list of content parts, not {kind}")
    if any(isinstance(part, dict) and "role" in part for part in untyped):
        problem = "the prompt must be the new user message, not a list of messages"
        raise ValueError(f"{problem}: pass earlier messages as conversation=Conversation.of(...)")
    parts: list[JsonValue] = [*prompt]
    (message,) = decode_messages([json.dump({"role": "user", "content": parts})])
    return message
