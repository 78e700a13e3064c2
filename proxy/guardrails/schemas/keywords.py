"""JSON schema's keywords, and where a schema has other schemas in it."""

from collections.abc import Callable

from proxy.conversation.json import JsonValue

DATA = frozenset(["const", "default", "dependentRequired", "enum", "examples"])

_SCHEMAS_BY_NAME = frozenset(["$defs", "definitions", "dependentSchemas", "properties"])
_SCHEMAS_BY_NAME |= {"patternProperties", "dependencies"}
_SCHEMA_LISTS = frozenset(["allOf", "anyOf", "oneOf", "prefixItems", "items"])
_SCHEMAS = frozenset(["additionalProperties", "contains", "else", "if", "items", "not", "then"])
_SCHEMAS |= {"additionalItems", "contentSchema", "propertyNames"}
_SCHEMAS |= {"unevaluatedItems", "unevaluatedProperties"}


def change_schemas(
    keyword: str, value: JsonValue, change: Callable[[JsonValue], JsonValue]
) -> JsonValue:
    """Change the schemas that are the value of a keyword, or in it."""
    match value:
        case dict() if keyword in _SCHEMAS_BY_NAME:
            return {name: change(schema) for name, schema in value.items()}
        case list() if keyword in _SCHEMA_LISTS:
            return [change(schema) for schema in value]
        case dict() | bool() if keyword in _SCHEMAS:
            return change(value)
        case _:
            return value
