"""Writes the part of the chart's values.schema.json that describes Temper's settings.

python -m tests.deploying.config_schema
"""

import json
from pathlib import Path

from proxy.conversation.json import JsonObject, JsonValue
from proxy.settings import Settings

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "temper"
SCHEMA = CHART / "values.schema.json"

# the chart sets the listening address in the pod
_OF_THE_CHART = ("host", "port")
# a ConfigMap must not contain a secret, only the name of a variable
_REFERENCE = r"^[^$]*\$\{[A-Za-z_][A-Za-z0-9_]*\}.*$|^$"
# an address is a secret only if it contains a password
_ADDRESS = f"^[a-z]+://[^@]*$|{_REFERENCE}"
_ANNOTATIONS = ("title", "default", "format", "writeOnly")


def with_settings(schema: JsonObject) -> JsonObject:
    """Return the schema with the current settings."""
    settings: JsonObject = Settings.model_json_schema()
    definitions = _object(settings.pop("$defs"))
    for name in _OF_THE_CHART:
        del _properties_of(definitions, "Server")[name]
    store = _properties_of(definitions, "State")
    meaning = _object(store["url"])["description"]
    store["url"] = {"type": "string", "description": meaning, "pattern": _ADDRESS}
    properties = _object(schema["properties"])
    config = _simplified(settings)
    return {
        **schema,
        "properties": {**properties, "config": config},
        "$defs": _simplified(definitions),
    }


def _properties_of(definitions: JsonObject, section: str) -> JsonObject:
    return _object(_object(definitions[section])["properties"])


def _object(value: JsonValue) -> JsonObject:
    assert isinstance(value, dict)
    return value


def _simplified(value: JsonValue) -> JsonValue:
    """Remove annotations, and null, because Helm uses null to remove a value."""
    match value:
        case dict():
            return _members(_without_null(value))
        case list():
            return [_simplified(item) for item in value]
        case _:
            return value


def _without_null(value: JsonObject) -> JsonObject:
    options = value.get("anyOf")
    if isinstance(options, list) and options[1:] == [{"type": "null"}]:
        others = {name: member for name, member in value.items() if name != "anyOf"}
        return _without_null({**_object(options[0]), **others})
    return {**value, "pattern": _REFERENCE} if value.get("writeOnly") else value


def _members(value: JsonObject) -> JsonObject:
    """Simplify the members; the names in `properties` are settings, not annotations."""
    return {
        name: {key: _simplified(value) for key, value in member.items()}
        if name == "properties" and isinstance(member, dict)
        else _simplified(member)
        for name, member in value.items()
        if name not in _ANNOTATIONS
    }


def text_of(schema: JsonObject) -> str:
    """Return a schema as written in the chart."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(text_of(with_settings(json.loads(SCHEMA.read_text("utf-8")))), "utf-8")
