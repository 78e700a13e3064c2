"""Checks arguments and answers against the client's schema, after repair and coercion.

`check` checks the arguments of a call. `Members` checks a single argument while the model still
writes the call. `check_reply` checks a reply that has to be JSON. Errors of the model are returned,
not raised. If the schema cannot be compiled, any value is valid and the outcome `Unchecked` is
reported.

    schema: {"properties": {"days": {"type": "integer"}}, "required": ["days"]}

    {"days": 3}          ValidArguments    the text of the model, byte for byte
    {"days": "3"}        ValidArguments    {"days":3}, with the outcome `Coerced`
    {'days': 3,}         ValidArguments    {"days":3}, with the outcome `Repaired`
    {"days": "many"}     InvalidArguments  /days: expected integer, got "many"
    {"days":             BrokenArguments   The arguments are not valid JSON: ...
"""

import re
from typing import TypeAlias

import msgspec
from jsonschema_rs import ValidationError
from jsonschema_rs import ValidationErrorKind as Kind
from msgspec.structs import replace

from proxy.bounds import MEMBERS
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonSchema, JsonValue
from proxy.conversation.tools import Tool, properties_of
from proxy.facts import Coerced, Dropped, Fact, Repaired, Unchecked
from proxy.guardrails.rescue.values.reader import read_only_value, read_values
from proxy.guardrails.rescue.values.scalars import Value
from proxy.guardrails.schemas.coercion import (
    coerce,
    copy_value,
    unescape_names,
    unwrap_arguments,
    write_integers,
)
from proxy.guardrails.schemas.schema import (
    Schema,
    TooLargeToExplain,
    TooLongToMatch,
    UnusableSchema,
    compile_schema,
    pointer,
)
from proxy.guardrails.schemas.violations import TOO_LARGE, Violation, describe_violations

_ANNOTATIONS = frozenset(["title", "description", "default", "examples", "$comment", "deprecated"])
# With only these keywords at its root, a schema checks each member independently of the others.
_INDEPENDENT = _ANNOTATIONS | {"type", "properties", "required", "additionalProperties"}
_INDEPENDENT |= {"$schema", "$id", "$defs", "definitions", "strict"}
_ANY_STRING = _ANNOTATIONS | {"type", "anyOf"}  # keywords that do not restrict a string
_MAY_BE_FLOAT = re.compile(r"\d[.eE]")  # without a match, arguments contain no float such as `5.0`


class ValidArguments(msgspec.Struct, frozen=True):
    """Valid arguments as a `value` and as JSON `text`.

    If the value was not changed, `text` is the model's text. If it was changed, `text` is "" until
    the end of the check, when the value is serialized.
    """

    text: str
    value: JsonObject
    facts: tuple[Fact, ...] = ()


class BrokenArguments(msgspec.Struct, frozen=True):
    """The arguments are not a JSON object."""

    problem: str


class InvalidArguments(msgspec.Struct, frozen=True):
    """An object that violates the schema, coerced as far as possible."""

    value: JsonObject
    violations: tuple[Violation, ...]
    facts: tuple[Fact, ...] = ()


CheckedArguments: TypeAlias = ValidArguments | BrokenArguments | InvalidArguments


def check(tool: Tool, arguments: JsonValue, *, may_close: bool = False) -> CheckedArguments:
    """Check the arguments of a call: JSON text, possibly broken, or a parsed value.

    `may_close` allows missing brackets at the end. The caller sets it if the model itself ended the
    reply. In a truncated reply the last value may be incomplete, so brackets must not be added.
    """
    read = _read(tool.name, arguments, may_close=may_close)
    if isinstance(read, BrokenArguments):
        return read
    # The check would reject escaped names as unknown members, so the names are unescaped first.
    unescaped = unescape_names(tool.parameters, read.value)
    if unescaped is not read.value:
        read = ValidArguments("", unescaped, (*read.facts, Coerced(tool.name, "")))
    try:
        schema = compile_schema(tool.parameters)
        try:
            return _check_object(tool, schema, read)
        except TooLongToMatch:
            return _check_object(tool, schema.without_patterns(), read)
    except UnusableSchema as error:
        return _write(replace(read, facts=(*read.facts, Unchecked(tool.name, str(error)))))


def _check_object(tool: Tool, schema: Schema, read: ValidArguments) -> CheckedArguments:
    if schema.problem:
        read = replace(read, facts=(*read.facts, Unchecked(tool.name, schema.problem)))
    inner = unwrap_arguments(tool.parameters, read.value)
    if inner is not None:
        unwrapped = ValidArguments("", inner, (*read.facts, Coerced(tool.name, "")))
        checked = _judge(tool.name, schema, unwrapped)
        if isinstance(checked, ValidArguments):
            return checked
    return _judge(tool.name, schema, read)


def _judge(tool: str, schema: Schema, read: ValidArguments) -> CheckedArguments:
    if schema.is_valid(read.value, read.text):
        return _accept(tool, schema, read)
    try:
        coercion = coerce(schema, read.value)
    except TooLargeToExplain:
        return InvalidArguments(read.value, (TOO_LARGE,), read.facts)
    except ValueError as error:
        return BrokenArguments(f"The arguments cannot be written as JSON: {error}")
    facts = (*read.facts, *(Coerced(tool, pointer(path)) for path in coercion.paths))
    value = coercion.value if isinstance(coercion.value, dict) else read.value
    if coercion.errors:
        return InvalidArguments(value, describe_violations(coercion.errors), facts)
    return _accept(tool, schema, ValidArguments("", value, facts))


def _accept(tool: str, schema: Schema, read: ValidArguments) -> ValidArguments:
    """Accept valid arguments; `5.0` becomes `5` if the schema expects an integer."""
    if read.text and not _MAY_BE_FLOAT.search(read.text):
        return read
    value, paths = write_integers(schema, read.value)
    if not (paths and isinstance(value, dict)):
        return _write(read)
    facts = (*read.facts, *(Coerced(tool, pointer(path)) for path in paths))
    return _write(ValidArguments("", value, facts))


def object_text(arguments: JsonValue) -> str | None:
    """Return the JSON text of a call's arguments without a check; None if they are no object."""
    read = _read("", arguments, may_close=False)
    return None if isinstance(read, BrokenArguments) else _write(read).text


def _write(read: ValidArguments) -> ValidArguments:
    return read if read.text else replace(read, text=json.dump_text(read.value))


def _read(tool: str, arguments: JsonValue, *, may_close: bool) -> ValidArguments | BrokenArguments:
    match arguments:
        case str():
            return _read_text(tool, arguments, may_close=may_close)
        case None:
            return ValidArguments("", {})
        case dict():
            try:
                copy_value(arguments)
            except (ValueError, RecursionError) as error:
                return BrokenArguments(f"The arguments cannot be written as JSON: {error}")
            return ValidArguments("", arguments)
        case _:
            kind = "an array" if isinstance(arguments, list) else "a single value"
            return BrokenArguments(f"The arguments have to be a JSON object, not {kind}")


def _read_text(tool: str, text: str, *, may_close: bool) -> ValidArguments | BrokenArguments:
    if not text.strip():
        return ValidArguments("", {})
    if text.count('":') > MEMBERS:  # a limit, because the check of each member takes time
        return BrokenArguments(f"The arguments have more than {MEMBERS:,} members")
    fact: Fact = Coerced(tool, "")
    try:
        value = json.parse(text)
    except ValueError as error:
        result = _read_lenient(text)
        if result is None or not (result.is_closed or may_close):
            return BrokenArguments(f"The arguments are not valid JSON: {error}")
        value, fact = result.value, Repaired(tool)
    else:
        if isinstance(value, dict):
            return ValidArguments(text, value)
        if value is None:  # `null` means no arguments; this is not reported as a coercion
            return ValidArguments("", {})
    read = _read(tool, value, may_close=may_close)  # JSON text within a JSON string
    return read if isinstance(read, BrokenArguments) else replace(read, facts=(fact, *read.facts))


def _read_lenient(text: str) -> Value | None:
    """Read invalid JSON, such as `{'days': 3,}` or `{"days": 3}}`; return None if ambiguous."""
    result = read_only_value(text)
    if isinstance(result, Value):
        return result
    # surplus brackets after a complete object are ignored, as in calls that are rescued from text
    values = read_values(text)
    return Value(values[0]) if len(values) == 1 and isinstance(values[0], dict) else None


_FENCE = "```"
_JSON_LINE = re.compile(r"^(?:```(?:json)?\n)?[{\[]", re.MULTILINE)
# The number of positions at which an answer may begin. The text is parsed from each position to its
# end, so without this limit the time would be quadratic.
_MOST_STARTS = 10


class ValidAnswer(msgspec.Struct, frozen=True):
    """JSON that satisfies the schema; `text` is the model's text without a code fence."""

    text: str
    facts: tuple[Fact, ...] = ()


class InvalidAnswer(msgspec.Struct, frozen=True):
    """An answer that violates the schema; `problems` are phrases that a model can act on."""

    problems: tuple[str, ...]


def check_reply(text: str, thoughts: str, schema: JsonSchema) -> ValidAnswer | InvalidAnswer:
    """Check the answer of a reply. If the text is empty, the answer may be in the reasoning."""
    answer = None if text.strip() else _find_answer(thoughts, schema)
    return answer or check_answer(text, schema)


def _find_answer(thoughts: str, schema: JsonSchema) -> ValidAnswer | None:
    """Return the valid answer that is the whole reasoning or its end; None if there is none."""
    text = thoughts.strip()
    starts = [match.start() for match in _JSON_LINE.finditer(text)][-_MOST_STARTS:]
    for start in (0, *starts):
        checked = check_answer(text[start:], schema) if text else None
        if isinstance(checked, ValidAnswer):
            return ValidAnswer(checked.text, (Dropped("thoughts"), *checked.facts))
    return None


def check_answer(answer: str, schema: JsonSchema) -> ValidAnswer | InvalidAnswer:
    """Check an answer; if the schema cannot be compiled, any JSON is valid."""
    text, facts = _without_fence(answer.strip())
    try:
        value = json.parse(text)
    except ValueError as error:
        return InvalidAnswer((f"it is not valid JSON: {error}",))
    try:
        compiled = compile_schema(schema)
        try:
            errors = _list_errors(compiled, value)
        except TooLongToMatch:
            compiled = compiled.without_patterns()
            errors = _list_errors(compiled, value)
    except UnusableSchema as error:
        return ValidAnswer(text, (*facts, Unchecked("the answer", str(error))))
    except TooLargeToExplain:
        return InvalidAnswer((TOO_LARGE.about("the answer"),))
    if errors:
        return InvalidAnswer(
            tuple(violation.about("the answer") for violation in describe_violations(errors))
        )
    unchecked = (Unchecked("the answer", compiled.problem),) if compiled.problem else ()
    return ValidAnswer(text if facts else answer, (*facts, *unchecked))


def _list_errors(schema: Schema, value: JsonValue) -> tuple[ValidationError, ...]:
    return () if schema.is_valid(value) else tuple(schema.errors(value))


def _without_fence(text: str) -> tuple[str, tuple[Fact, ...]]:
    """Remove a code fence around the answer, because clients parse the text as JSON."""
    opening, _, body = text.partition("\n")
    if opening.lower() not in (_FENCE, f"{_FENCE}json") or not body.endswith(_FENCE):
        return text, ()
    return body.removesuffix(_FENCE).strip(), (Dropped("code_fence"),)


class CheckedMember(msgspec.Struct, frozen=True):
    """The final value of a valid member; `is_changed` if the value was coerced."""

    value: JsonValue
    is_changed: bool = False


class Members:
    """Checks single arguments while the model still writes the call.

    A streamed argument cannot be revoked, so the check of a single argument must have the same
    result as the check of the complete object. If the result is uncertain, `check` returns None,
    and the argument is checked with the complete object. If the schema checks arguments in
    combination (`anyOf` at its root), `declares` is false for all of them.
    """

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        is_independent = isinstance(schema, dict) and schema.keys() <= _INDEPENDENT
        self._properties = properties_of(schema) if is_independent else {}

    def declares(self, name: str) -> bool:
        return name in self._properties

    def accepts_any_string(self, name: str) -> bool:
        """Return whether every string is valid, so that an incomplete string can be streamed."""
        return _accepts_any_string(self._properties[name])

    def check(self, name: str, value: JsonValue) -> CheckedMember | None:
        """Check and coerce the complete value of a member; None if invalid or uncertain."""
        try:
            schema = compile_schema(self._schema)
            part = schema.part(("properties", name))
            if part is not None and part.is_valid(value):
                final, paths = write_integers(part, value)
                return CheckedMember(final, is_changed=bool(paths))
            return _coerce(schema, name, value)
        except (TooLargeToExplain, UnusableSchema, ValueError):
            return None


def _coerce(schema: Schema, name: str, value: JsonValue) -> CheckedMember | None:
    """Coerce a member as the only member of an object, because other members have not arrived.

    Errors about missing members are ignored.
    """
    coercion = coerce(schema, {name: value})
    arguments, errors = coercion.value, coercion.errors
    is_invalid = any(
        error.instance_path or not isinstance(error.kind, Kind.Required) for error in errors
    )
    if is_invalid or not isinstance(arguments, dict) or name not in arguments:
        return None
    final, paths = write_integers(schema, arguments)
    assert isinstance(final, dict)  # noqa: S101 - a copy of the arguments
    return CheckedMember(final[name], is_changed=bool(coercion.paths or paths))


def _accepts_any_string(schema: JsonValue) -> bool:
    if not isinstance(schema, dict):
        return schema is True
    kinds, branches = schema.get("type", "string"), schema.get("anyOf", [True])
    return (
        schema.keys() <= _ANY_STRING
        and "string" in (kinds if isinstance(kinds, list) else [kinds])
        and isinstance(branches, list)
        and any(map(_accepts_any_string, branches))
    )
