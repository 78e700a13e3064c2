"""The JSON schema of a function's parameters, and the conversion of arguments to typed values.

Pydantic generates the schema from a class with the fields `p0`, `p1`, ... The names of the
parameters are the aliases of these fields, because a parameter could have the name of an attribute
that every pydantic model has.

    def weather(city: str, days: int = 1)

    {"type": "object", "additionalProperties": false, "required": ["city"],
     "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}}}
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
_BY_NAME = frozenset(["properties", "$defs"])  # keywords whose members are schemas
_DATA = frozenset(["default", "const", "enum", "examples"])  # keywords whose values are data
_ALL = "the arguments"


class WrongArguments(ValueError):
    """Invalid arguments of a call; the message quotes none of their values, which may be secret."""


# Converts arguments, as JSON that a model wrote, to keyword arguments; raises `WrongArguments`.
ArgumentsReader: TypeAlias = Callable[[str], Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a function: its name, type, default and description."""

    name: str
    hint: object
    default: object
    description: str

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty

    @property
    def is_filled(self) -> bool:
        """Whether the value is always passed: Python itself cannot use the default in a `Field`."""
        return self.is_required or isinstance(self.default, FieldInfo)

    def field(self) -> tuple[object, object]:
        """Return the type and the `Field` of this parameter in the generated class.

        The alias is the parameter's name, unless its own `Field` sets another alias.
        """
        hint, default = self.hint, self.default
        if isinstance(default, FieldInfo):
            hint, default = Annotated[hint, default], default.default
        elif self.is_required:
            default = PydanticUndefined
        declared = FieldInfo.from_annotation(typing.cast("type[object]", hint))
        alias = declared.alias or self.name
        description = declared.description or self.description or None
        if default is PydanticUndefined:
            default = declared.default
        if declared.default_factory is not None:
            return hint, Field(alias=alias, validation_alias=alias, description=description)
        return hint, Field(
            default=default, alias=alias, validation_alias=alias, description=description
        )


class _Generator(GenerateJsonSchema):
    """Generates schemas; a default that JSON cannot express is omitted without a warning."""

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        pass

    def encode_default(self, dft: object) -> JsonValue:
        """Convert a default; sorts sets, whose order differs between processes."""
        return typing.cast("JsonValue", super().encode_default(_sort_sets(dft)))


def read_by_schema(tool: Tool, arguments: str) -> Mapping[str, object]:
    """Check arguments against the schema that a program supplies; values keep their JSON types."""
    match check(tool, arguments or "{}"):
        case BrokenArguments(problem):
            raise WrongArguments(problem)
        case InvalidArguments(_, violations):
            problems = [f"{item.pointer or _ALL}: {item.expected}" for item in violations]
            raise WrongArguments("; ".join(problems))
        case checked:
            return checked.value


def describe(parameters: Sequence[Parameter]) -> tuple[JsonObject, ArgumentsReader]:
    """Return the schema of parameters, and a function that parses their arguments.

    If the only parameter is a pydantic model, the arguments are the members of that model.
    """
    only_model = _only_model(parameters)
    if only_model is not None:
        name = parameters[0].name
        return _schema(only_model), lambda arguments: {name: _validate(only_model, arguments)}
    fields = {f"p{number}": parameter for number, parameter in enumerate(parameters)}
    model: type[BaseModel] = create_model(  # type: ignore[call-overload]
        "Arguments",
        # an unknown name is usually misspelled, and its value would be lost silently
        __config__=ConfigDict(extra="forbid"),
        **{field: parameter.field() for field, parameter in fields.items()},
    )

    def read(arguments: str) -> Mapping[str, object]:
        value = _validate(model, arguments)
        return {
            parameter.name: getattr(value, field)
            for field, parameter in fields.items()
            if field in value.model_fields_set or parameter.is_filled
        }

    return _schema(model), read


def _only_model(parameters: Sequence[Parameter]) -> type[BaseModel] | None:
    """Return the pydantic model that is the only parameter, None otherwise."""
    if len(parameters) != 1 or not parameters[0].is_required:
        return None
    hint = parameters[0].hint
    if not isinstance(hint, type) or not issubclass(hint, BaseModel):
        return None
    return None if issubclass(hint, RootModel) else hint


def _schema(model: type[BaseModel]) -> JsonObject:
    """Return the schema of a model, without titles, and with `additionalProperties` false."""
    document = typing.cast("JsonObject", model.model_json_schema(schema_generator=_Generator))
    definitions = document.get("$defs")
    reference = document.get("$ref")
    if isinstance(reference, str) and isinstance(definitions, dict):  # a recursive model
        root = definitions[reference.rpartition("/")[2]]
        document = {**typing.cast("JsonObject", root), "$defs": definitions}
    schema = typing.cast("JsonObject", _drop_titles(document))
    return {"type": "object", "additionalProperties": False, **schema}


def _sort_sets(value: object) -> object:
    """Replace sets with sorted lists, also within containers."""
    match value:
        case set() | frozenset():
            return sorted(map(_sort_sets, value), key=partial(to_json, fallback=repr))
        case list() | tuple():
            return [_sort_sets(item) for item in value]
        case dict():
            return {key: _sort_sets(item) for key, item in value.items()}
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
            return [_drop_titles(item) for item in schema]
        case _:
            return schema


def _drop_titles_in(keyword: str, value: JsonValue) -> JsonValue:
    if keyword in _BY_NAME and isinstance(value, dict):
        return {name: _drop_titles(schema) for name, schema in value.items()}
    return value if keyword in _DATA else _drop_titles(value)


def _validate(model: type[BaseModel], arguments: str) -> BaseModel:
    try:
        return model.model_validate_json(arguments or "{}")
    except ValidationError as error:
        raise WrongArguments("; ".join(_defects(error))) from None


def _defects(error: ValidationError) -> Iterator[str]:
    """Describe the defects without quoting values, which may be secrets."""
    for defect in error.errors(include_url=False, include_input=False)[:_MOST_DEFECTS]:
        message = defect["msg"]
        if defect["type"] == "union_tag_invalid":  # its message quotes the value of the tag
            message = f"Input should have one of the tags {defect['ctx']['expected_tags']}"
        yield f"{pointer(defect['loc']) or _ALL}: {message}"
