"""The JSON schema of a function's parameters, and typed values from what a model wrote.

A schema is made once, by pydantic, of a model whose fields are `p0`, `p1`, ...: the parameters'
own names are only their aliases, so that none of them can clash with a model's own members.
"""

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, RootModel, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import PydanticUndefined, to_json

from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import Tool
from proxy.guardrails.schemas.arguments import BrokenArguments, InvalidArguments, check
from proxy.guardrails.schemas.schema import pointer

_MOST_DEFECTS = 5
_BY_NAME = frozenset(["properties", "$defs"])  # of their members every one is a schema
_DATA = frozenset(["default", "const", "enum", "examples"])
_WHOLE = "the arguments"


class WrongArguments(ValueError):
    """Arguments that a function does not take; the message says why, and quotes none of them."""


# Makes keyword arguments of the JSON text that a model wrote; raises `WrongArguments`.
ArgumentsReader: TypeAlias = Callable[[str], Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function: its name there, its type and default, and what is said of it."""

    name: str
    hint: object
    default: object
    words: str

    @property
    def is_required(self) -> bool:
        """Whether there is nothing in the place of a default."""
        return self.default is inspect.Parameter.empty

    @property
    def is_filled(self) -> bool:
        """Whether the function has no default of its own: one in a `Field` only a model knows."""
        return self.is_required or isinstance(self.default, FieldInfo)

    def field(self) -> tuple[object, object]:
        """Return it as a field of a model, under the name that a `Field` gives it, or its own."""
        hint, default = self.hint, self.default
        if isinstance(default, FieldInfo):
            hint, default = Annotated[hint, default], default.default
        elif self.is_required:
            default = PydanticUndefined
        said = FieldInfo.from_annotation(typing.cast("type[object]", hint))
        alias = said.alias or self.name
        description = said.description or self.words or None
        if default is PydanticUndefined:
            default = said.default
        if said.default_factory is not None:
            return hint, Field(alias=alias, validation_alias=alias, description=description)
        return hint, Field(
            default=default, alias=alias, validation_alias=alias, description=description
        )


class _Generator(GenerateJsonSchema):
    """Writes schemas; a default that JSON cannot hold is left out without a word."""

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        """Say nothing."""

    def encode_default(self, dft: object) -> JsonValue:
        """Write a default; sets in the same order in every process."""
        return typing.cast("JsonValue", super().encode_default(_order(dft)))


def read_by_schema(tool: Tool, arguments: str) -> Mapping[str, object]:
    """Read arguments by a schema of the program's own; values stay as JSON has them."""
    match check(tool, arguments or "{}"):
        case BrokenArguments(problem):
            raise WrongArguments(problem)
        case InvalidArguments(_, found):
            wrong = [f"{one.pointer or _WHOLE}: {one.expected}" for one in found]
            raise WrongArguments("; ".join(wrong))
        case checked:
            return checked.value


def describe(parameters: Sequence[Parameter]) -> tuple[JsonObject, ArgumentsReader]:
    """Return the schema of some parameters, and who reads them.

    A function with one parameter that is a pydantic model takes the model's members.
    """
    whole = _whole_model(parameters)
    if whole is not None:
        name = parameters[0].name
        return _schema(whole), lambda arguments: {name: _validate(whole, arguments)}
    fields = {f"p{number}": one for number, one in enumerate(parameters)}
    model: type[BaseModel] = create_model(  # type: ignore[call-overload]
        "Arguments",
        __config__=ConfigDict(extra="forbid"),
        **{field: one.field() for field, one in fields.items()},
    )

    def read(arguments: str) -> Mapping[str, object]:
        value = _validate(model, arguments)
        return {
            one.name: getattr(value, field)
            for field, one in fields.items()
            if field in value.model_fields_set or one.is_filled
        }

    return _schema(model), read


def _whole_model(parameters: Sequence[Parameter]) -> type[BaseModel] | None:
    """Return the model that a function takes instead of single values, if that is all it takes."""
    if len(parameters) != 1 or not parameters[0].is_required:
        return None
    hint = parameters[0].hint
    if not isinstance(hint, type) or not issubclass(hint, BaseModel):
        return None
    return None if issubclass(hint, RootModel) else hint


def _schema(model: type[BaseModel]) -> JsonObject:
    """Write the schema of an object: no titles, and nothing beyond what it names."""
    written = typing.cast("JsonObject", model.model_json_schema(schema_generator=_Generator))
    definitions = written.get("$defs")
    reference = written.get("$ref")
    if isinstance(reference, str) and isinstance(definitions, dict):  # a model within itself
        root = definitions[reference.rpartition("/")[2]]
        written = {**typing.cast("JsonObject", root), "$defs": definitions}
    schema = typing.cast("JsonObject", _drop_titles(written))
    return {"type": "object", "additionalProperties": False, **schema}


def _order(value: object) -> object:
    """Make lists of sets, wherever they stand in containers."""
    match value:
        case set() | frozenset():
            return sorted(map(_order, value), key=partial(to_json, fallback=repr))
        case list() | tuple():
            return [_order(one) for one in value]
        case dict():
            return {key: _order(one) for key, one in value.items()}
        case _:
            return value


def _drop_titles(schema: JsonValue) -> JsonValue:
    match schema:
        case dict():
            return {
                keyword: _drop_titles_in(keyword, value)
                for keyword, value in schema.items()
                if not (keyword == "title" and isinstance(value, str))
            }
        case list():
            return [_drop_titles(one) for one in schema]
        case _:
            return schema


def _drop_titles_in(keyword: str, value: JsonValue) -> JsonValue:
    if keyword in _BY_NAME and isinstance(value, dict):
        return {name: _drop_titles(one) for name, one in value.items()}
    return value if keyword in _DATA else _drop_titles(value)


def _validate(model: type[BaseModel], arguments: str) -> BaseModel:
    try:
        return model.model_validate_json(arguments or "{}")
    except ValidationError as error:
        raise WrongArguments("; ".join(_defects(error))) from None


def _defects(error: ValidationError) -> Iterator[str]:
    """Say what is wrong, and nothing of what stood there."""
    for one in error.errors(include_url=False, include_input=False)[:_MOST_DEFECTS]:
        words = one["msg"]
        if one["type"] == "union_tag_invalid":  # its words quote the tag that was given
            words = f"Input should have one of the tags {one['ctx']['expected_tags']}"
        yield f"{pointer(one['loc']) or _WHOLE}: {words}"
