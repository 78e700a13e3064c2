"""One member of a call's arguments at a time, judged before the rest is known.

A member is judged exactly as the whole will be, so what was shown of a call stays right. If that is
not certain, the member waits for the verdict on the whole.
"""

import msgspec
from jsonschema_rs import ValidationErrorKind as Kind

from proxy.conversation.json import JsonSchema, JsonValue
from proxy.guardrails.schemas.coercion import coerce, write_integers
from proxy.guardrails.schemas.schema import (
    Schema,
    TooLargeToExplain,
    UnusableSchema,
    compile_schema,
)

_ANNOTATIONS = frozenset(["title", "description", "default", "examples", "$comment", "deprecated"])
# Keywords of a whole schema that judge its members one by one, or only require them.
_ROOT = _ANNOTATIONS | {"type", "properties", "required", "additionalProperties"}
_ROOT |= {"$schema", "$id", "$defs", "definitions", "strict"}
_STRING = _ANNOTATIONS | {"type", "anyOf"}


class Settled(msgspec.Struct, frozen=True):
    """A member's final value; `is_changed` if it had to be coerced."""

    value: JsonValue
    is_changed: bool = False


class Members:
    """The members that a tool declares; none if its schema judges them in combination."""

    def __init__(self, schema: JsonSchema) -> None:
        self._schema = schema
        known = schema if isinstance(schema, dict) and schema.keys() <= _ROOT else {}
        properties = known.get("properties")
        self._properties = properties if isinstance(properties, dict) else {}

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
