"""Validation and JSON Schemas of requests, for every dialect.

Validation is as lenient as clients require: null counts as absent, and unknown members are
accepted. Only the first error is reported, in a sentence that names the field.
"""

from collections.abc import Collection
from functools import cache
from threading import Lock
from typing import Annotated, TypeAlias, TypeVar

import pydantic
from pydantic_core import ErrorDetails

from proxy.conversation.json import JsonObject, JsonSchema
from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool
from proxy.conversation.workflows import NO_RULES, Workflow, contradictions
from proxy.dialects.raw_json import KINDS, kind
from proxy.errors import InvalidRequest

_EXPECTED = {
    "bool_type": "true or false",
    "dataclass_type": "an object",
    "dict_type": "an object",
    "finite_number": "a finite number",
    "float_type": "a number",
    "int_type": "a whole number",
    "list_type": "an array",
    "model_type": "an object",
    "string_type": "a string",
    "tuple_type": "an array",
}
_LONGEST_QUOTE = 40  # characters of a client's value in an error


_TAGS = {kind: f"<{name}>" for kind, name in KINDS.items()}


def kind_tag(value: object) -> str:
    return _TAGS.get(type(value), "<a number>")


def one_of(expected: str) -> pydantic.Discriminator:
    """Select a type of a union by the JSON type of the value, so that only one error is reported.

    For a plain union, pydantic would try every type, and report an error for each of them.
    """
    return pydantic.Discriminator(
        kind_tag, custom_error_type="expected", custom_error_message=expected
    )


def _to_integer(value: object) -> object:
    # Home Assistant writes 5.0 instead of 5, and JSON does not distinguish these numbers
    return int(value) if isinstance(value, float) and value.is_integer() else value


Number: TypeAlias = Annotated[pydantic.FiniteFloat, pydantic.Strict()]
Integer: TypeAlias = Annotated[pydantic.StrictInt, pydantic.BeforeValidator(_to_integer)]
TokenCount: TypeAlias = Annotated[
    pydantic.StrictInt, pydantic.Field(ge=0), pydantic.BeforeValidator(_to_integer)
]
Text: TypeAlias = Annotated[pydantic.StrictStr, pydantic.Tag("<a string>")]
# Any parsed JSON. It is not validated, because validation takes 1 ms for 40 schemas.
Unread: TypeAlias = pydantic.SkipValidation[pydantic.JsonValue]
Object: TypeAlias = Annotated[dict[str, Unread], pydantic.Tag("<an object>")]
Boolean: TypeAlias = Annotated[pydantic.StrictBool, pydantic.Tag("<a boolean>")]
Schema: TypeAlias = Annotated[Object | Boolean, one_of("an object, a boolean or null")]

Checked = TypeVar("Checked", bound=pydantic.BaseModel)
_building = Lock()


class WireObject(pydantic.BaseModel):
    """An object of which only some members are validated."""

    # Storing additional members would take as long as validating the listed members. Validators are
    # built when they are first used, because most servers use only one or two dialects.
    model_config = pydantic.ConfigDict(
        extra="ignore", json_schema_extra={"additionalProperties": True}, defer_build=True
    )


def check(wire: type[Checked], body: JsonObject) -> Checked:
    """Validate a body; raises InvalidRequest that names the first wrong field."""
    if not wire.__pydantic_complete__:
        with _building:  # large requests are checked in threads, and a rebuild is not thread-safe
            wire.model_rebuild()
    try:
        return wire.model_validate(body)
    except pydantic.ValidationError as failure:
        first = failure.errors(include_url=False)[0]
        # the location contains the fields, and also the tags of unions, which are removed
        path = ".".join(step for step in map(str, first["loc"]) if not step.startswith("<"))
        raise InvalidRequest(_problem(first), path) from None


def _problem(error: ErrorDetails) -> str:
    context = error.get("ctx", {})
    match error["type"]:
        case "missing":
            return "This field is required, but missing."
        case "literal_error":
            expected = f"{context['expected']}"
        case "greater_than_equal":
            expected = f"a number of at least {context['ge']}"
        case "too_short":
            expected = f"at least {context['min_length']} element"
        case "extra_forbidden" | "unexpected_keyword_argument":
            return "Unknown option."
        case "expected":
            expected = error["msg"]
        case other if other in _EXPECTED:
            expected = _EXPECTED[other]
        case _:
            return error["msg"]
    return f"Expected {expected}, got {_show(error['input'])}."


def _show(value: object) -> str:
    match value:
        case str():
            cut = value if len(value) <= _LONGEST_QUOTE else f"{value[:_LONGEST_QUOTE]}..."
            return f"the string {cut!r}"
        case bool():
            return f"{value}".lower()
        case int() | float():
            return f"the number {f'{value}'[:_LONGEST_QUOTE]}"
        case []:
            return "an empty array"
        case _:
            return kind(value)


TEXT: JsonObject = {"type": "string"}
NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}}


def schema_or_any(schema: JsonSchema | None) -> JsonSchema:
    """Return the client's schema of the answer; without a schema, one that accepts any object."""
    return {"type": "object"} if schema is None else schema


def object_schema(**members: JsonObject) -> JsonObject:
    """Return the schema of an object with at least these members."""
    return {"type": "object", "properties": {**members}, "required": [*members]}


def named_schema(title: str, **members: JsonObject) -> JsonObject:
    return {"title": title, **object_schema(**members)}


@cache  # generation takes 50 ms, and the OpenAPI document needs each schema at several paths
def request_schema(model: type[pydantic.BaseModel], prefix: str = "") -> JsonObject:
    """Return the schema of `model`, with `prefix` before each name in its `$defs`.

    The prefix distinguishes definitions of the same name in different dialects. The schema is
    cached, so callers must not change it.
    """
    reference = f"#/components/schemas/{prefix}{{model}}"
    described: JsonObject = model.model_json_schema(ref_template=reference)
    definitions = described["$defs"]
    assert isinstance(definitions, dict)  # noqa: S101 - every request model has submodels
    prefixed: JsonObject = {f"{prefix}{name}": schema for name, schema in definitions.items()}
    return {**described, "$defs": prefixed}


def check_name(name: str, param: str) -> None:
    """Raise InvalidRequest for an invalid function name at the path `param`.

    Invisible characters would make two names look alike in logs and approvals (F41).
    """
    if not name.strip():
        raise InvalidRequest("Expected the name of the function, got an empty string.", param)
    if not name.isprintable():
        raise InvalidRequest("A name must not contain control or invisible characters.", param)


def check_new(name: str, known: Collection[str], param: str) -> None:
    if name in known:
        raise InvalidRequest(f"Two tools are named {name!r}. Rename one.", param)


def check_offered(name: str, offered: Collection[str], param: str) -> None:
    if name not in offered:
        known = ", ".join(offered) or "none"
        raise InvalidRequest(f"Unknown tool {name!r}. Available: {known}.", param)


class TemperOptions(pydantic.BaseModel):
    """The member `temper` of a request, the same in every dialect; it is not sent to engines.

        {"model": "m", "messages": [...], "temper": {"workflow": {...}, "tool_rounds": true}}

    Unknown options are rejected.
    """

    model_config = pydantic.ConfigDict(extra="forbid")

    workflow: Workflow | None = None
    tool_rounds: pydantic.StrictBool | None = None


_MEMBER = "temper.workflow"


def workflow_in(
    options: TemperOptions | None, messages: tuple[Message, ...], tools: tuple[Tool, ...]
) -> Workflow:
    """Return the rules of a request; raises `InvalidRequest` for contradictory rules.

    Rules may also name tools that this request does not offer, if they were called earlier.
    """
    if options is None or options.workflow is None:
        return NO_RULES
    rules = options.workflow
    for path, problem in contradictions(rules):
        raise InvalidRequest(f"These rules cannot be satisfied: {problem}.", f"{_MEMBER}.{path}")
    offered = dict.fromkeys(tool.name for tool in tools)
    called = {call.name for message in messages for call in message.calls}
    for path, name in rules.tools():
        if offered and name not in called:
            check_offered(name, offered, f"{_MEMBER}.{path}")
    return rules
