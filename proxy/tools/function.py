"""A function that a model may call, and the decorator that makes one."""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypedDict, TypeVar, Unpack, overload

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.messages import Messages
from proxy.conversation.tools import Tool, ToolCall
from proxy.conversation.workflows import Prerequisite
from proxy.tools.results import Format
from proxy.tools.schema import ArgumentsReader, read_by_schema
from proxy.tools.signature import (
    Function,
    Signature,
    context_parameter,
    description_of,
    name_of,
    signature_of,
)

Deps = TypeVar("Deps")

TIMEOUT = 60.0
_LONGEST_NAME = 64
_UNNAMEABLE = re.compile(r"[^A-Za-z0-9_-]")


def expect(name: str, given: object, kinds: type | tuple[type, ...], form: str) -> None:
    """Raise `TypeError` for what a program gave in another form than it is taken in."""
    if not isinstance(given, kinds):
        raise TypeError(f"{name} is {form}, not {given!r:.60}")


def expect_least(name: str, given: object, least: float) -> None:
    """Raise `TypeError` for what is no number, `ValueError` for one that is too small."""
    expect(name, given, (int, float), "a number")
    if isinstance(given, int | float) and given < least:
        raise ValueError(f"{name} is at least {least:g}, not {given!r}")


@dataclass(frozen=True, slots=True)
class ToolContext(Generic[Deps]):
    """What a tool may know of the run that calls it; `messages` are those before the calls.

    `deps` is whatever the program gave for its tools: a connection, a user, a clock.
    """

    deps: Deps
    call: ToolCall
    round: int = 1
    messages: Messages = ()


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """What a program says of a tool beside its code.

    `parameters` is a JSON schema in the place of the signature's. `aliases` are names by which a
    model may call it too. A call is given up after `timeout` seconds, None for never. A tool that
    is not `parallel` has all calls of its reply made one after the other. `llm_format` words the
    result for the model, `display_format` for people. Before it may be called its `prerequisites`
    must have been: names of tools, or pairs of a name and of the argument that must be the same.
    With `cached` a call that was made in the same run gets its result again.
    """

    name: str | None = None
    description: str | None = None
    parameters: JsonObject | None = None
    aliases: Sequence[str] = ()
    timeout: float | None = TIMEOUT
    parallel: bool = True
    needs_approval: bool = False
    llm_format: Format | None = None
    display_format: Format | None = None
    prerequisites: Sequence[str | tuple[str, str]] = ()
    cached: bool = False

    def __post_init__(self) -> None:
        for name, given in (("aliases", self.aliases), ("prerequisites", self.prerequisites)):
            if isinstance(given, str):
                raise TypeError(f"{name} is a list of names: write {name}=[{given!r}]")
        if self.timeout is not None:
            expect("timeout", self.timeout, (int, float), "a number of seconds, or None for never")
            if self.timeout <= 0:
                raise ValueError(f"timeout is more than 0 seconds, not {self.timeout!r}")
        for name in ("parallel", "needs_approval", "cached"):
            expect(name, getattr(self, name), bool, "True or False")


class OptionArguments(TypedDict, total=False):
    """`ToolOptions` as keyword arguments."""

    name: str | None
    description: str | None
    parameters: JsonObject | None
    aliases: Sequence[str]
    timeout: float | None
    parallel: bool
    needs_approval: bool
    llm_format: Format | None
    display_format: Format | None
    prerequisites: Sequence[str | tuple[str, str]]
    cached: bool


@dataclass(frozen=True, slots=True, eq=False)
class FunctionTool:
    """A function that a model may call; calling it is calling the function.

    `context` names the parameter that a `ToolContext` goes to, if it takes one.
    """

    function: Function
    options: ToolOptions
    spec: Tool
    read: ArgumentsReader
    context: str | None = None
    aliases: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def prerequisites(self) -> tuple[Prerequisite, ...]:
        needed = [
            (one, None) if isinstance(one, str) else one for one in self.options.prerequisites
        ]
        return tuple(Prerequisite(self.name, needs, argument) for needs, argument in needed)

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.function(*args, **kwargs)


@overload
def tool(function: Function, /) -> FunctionTool: ...


@overload
def tool(
    description: str | None = None, /, **options: Unpack[OptionArguments]
) -> Callable[[Function], FunctionTool]: ...


def tool(
    function: Function | str | None = None, /, **options: Unpack[OptionArguments]
) -> FunctionTool | Callable[[Function], FunctionTool]:
    """Make a function a tool: `@tool`, or `@tool(name=...)` with any of the `ToolOptions`.

    A text alone, `@tool("Tell the weather.")`, is the description. Raises `TypeError` for a
    function that cannot be one, because of its signature or its hints.
    """
    if isinstance(function, str):
        options["description"] = function
        function = None
    chosen = ToolOptions(**options)
    if function is None:
        return functools.partial(make_tool, options=chosen)
    return make_tool(function, chosen)


def make_tool(function: Function, options: ToolOptions) -> FunctionTool:
    name = _UNNAMEABLE.sub("_", options.name or name_of(function))[:_LONGEST_NAME]
    if options.parameters is None:
        signature = signature_of(function, ToolContext)
    else:  # whatever the function's own parameters are
        read = functools.partial(read_by_schema, Tool(name, options.parameters, b""))
        context = context_parameter(function, ToolContext)
        signature = Signature(description_of(function), options.parameters, read, context)
    description = signature.description if options.description is None else options.description
    said: JsonObject = {"description": description} if description else {}
    said = {"name": name, **said, "parameters": signature.parameters}
    source = json.dump({"type": "function", "function": said})
    spec = Tool(name, signature.parameters, source)
    aliases = tuple(dict.fromkeys(options.aliases))
    return FunctionTool(function, options, spec, signature.read, signature.context, aliases)
