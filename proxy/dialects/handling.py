"""What happens to a field of a client's request at a backend with a language of its own.

Nothing may get lost in silence there, so every field has one of these: it is carried over, kept by
Temper, needless for a model by its nature, or refused by name.
"""

from dataclasses import dataclass
from typing import TypeAlias

from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class FieldRule:
    """The field has a counterpart that the modules beside the table write."""


@dataclass(frozen=True, slots=True)
class Member:
    """The value goes to the top of the body, under the same name."""


@dataclass(frozen=True, slots=True)
class Enforced:
    """Temper itself sees to it."""


@dataclass(frozen=True, slots=True)
class Needless:
    """No reply would be another one for it: it is about accounts, records, routing or speed."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The backend cannot do it; `remedy` is the way out, `harmless` values ask for nothing."""

    remedy: str
    harmless: tuple[JsonValue, ...] = ()


Handling: TypeAlias = FieldRule | Member | Enforced | Needless | Refused


def put_once(target: JsonObject, name: str, value: JsonValue, param: str) -> None:
    """Write a member, for the field `param`; raises `InvalidRequest` where another value stands."""
    if target.setdefault(name, value) != value:
        raise InvalidRequest("It was asked for twice, with different values. Choose one.", param)


def form_schema(wanted: JsonObject) -> JsonObject | None:
    """Return the schema in a `response_format`, None where there is none."""
    described = wanted.get("json_schema")
    holder = described if isinstance(described, dict) else wanted
    schema = holder.get("schema")
    return schema if isinstance(schema, dict) else None
