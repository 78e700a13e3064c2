"""Invents arguments that satisfy a schema, as a model does if the request does not name them."""

import random

from proxy.conversation.json import JsonObject, JsonValue

_WORDS = ("alpha", "report", "main", "test", "value", "north")


def invent_value(schema: JsonObject, draw: random.Random) -> JsonValue:
    """Invent a value for a simple schema."""
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return draw.choice(choices)
    either = schema.get("anyOf")
    if isinstance(either, list) and either and isinstance(either[0], dict):
        return invent_value(either[0], draw)
    if schema.get("type") == "object":
        return invent_arguments(schema, draw)
    return _invent_scalar(str(schema.get("type")), draw)


def _invent_scalar(kind: str, draw: random.Random) -> JsonValue:
    match kind:
        case "array":
            return []
        case "integer":
            return draw.randint(1, 60)
        case "number":
            return draw.randint(0, 10) / 10
        case "boolean":
            return draw.choice([True, False])
        case _:
            return f"{draw.choice(_WORDS)}-{draw.randint(100, 999)}"


def invent_arguments(schema: JsonObject, draw: random.Random) -> JsonObject:
    """Invent an object with the required members of a schema."""
    properties = schema.get("properties")
    required = schema.get("required")
    if not isinstance(properties, dict):
        return {}
    names = required if isinstance(required, list) else []
    return {
        name: invent_value(kind if isinstance(kind, dict) else {}, draw)
        for name, kind in properties.items()
        if name in names
    }
