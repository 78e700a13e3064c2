"""Arguments and answers against the client's schema: read, checked, and coerced if needed.

`check` judges the arguments of one call, `Members` one member of them while the model still writes,
`check_reply` a reply that has to be JSON. A defect of the model is a result here, never an
exception; a schema that cannot be compiled checks nothing, and the outcome reports that.

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
from proxy.guardrails.rescue.values.reader import read_values, read_whole
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
# Keywords of a whole schema that judge its members one by one, or only require them.
_ROOT = _ANNOTATIONS | {"type", "properties", "required", "additionalProperties"}
_ROOT |= {"$schema", "$id", "$defs", "definitions", "strict"}
_STRING = _ANNOTATIONS | {"type", "anyOf"}
_MAY_BE_FLOAT = re.compile(r"\d[.eE]")  # without a match, arguments need no search for `5.0`


class ValidArguments(msgspec.Struct, frozen=True):
    """Arguments fit for a client; `text` is the model's text if nothing had to be changed.

    `text` is empty until the check if the arguments have to be serialized again.
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
    """Judge the arguments of a call: JSON text, possibly broken, or a parsed value.

    With `may_close` missing brackets at the end are added. Only the caller knows whether the model
    chose to stop there or the reply was cut off, in which case a value may be incomplete.
    """
    read = _read(tool.name, arguments, may_close=may_close)
    if isinstance(read, BrokenArguments):
        return read
    named = unescape_names(
        tool.parameters, read.value
    )  # before the check: unknown names are errors
    if named is not read.value:
        read = ValidArguments("", named, (*read.facts, Coerced(tool.name, "")))
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
        meant = ValidArguments("", inner, (*read.facts, Coerced(tool.name, "")))
        checked = _judge(tool.name, schema, meant)
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
    """Accept valid arguments, with `5` in place of `5.0` where an integer is expected."""
    if read.text and not _MAY_BE_FLOAT.search(read.text):
        return read
    value, paths = write_integers(schema, read.value)
    if not (paths and isinstance(value, dict)):
        return _write(read)
    facts = (*read.facts, *(Coerced(tool, pointer(path)) for path in paths))
    return _write(ValidArguments("", value, facts))


def object_text(arguments: JsonValue) -> str | None:
    """Return the JSON text of a call's arguments, unchecked; None if they are not an object."""
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
    # No model means more members, and each of them costs time in the check.
    if text.count('":') > MEMBERS:
        return BrokenArguments(f"The arguments have more than {MEMBERS:,} members")
    done: Fact = Coerced(tool, "")
    try:
        value = json.parse(text)
    except ValueError as error:
        result = _read_lenient(text)
        if result is None or not (result.is_closed or may_close):
            return BrokenArguments(f"The arguments are not valid JSON: {error}")
        value, done = result.value, Repaired(tool)
    else:
        if isinstance(value, dict):
            return ValidArguments(text, value)
        if value is None:  # `null` means no arguments, which is not a repair
            return ValidArguments("", {})
    read = _read(tool, value, may_close=may_close)
    return read if isinstance(read, BrokenArguments) else replace(read, facts=(done, *read.facts))


def _read_lenient(text: str) -> Value | None:
    """Read JSON that is not valid, such as `{'days': 3,}` or `{"days": 3}}`."""
    result = read_whole(text)
    if isinstance(result, Value):
        return result
    # a surplus bracket after the whole object changes nothing, here as in a call that is text
    values = read_values(text)
    return Value(values[0]) if len(values) == 1 and isinstance(values[0], dict) else None


_FENCE = "```"
_JSON_LINE = re.compile(r"^(?:```(?:json)?\n)?[{\[]", re.MULTILINE)
_MOST_BEGINNINGS = 10  # each is parsed to the end, so more would take quadratic time


class ValidAnswer(msgspec.Struct, frozen=True):
    """JSON that satisfies the schema; `text` is that of the model, without a code fence."""

    text: str
    facts: tuple[Fact, ...] = ()


class InvalidAnswer(msgspec.Struct, frozen=True):
    """An answer that violates the schema; `problems` are phrases that a model can act on."""

    problems: tuple[str, ...]


def check_reply(text: str, thoughts: str, schema: JsonSchema) -> ValidAnswer | InvalidAnswer:
    """Judge the answer of a reply: its text, or without text its reasoning."""
    answer = None if text.strip() else _find_answer(thoughts, schema)
    return answer or check_answer(text, schema)


def _find_answer(thoughts: str, schema: JsonSchema) -> ValidAnswer | None:
    """Return the answer that a model gave only as its reasoning, or at the end of it."""
    text = thoughts.strip()
    starts = [match.start() for match in _JSON_LINE.finditer(text)][-_MOST_BEGINNINGS:]
    for start in (0, *starts):
        checked = check_answer(text[start:], schema) if text else None
        if isinstance(checked, ValidAnswer):
            return ValidAnswer(checked.text, (Dropped("thoughts"), *checked.facts))
    return None


def check_answer(answer: str, schema: JsonSchema) -> ValidAnswer | InvalidAnswer:
    """Judge a whole answer; a schema that cannot be compiled demands only JSON."""
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
    """Remove a code fence around the whole answer: clients parse the text as JSON."""
    opening, _, rest = text.partition("\n")
    if opening.lower() not in (_FENCE, f"{_FENCE}json") or not rest.endswith(_FENCE):
        return text, ()
    return rest.removesuffix(_FENCE).strip(), (Dropped("code_fence"),)


class Settled(msgspec.Struct, frozen=True):
    """The final value of a member; `is_changed` if it had to be coerced."""

    value: JsonValue
    is_changed: bool = False


class Members:
    """The members that a tool declares, judged while the model still writes the call.

    A streamed argument cannot be taken back, so a member is judged exactly as it will be within the
    whole object. Where that is uncertain, the member waits for the verdict on the whole. A schema
    that judges members in combination declares none.
    """

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        is_known = isinstance(schema, dict) and schema.keys() <= _ROOT
        self._properties = properties_of(schema) if is_known else {}

    def declares(self, name: str) -> bool:
        return name in self._properties

    def takes_any_string(self, name: str) -> bool:
        """Return whether every string is valid, and so every prefix of one."""
        return _takes_any_string(self._properties[name])

    def settle(self, name: str, value: JsonValue) -> Settled | None:
        """Check the complete value of a member, coerced if needed; None if uncertain."""
        try:
            schema = compile_schema(self._schema)
            part = schema.part(("properties", name))
            if part is not None and part.is_valid(value):
                settled, paths = write_integers(part, value)
                return Settled(settled, is_changed=bool(paths))
            return _coerce(schema, name, value)
        except (TooLargeToExplain, UnusableSchema, ValueError):
            return None


def _coerce(schema: Schema, name: str, value: JsonValue) -> Settled | None:
    """Coerce a member inside its object, where the other members may still be missing."""
    coercion = coerce(schema, {name: value})
    whole, errors = coercion.value, coercion.errors
    is_wrong = any(
        error.instance_path or not isinstance(error.kind, Kind.Required) for error in errors
    )
    if is_wrong or not isinstance(whole, dict) or name not in whole:
        return None
    settled, paths = write_integers(schema, whole)
    assert isinstance(settled, dict)  # noqa: S101 - a copy of the arguments
    return Settled(settled[name], is_changed=bool(coercion.paths or paths))


def _takes_any_string(schema: JsonValue) -> bool:
    if not isinstance(schema, dict):
        return schema is True
    kinds, branches = schema.get("type", "string"), schema.get("anyOf", [True])
    return (
        schema.keys() <= _STRING
        and "string" in (kinds if isinstance(kinds, list) else [kinds])
        and isinstance(branches, list)
        and any(map(_takes_any_string, branches))
    )
