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

# The forms in which a prompt can describe tools.
PromptForm: TypeAlias = Literal["hermes", "mistral", "gemma", "llama3", "react", "json"]


class Toolset:
    """Tools in a fixed order; no two share a name or an alias."""

    def __init__(self, tools: Iterable[FunctionTool | Function] = ()) -> None:
        self._tools: dict[str, FunctionTool] = {}
        self._aliases: dict[str, str] = {}
        if callable(tools):  # one function in place of a list of functions
            raise TypeError("a Toolset needs a list of tools: Toolset([function])")
        for tool in tools:
            self.add(tool)

    def add(self, tool: FunctionTool | Function) -> FunctionTool:
        """Register a tool, or make one from a function.

        Raises `ValueError` if a name or an alias is taken.
        """
        made = tool if isinstance(tool, FunctionTool) else make_tool(tool, ToolOptions())
        taken = [name for name in (made.name, *made.aliases) if name in self]
        if taken or made.name in made.aliases:
            name = taken[0] if taken else made.name
            raise ValueError(f"two tools have the name {name!r}")
        self._tools[made.name] = made
        self._aliases |= dict.fromkeys(made.aliases, made.name)
        return made

    @overload
    def tool(self, function: Function, /) -> FunctionTool: ...

    @overload
    def tool(self, /, **options: Unpack[OptionArguments]) -> Callable[[Function], FunctionTool]: ...

    def tool(
        self, function: Function | None = None, /, **options: Unpack[OptionArguments]
    ) -> FunctionTool | Callable[[Function], FunctionTool]:
        """Register a function by a decorator, as `@tool` makes one."""
        chosen = ToolOptions(**options)

        def register(function: Function) -> FunctionTool:
            return self.add(make_tool(function, chosen))

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
        """The tool of each additional name."""
        return dict(self._aliases)

    @property
    def prerequisites(self) -> tuple[Prerequisite, ...]:
        """The rules of order that the tools declare."""
        return tuple(rule for tool in self for rule in tool.prerequisites)

    def specs(self) -> tuple[Tool, ...]:
        """Return the tools as they are sent to a model: the same bytes in every run."""
        return tuple(tool.spec for tool in self)

    def openai(self) -> list[JsonObject]:
        """Return the `tools` of a chat request."""
        return [cast("JsonObject", json.parse(tool.spec.source)) for tool in self]

    def prompt(self, form: PromptForm = "hermes") -> str:
        """Return instructions that describe the tools in a system prompt.

        For models whose chat template does not describe tools; a `ReplyValidator` reads their calls
        in each of these forms.
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

        `deps` is what tools find in their context. A `context` has the position in a run and the
        most characters of a result, which then replaces that of the `limits`. Only an exception
        that ends a program is raised. Canceling cancels the calls; threads cannot be stopped and
        run to their end.
        """
        bound = self.bound(deps, limits, approve)
        context = context or RoundContext(result_chars=bound.limits.result_chars)
        return await bound.execute(calls, context)

    def bound(
        self, deps: object = None, limits: Limits | None = None, approve: Approve | None = None
    ) -> BoundToolset:
        """Return the tools with everything that stays the same in a run."""
        return BoundToolset(self.specs, self.get, deps, limits or Limits(), approve)


def _describe_tool(tool: FunctionTool) -> JsonObject:
    document = cast("JsonObject", json.parse(tool.spec.source))
    options = tool.options
    needed: list[JsonValue] = [
        {"tool": rule.needs, "argument": rule.argument} for rule in tool.prerequisites
    ]
    return {
        **cast("JsonObject", document["function"]),
        "aliases": [*tool.aliases],
        "prerequisites": needed,
        "timeout": options.timeout,
        "parallel": options.parallel,
        "needs_approval": options.needs_approval,
        "cached": options.cached,
    }
