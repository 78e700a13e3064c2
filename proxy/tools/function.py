"""The decorator `@tool`, which makes a Python function a tool, and its options."""

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
from proxy.guardrails.respond import DESCRIPTION
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
# The OpenAI API accepts function names of at most 64 of these characters.
_LONGEST_NAME = 64
_INVALID_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")


def expect(name: str, value: object, types: type | tuple[type, ...], description: str) -> None:
    """Raise `TypeError` unless a program's argument `name` has a `value` of one of the types."""
    if not isinstance(value, types):
        raise TypeError(f"{name} must be {description}, not {value!r:.60}")


def expect_positive(name: str, value: object) -> None:
    """Raise `TypeError` unless the argument is a number, and `ValueError` if it is less than 1."""
    expect(name, value, (int, float), "a number")
    if isinstance(value, int | float) and value < 1:
        raise ValueError(f"{name} must be at least 1, not {value!r}")


@dataclass(frozen=True, slots=True)
class ToolContext(Generic[Deps]):
    """The context of a call, for tools whose first parameter has this type.

    The model does not see that parameter. `deps` is the object that the program passed to the run,
    such as a database connection. `messages` are the messages of the conversation before the reply
    with the call.
    """

    deps: Deps
    call: ToolCall
    round: int = 1
    messages: Messages = ()


@dataclass(frozen=True, slots=True)
class ToolOptions:
    """The options of a tool.

    `parameters` is a JSON schema that replaces the schema of the signature. `aliases` are
    additional names that a model may use. A call is abandoned after `timeout` seconds; None means
    no limit. If a reply calls a tool that is not `parallel`, all calls of the reply run one after
    the other. `llm_format` formats the result for the model, `display_format` for people. Each of
    the `prerequisites` is a tool that must have been called before: its name, or a pair of its name
    and an argument that must be equal in both calls. With `cached`, a repeated call in a run gets
    the result of the first call.
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
        for name, value in (("aliases", self.aliases), ("prerequisites", self.prerequisites)):
            if isinstance(value, str):
                raise TypeError(f"{name} must be a list of names: write {name}=[{value!r}]")
        if self.timeout is not None:
            expect("timeout", self.timeout, (int, float), "a number of seconds or None")
            if self.timeout <= 0:  # every call would time out at once
                raise ValueError(f"timeout must be more than 0 seconds, not {self.timeout!r}")
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
    """A function that a model may call; calling the object calls the function.

    `context` is the name of the parameter that takes the `ToolContext`, if there is one.
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
        rules = [
            (rule, None) if isinstance(rule, str) else rule for rule in self.options.prerequisites
        ]
        return tuple(Prerequisite(self.name, needs, argument) for needs, argument in rules)

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

    The argument of `@tool("Tell the weather.")` is the description. Raises `TypeError` if the
    signature or the type hints of the function make it unusable as a tool.
    """
    if isinstance(function, str):
        options["description"] = function
        function = None
    tool_options = ToolOptions(**options)
    if function is None:
        return functools.partial(make_tool, options=tool_options)
    return make_tool(function, tool_options)


def respond_tool(name: str = "respond") -> FunctionTool:
    """Return a tool for answering in prose, as a terminal tool of a `Workflow`.

    Some small models call a tool in every reply. They can answer only by calling this tool.
    """

    def respond(message: str) -> str:
        return message

    return make_tool(respond, ToolOptions(name=name, description=DESCRIPTION))


def make_tool(function: Function, options: ToolOptions) -> FunctionTool:
    # a lambda or a partial has a name that the API rejects: `<lambda>`
    name = _INVALID_IN_NAME.sub("_", options.name or name_of(function))[:_LONGEST_NAME]
    if options.parameters is None:
        signature = signature_of(function, ToolContext)
    else:  # `parameters` replaces the schema, so the function's parameters are not read
        read = functools.partial(read_by_schema, Tool(name, options.parameters, b""))
        context = context_parameter(function, ToolContext)
        signature = Signature(description_of(function), options.parameters, read, context)
    description = signature.description if options.description is None else options.description
    members: JsonObject = {"description": description} if description else {}
    members = {"name": name, **members, "parameters": signature.parameters}
    # written once, so that all requests have the same bytes, and the prompt cache stays valid
    source = json.dump({"type": "function", "function": members})
    spec = Tool(name, signature.parameters, source)
    aliases = tuple(dict.fromkeys(options.aliases))
    return FunctionTool(function, options, spec, signature.read, signature.context, aliases)
