"""Arguments and answers against the caller's schema: read, checked, and coerced if needed.

`check` judges the arguments of one call. `Members` judges one member at a time while the model
writes them. `check_reply` judges a reply that has to be JSON. Nothing here raises for what a model
wrote, and a schema that cannot be compiled checks nothing.
"""

import re
from typing import TypeAlias

import msgspec
from jsonschema_rs import ValidationErrorKind as Kind
from msgspec.structs import replace

from proxy.bounds import MEMBERS
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonSchema, JsonValue
from proxy.conversation.tools import Tool, properties_of
from proxy.facts import Coerced, Dropped, Fact, Repaired, Unchecked
from proxy.guardrails.rescue.values.reader import read_whole
from proxy.guardrails.rescue.values.scalars import Unreadable
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
_MAY_BE_FLOAT = re.compile(r"\d[.eE]")


class ValidArguments(msgspec.Struct, frozen=True):
    """Arguments fit for a client; `text` is the model's own if nothing had to be changed.

    Before they are checked, `text` is empty if they have to be written anew.
    """

    text: str
    value: JsonObject
    facts: tuple[Fact, ...] = ()


class BrokenArguments(msgspec.Struct, frozen=True):
    """The arguments are no JSON object."""

    problem: str


class InvalidArguments(msgspec.Struct, frozen=True):
    """An object that violates the schema, coerced as far as possible."""

    value: JsonObject
    violations: tuple[Violation, ...]
    facts: tuple[Fact, ...] = ()


CheckedArguments: TypeAlias = ValidArguments | BrokenArguments | InvalidArguments


def check(tool: Tool, written: JsonValue, *, may_close: bool = False) -> CheckedArguments:
    """Judge the arguments of a call: JSON text, possibly broken, or a parsed value.

    With `may_close` closing brackets may be missing at the end: only the caller knows whether the
    model itself chose to stop.
    """
    read = _read(tool.name, written, may_close=may_close)
    if isinstance(read, BrokenArguments):
        return read
    named = unescape_names(tool.parameters, read.value)
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
    """Accept valid arguments; an integer that was written `5.0` becomes `5`."""
    if read.text and not _MAY_BE_FLOAT.search(read.text):
        return read
    value, places = write_integers(schema, read.value)
    if not (places and isinstance(value, dict)):
        return _write(read)
    facts = (*read.facts, *(Coerced(tool, pointer(path)) for path in places))
    return _write(ValidArguments("", value, facts))


def object_text(written: JsonValue) -> str | None:
    """Return the JSON text of a call's arguments, unchecked; None if they are no object."""
    read = _read("", written, may_close=False)
    return None if isinstance(read, BrokenArguments) else _write(read).text


def _write(read: ValidArguments) -> ValidArguments:
    return read if read.text else replace(read, text=json.dump_text(read.value))


def _read(tool: str, written: JsonValue, *, may_close: bool) -> ValidArguments | BrokenArguments:
    match written:
        case str():
            return _read_text(tool, written, may_close=may_close)
        case None:
            return ValidArguments("", {})
        case dict():
            try:
                copy_value(written)
            except (ValueError, RecursionError) as error:
                return BrokenArguments(f"The arguments cannot be written as JSON: {error}")
            return ValidArguments("", written)
        case _:
            kind = "an array" if isinstance(written, list) else "a single value"
            return BrokenArguments(f"The arguments have to be a JSON object, not {kind}")


def _read_text(tool: str, text: str, *, may_close: bool) -> ValidArguments | BrokenArguments:
    if not text.strip():
        return ValidArguments("", {})
    if text.count('":') > MEMBERS:
        return BrokenArguments(f"The arguments have more than {MEMBERS:,} members")
    done: Fact = Coerced(tool, "")
    try:
        value = json.parse(text)
    except ValueError as error:
        result = read_whole(text)
        if isinstance(result, Unreadable) or not (result.is_closed or may_close):
            return BrokenArguments(f"The arguments are not valid JSON: {error}")
        value, done = result.value, Repaired(tool)
    else:
        if isinstance(value, dict):
            return ValidArguments(text, value)
        if value is None:  # nothing was said, so nothing had to be done
            return ValidArguments("", {})
    read = _read(tool, value, may_close=may_close)
    return read if isinstance(read, BrokenArguments) else replace(read, facts=(done, *read.facts))


_FENCE = "```"
_JSON_LINE = re.compile(r"^(?:```(?:json)?\n)?[{\[]", re.MULTILINE)
_MOST_BEGINNINGS = 10  # each of them is parsed up to the end


class ValidAnswer(msgspec.Struct, frozen=True):
    """JSON that satisfies the schema; `text` is the model's own, without a fence around it."""

    text: str
    facts: tuple[Fact, ...] = ()


class InvalidAnswer(msgspec.Struct, frozen=True):
    """Anything else; `problems` are phrases that a model can act on."""

    problems: tuple[str, ...]


def check_reply(text: str, thoughts: str, schema: JsonSchema) -> ValidAnswer | InvalidAnswer:
    """Judge the answer of a reply: its text, or its thoughts if there is none."""
    found = None if text.strip() else _find_answer(thoughts, schema)
    return found or check_answer(text, schema)


def _find_answer(thoughts: str, schema: JsonSchema) -> ValidAnswer | None:
    """Return the answer that a model gave only as its thoughts, or at their end."""
    text = thoughts.strip()
    places = [match.start() for match in _JSON_LINE.finditer(text)][-_MOST_BEGINNINGS:]
    for place in (0, *places):
        checked = check_answer(text[place:], schema) if text else None
        if isinstance(checked, ValidAnswer):
            return ValidAnswer(checked.text, (Dropped("thoughts"), *checked.facts))
    return None


def check_answer(written: str, schema: JsonSchema) -> ValidAnswer | InvalidAnswer:
    """Judge a whole answer; a schema that cannot be compiled demands nothing but JSON."""
    text, facts = _without_fence(written.strip())
    try:
        value = json.parse(text)
    except ValueError as error:
        return InvalidAnswer((f"it is not valid JSON: {error}",))
    try:
        usable = compile_schema(schema)
        try:
            errors = () if usable.is_valid(value) else tuple(usable.errors(value))
        except TooLongToMatch:
            usable = usable.without_patterns()
            errors = () if usable.is_valid(value) else tuple(usable.errors(value))
    except UnusableSchema as error:
        return ValidAnswer(text, (*facts, Unchecked("the answer", str(error))))
    except TooLargeToExplain:
        return InvalidAnswer((TOO_LARGE.about("the answer"),))
    if errors:
        return InvalidAnswer(tuple(one.about("the answer") for one in describe_violations(errors)))
    unchecked = (Unchecked("the answer", usable.problem),) if usable.problem else ()
    return ValidAnswer(text if facts else written, (*facts, *unchecked))


def _without_fence(text: str) -> tuple[str, tuple[Fact, ...]]:
    """Remove a code fence around the whole answer, which the client could not parse."""
    opening, _, rest = text.partition("\n")
    if opening.lower() not in (_FENCE, f"{_FENCE}json") or not rest.endswith(_FENCE):
        return text, ()
    return rest.removesuffix(_FENCE).strip(), (Dropped("code_fence"),)


class Settled(msgspec.Struct, frozen=True):
    """A member's final value; `is_changed` if it had to be coerced."""

    value: JsonValue
    is_changed: bool = False


class Members:
    """The members that a tool declares, judged while the model writes them.

    A member is judged exactly as the whole will be, so what was shown of a call stays right. If
    that is not certain, the member waits for the verdict on the whole. A schema that judges members
    in combination declares none.
    """

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        is_known = isinstance(schema, dict) and schema.keys() <= _ROOT
        self._properties = properties_of(schema) if is_known else {}

    def declares(self, name: str) -> bool:
        return name in self._properties

    def takes_any_string(self, name: str) -> bool:
        """Whether every string is valid for a parameter, and so the first half of one."""
        return _takes_any_string(self._properties[name])

    def settle(self, name: str, value: JsonValue) -> Settled | None:
        """Check the whole value of a parameter, coerced if needed; None if it is not certain."""
        try:
            schema = compile_schema(self._schema)
            part = schema.part(("properties", name))
            if part is not None and part.is_valid(value):
                settled, places = write_integers(part, value)
                return Settled(settled, is_changed=bool(places))
            return _coerce(schema, name, value)
        except (TooLargeToExplain, UnusableSchema, ValueError):
            return None


def _coerce(schema: Schema, name: str, value: JsonValue) -> Settled | None:
    """Coerce a member within its object, where only others may be missing."""
    coercion = coerce(schema, {name: value})
    whole, errors = coercion.value, coercion.errors
    is_wrong = any(one.instance_path or not isinstance(one.kind, Kind.Required) for one in errors)
    if is_wrong or not isinstance(whole, dict) or name not in whole:
        return None
    settled, places = write_integers(schema, whole)
    assert isinstance(settled, dict)  # noqa: S101 - a copy of the arguments
    return Settled(settled[name], is_changed=bool(coercion.paths or places))


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
