"""Converts the signature and docstring of a function to the definition of a tool.

An unusable signature raises `TypeError` when the function becomes a tool, not when a model calls
it.
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

Function: TypeAlias = Callable[..., object]  # type: ignore[explicit-any] # any signature

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Signature:
    """The description of a function, the schema of its parameters, and the reader of arguments.

    `context` is the name of the parameter for the context, None if there is no such parameter.
    """

    description: str
    parameters: JsonObject
    read: ArgumentsReader
    context: str | None


def signature_of(function: Function, context_type: type[object]) -> Signature:
    """Read the signature of a function.

    A first parameter of the `context_type` is hidden from the model. Raises `TypeError` if a
    parameter is positional-only, is `*args` or `**kwargs`, or has an unresolvable hint.
    """
    if not callable(function):
        raise TypeError(f"a tool must be a function, not {function!r:.60}")
    description, descriptions = _read_docstring(function)
    try:
        context = context_parameter(function, context_type)
        parameters = _parameters(function)[context is not None :]
        read_parameters = [
            _read(function, parameter, context_type, descriptions.get(parameter.name, ""))
            for parameter in parameters
        ]
        schema, read = describe(read_parameters)
    except (PydanticUserError, NameError, TypeError, ValueError) as error:
        problem = str(error).partition("\n")[0]
        raise TypeError(f"{name_of(function)}() cannot be a tool: {problem}") from error
    return Signature(description, schema, read, context)


def context_parameter(function: Function, context_type: type[object]) -> str | None:
    """Return the name of the first parameter if it takes the context, None otherwise."""
    first = next(iter(_parameters(function)), None)
    if first is None or not _is_context(_resolve_hint(function, first), context_type):
        return None
    return first.name


def description_of(function: Function) -> str:
    return _read_docstring(function)[0]


def name_of(function: Function) -> str:
    """Return the name of a function; for an object without a name, the name of its class."""
    name = getattr(_inner(function), "__name__", None)
    return name if isinstance(name, str) else type(function).__name__


def _parameters(function: Function) -> list[inspect.Parameter]:
    """Return the parameters, without those that a `functools.partial` already sets."""
    preset = function.keywords if isinstance(function, partial) else {}
    parameters = inspect.signature(function).parameters.values()
    return [parameter for parameter in parameters if parameter.name not in preset]


def _read(
    function: Function, parameter: inspect.Parameter, context_type: type[object], description: str
) -> Parameter:
    if parameter.kind in _VARIADIC:
        raise TypeError(f"{parameter} takes any number of arguments; use named parameters")
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
        raise TypeError(f"{parameter.name} is positional-only; make it a named parameter")
    if parameter.name == "self":
        raise TypeError("self is missing: use the method of an object")
    hint = _resolve_hint(function, parameter)
    if _is_context(hint, context_type):
        raise TypeError(f"{parameter.name}, the context, must come first")
    return Parameter(parameter.name, hint, parameter.default, description)


def _is_context(hint: object, context_type: type[object]) -> bool:
    return hint is context_type or typing.get_origin(hint) is context_type


def _resolve_hint(function: Function, parameter: inspect.Parameter) -> object:
    """Resolve the hint of one parameter to a type; a parameter without a hint accepts any value."""
    if parameter.annotation is inspect.Parameter.empty:
        return object

    # `get_type_hints(function)` would fail if any other hint is unresolvable, such as the result's.
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
    names: dict[str, object] = getattr(inner, "__globals__", {})
    return names


def _read_docstring(function: Function) -> tuple[str, dict[str, str]]:
    """Return the descriptions of a function and of its parameters, from its docstring."""
    docstring = parse(inspect.getdoc(_inner(function)) or "")
    descriptions = {
        parameter.arg_name: " ".join((parameter.description or "").split())
        for parameter in docstring.params
    }
    return (docstring.description or "").strip(), descriptions
