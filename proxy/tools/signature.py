"""What a function's signature and docstring say of what it takes from a model.

Whatever a signature cannot be offered with is a `TypeError` when the function becomes a tool, and
none when a model calls it.
"""

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from docstring_parser import parse
from pydantic.errors import PydanticUserError

from proxy.conversation.json import JsonObject
from proxy.tools.schema import ArgumentsReader, Parameter, describe

Function: TypeAlias = Callable[..., object]  # type: ignore[explicit-any] # takes whatever it takes

_ENDLESS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Signature:
    """What a function takes from a model: the schema of it, and who reads it.

    `context` names the parameter that the context goes to, None where the function wants none.
    """

    description: str
    parameters: JsonObject
    read: ArgumentsReader
    context: str | None


def signature_of(function: Function, context_type: type[object]) -> Signature:
    """Read what a function takes from a model.

    Its first parameter may be of the `context_type`, which no model gets to see. Raises `TypeError`
    for a signature that no object of named values fits, or whose types are not known.
    """
    if not callable(function):
        raise TypeError(f"a tool is a function, not {function!r:.60}")
    description, words = _read_docstring(function)
    try:
        context = context_parameter(function, context_type)
        own = _parameters(function)[context is not None :]
        found = [_read(function, one, context_type, words.get(one.name, "")) for one in own]
        schema, read = describe(found)
    except (PydanticUserError, NameError, TypeError, ValueError) as error:
        problem = str(error).partition("\n")[0]
        raise TypeError(f"{name_of(function)}() cannot be a tool: {problem}") from error
    return Signature(description, schema, read, context)


def context_parameter(function: Function, context_type: type[object]) -> str | None:
    """Name the parameter that the context goes to: the first, or none."""
    first = next(iter(_parameters(function)), None)
    if first is None or not _is_context(_resolve_hint(function, first), context_type):
        return None
    return first.name


def description_of(function: Function) -> str:
    return _read_docstring(function)[0]


def name_of(function: Function) -> str:
    """Return what a function is called, or else its class."""
    name = getattr(_inner(function), "__name__", None)
    return name if isinstance(name, str) else type(function).__name__


def _parameters(function: Function) -> list[inspect.Parameter]:
    """Return what a function takes; what a partial one was given is its program's own affair."""
    given = function.keywords if isinstance(function, partial) else {}
    found = inspect.signature(function).parameters.values()
    return [one for one in found if one.name not in given]


def _read(
    function: Function, one: inspect.Parameter, context_type: type[object], words: str
) -> Parameter:
    if one.kind in _ENDLESS:
        raise TypeError(f"{one} takes any number of values")
    if one.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise TypeError(f"{one.name} can only be given by its position")
    if one.name == "self":
        raise TypeError("self is missing: make a tool of the method of an object")
    hint = _resolve_hint(function, one)
    if _is_context(hint, context_type):
        raise TypeError(f"{one.name}, the context, has to come first")
    return Parameter(one.name, hint, one.default, words)


def _is_context(hint: object, context_type: type[object]) -> bool:
    return hint is context_type or typing.get_origin(hint) is context_type


def _resolve_hint(function: Function, parameter: inspect.Parameter) -> object:
    """Return the hint of a parameter as a type: each alone, as that of the result is not needed.

    A parameter without any takes what comes.
    """
    if parameter.annotation is inspect.Parameter.empty:
        return object

    def holder() -> None: ...

    holder.__annotations__ = {"hint": parameter.annotation}
    try:
        hints = typing.get_type_hints(holder, _globals(function), include_extras=True)
    except NameError as error:
        raise TypeError(f"the hint of {parameter.name} cannot be resolved: {error}") from error
    hint: object = hints["hint"]
    return hint


def _inner(function: Function) -> Function:
    while isinstance(function, partial):
        function = function.func
    return function


def _globals(function: Function) -> dict[str, object]:
    inner = inspect.unwrap(_inner(function))
    if not hasattr(inner, "__globals__"):
        inner = type(inner).__call__
    found: dict[str, object] = getattr(inner, "__globals__", {})
    return found


def _read_docstring(function: Function) -> tuple[str, dict[str, str]]:
    """Return what a docstring says of a function and of its parameters, in any of three styles."""
    found = parse(inspect.getdoc(_inner(function)) or "")
    words = {one.arg_name: " ".join((one.description or "").split()) for one in found.params}
    return (found.description or "").strip(), words
