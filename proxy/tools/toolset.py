"""The functions that a program offers to a model, found by name or alias."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias, Unpack, cast, overload

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import Tool, ToolCall
from proxy.conversation.workflows import Prerequisite
from proxy.guardrails.tool_prompts.history import find_convention
from proxy.tools.execution import Approve, BoundToolset, Limits
from proxy.tools.executor import Outcome, RoundContext
from proxy.tools.function import FunctionTool, OptionArguments, ToolOptions, make_tool
from proxy.tools.signature import Function

# The conventions in which a prompt can describe tools.
PromptForm: TypeAlias = Literal["hermes", "mistral", "gemma", "llama3", "react", "json"]


class Toolset:
    """Tools in a fixed order; two tools cannot share a name or an alias."""

    def __init__(self, tools: Iterable[FunctionTool | Function] = ()) -> None:
        self._tools: dict[str, FunctionTool] = {}
        self._aliases: dict[str, str] = {}
        if callable(tools):  # one function in place of a list of functions
            raise TypeError("a Toolset needs a list of tools: Toolset([function])")
        for tool in tools:
            self.add(tool)

    def add(self, tool: FunctionTool | Function) -> FunctionTool:
        """Register a tool, or a function as a tool.

        Raises `ValueError` if another tool has the name or one of the aliases.
        """
        new = tool if isinstance(tool, FunctionTool) else make_tool(tool, ToolOptions())
        used = [name for name in (new.name, *new.aliases) if name in self]
        if used or new.name in new.aliases:
            name = used[0] if used else new.name
            raise ValueError(f"two tools have the name {name!r}")
        self._tools[new.name] = new
        self._aliases |= dict.fromkeys(new.aliases, new.name)
        return new

    @overload
    def tool(self, function: Function, /) -> FunctionTool: ...

    @overload
    def tool(self, /, **options: Unpack[OptionArguments]) -> Callable[[Function], FunctionTool]: ...

    def tool(
        self, function: Function | None = None, /, **options: Unpack[OptionArguments]
    ) -> FunctionTool | Callable[[Function], FunctionTool]:
        """Register a function as a decorator, with or without the options of `@tool`."""
        tool_options = ToolOptions(**options)

        def register(function: Function) -> FunctionTool:
            return self.add(make_tool(function, tool_options))

        return register if function is None else register(function)

    def get(self, name: str) -> FunctionTool | None:
        """Return the tool with this name or alias, None if there is none."""
        return self._tools.get(self._aliases.get(name, name))

    def __contains__(self, name: str) -> bool:
        return self.get(name) is not None

    def __iter__(self) -> Iterator[FunctionTool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def aliases(self) -> Mapping[str, str]:
        """Map each alias to the name of its tool."""
        return dict(self._aliases)

    @property
    def prerequisites(self) -> tuple[Prerequisite, ...]:
        """The rules about the order of calls that the tools declare."""
        return tuple(rule for tool in self for rule in tool.prerequisites)

    def specs(self) -> tuple[Tool, ...]:
        """Return the tools as they are sent to a model: the same bytes in every run."""
        return tuple(tool.spec for tool in self)

    def openai(self) -> list[JsonObject]:
        """Return the `tools` of a chat request."""
        return [cast("JsonObject", json.parse(tool.spec.source)) for tool in self]

    def prompt(self, form: PromptForm = "hermes") -> str:
        """Return instructions that describe the tools in a system prompt.

        Needed for models whose chat template does not describe tools. A `ReplyValidator` recognizes
        calls in each of these conventions.
        """
        return find_convention(form).describe(self.specs(), None)

    def to_registry_json(self) -> str:
        """Return a JSON list of all tools with their options, for people and other programs."""
        return json.dump_text([*map(_describe_tool, self)])

    async def execute(
        self,
        calls: Sequence[ToolCall],
        context: RoundContext | None = None,
        *,
        deps: object = None,
        limits: Limits | None = None,
        approve: Approve | None = None,
    ) -> tuple[Outcome, ...]:
        """Execute the calls of one reply and return an outcome for each, in order.

        Tools receive `deps` in their context. `context` has the position in a run; its
        `result_chars` replaces the maximum in `limits`. Raises only the exceptions of `approve`,
        and exceptions that are not subclasses of `Exception`, such as `SystemExit`. Canceling
        cancels the calls, but a call in a thread runs to its end.
        """
        bound = self.bound(deps, limits, approve)
        context = context or RoundContext(result_chars=bound.limits.result_chars)
        return await bound.execute(calls, context)

    def bound(
        self, deps: object = None, limits: Limits | None = None, approve: Approve | None = None
    ) -> BoundToolset:
        """Bind the tools to the dependencies, limits and approval function of one run."""
        return BoundToolset(self.specs, self.get, deps, limits or Limits(), approve)


def _describe_tool(tool: FunctionTool) -> JsonObject:
    document = cast("JsonObject", json.parse(tool.spec.source))
    options = tool.options
    prerequisites: list[JsonValue] = [
        {"tool": rule.needs, "argument": rule.argument} for rule in tool.prerequisites
    ]
    return {
        **cast("JsonObject", document["function"]),
        "aliases": [*tool.aliases],
        "prerequisites": prerequisites,
        "timeout": options.timeout,
        "parallel": options.parallel,
        "needs_approval": options.needs_approval,
        "cached": options.cached,
    }
