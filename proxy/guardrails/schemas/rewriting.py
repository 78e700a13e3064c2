"""Rewrites schemas for the validator, for llama-server and for tool prompts.

`remove_patterns` and `remove_unknown_types` produce a schema that the validator can compile.
`simplify` and `simplify_for_grammar` produce a schema that llama-server can compile. `call_schema`
combines the schemas of tools into the schema of a call. `bind_members` makes members of a tool
required, and replaces their schemas. `change_schemas` applies a change to the sub-schemas of a
keyword.

    {"type": "float", "minimum": 1}      {"minimum": 1}     remove_unknown_types
    {"items": true}                      {"items": {}}      simplify: llama.cpp rejects booleans
    {"city": "string"} as a property     {"type": "string"} simplify_for_grammar
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial

from proxy.conversation import json
from proxy.conversation.document_cache import DocumentCache
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import Tool, properties_of
from proxy.guardrails.schemas.patterns import patterns_in

# In the values of these keywords, `{"type": "float"}` is data and not a schema.
_DATA = frozenset(["const", "default", "dependentRequired", "enum", "examples"])

_SCHEMAS_BY_NAME = frozenset(["$defs", "definitions", "dependentSchemas", "properties"])
_SCHEMAS_BY_NAME |= {"patternProperties", "dependencies"}
_SCHEMA_LISTS = frozenset(["allOf", "anyOf", "oneOf", "prefixItems", "items"])
_SCHEMAS = frozenset(["additionalProperties", "contains", "else", "if", "items", "not", "then"])
_SCHEMAS |= {"additionalItems", "contentSchema", "propertyNames"}
_SCHEMAS |= {"unevaluatedItems", "unevaluatedProperties"}
# These keywords may reject more values if their sub-schemas accept more values.
_INVERTING = frozenset(["if", "not", "oneOf"])
_REFERENCES = frozenset(["$ref", "$dynamicRef"])
_EVERY_NAME = ""  # the pattern that matches all names
KNOWN_TYPES = frozenset(["array", "boolean", "integer", "null", "number", "object", "string"])
_MAY_BE_BOOLEAN = frozenset(["additionalProperties", "unevaluatedItems", "unevaluatedProperties"])
_LENGTHS = frozenset(["maxItems", "maxLength", "minItems", "minLength"])
# The largest length that a strict simplification keeps. For a length of n, a grammar contains the
# same rule n times.
_LONGEST = 200
_ANY_OBJECT: JsonObject = {"type": "object"}
# An `$id` within `$defs` would start another document and change the targets of `#/...`.
_ROOT_ONLY = ("$id", "$schema")


def change_schemas(
    keyword: str, value: JsonValue, change: Callable[[JsonValue], JsonValue]
) -> JsonValue:
    """Apply a change to the schemas in the value of a keyword; other values stay the same."""
    match value:
        case dict() if keyword in _SCHEMAS_BY_NAME:
            return {name: change(schema) for name, schema in value.items()}
        case list() if keyword in _SCHEMA_LISTS:
            return [change(schema) for schema in value]
        case dict() | bool() if keyword in _SCHEMAS:
            return change(value)
        case _:
            return value


class IrremovablePattern(ValueError):
    """Raised if the schema would reject more values without the pattern than with it."""


def remove_patterns(schema: JsonValue, patterns: Collection[str]) -> JsonValue:
    """Return the schema without these patterns; raises IrremovablePattern."""
    removed = _Removal(patterns).remove(schema)
    if not frozenset(patterns).isdisjoint(patterns_in(removed)):
        raise IrremovablePattern("a pattern that a reference may use cannot be removed")
    return removed


class _Removal:
    """Removes patterns from a schema."""

    def __init__(self, patterns: Collection[str]) -> None:
        self._patterns = patterns
        self._effects = 0  # counts removed patterns, and references whose targets may have changed

    def remove(self, schema: JsonValue) -> JsonValue:
        if not isinstance(schema, dict):
            return schema
        self._effects += not _REFERENCES.isdisjoint(schema)
        result: JsonObject = {}
        for keyword, value in schema.items():
            if keyword == "pattern" and isinstance(value, str) and value in self._patterns:
                self._effects += 1
            else:
                result[keyword] = self._remove_in(schema, keyword, value)
        return result

    def _remove_in(self, schema: JsonObject, keyword: str, value: JsonValue) -> JsonValue:
        effects = self._effects
        if keyword == "patternProperties" and isinstance(value, dict):
            value = self._remove_names(value)
        changed = change_schemas(keyword, value, self.remove)
        is_inverting = keyword in _INVERTING or (keyword == "contains" and "maxContains" in schema)
        if is_inverting and self._effects > effects:
            raise IrremovablePattern(f"a pattern within {keyword!r} cannot be removed")
        return changed

    def _remove_names(self, by_pattern: JsonObject) -> JsonObject:
        """Remove patterns from `patternProperties`, and allow any member instead.

        Without this, `additionalProperties` would reject the members whose names matched a pattern.
        """
        kept = {name: schema for name, schema in by_pattern.items() if name not in self._patterns}
        if len(kept) == len(by_pattern):
            return by_pattern
        self._effects += 1
        return {_EVERY_NAME: True, **kept}


def remove_unknown_types(schema: JsonValue) -> JsonValue:
    """Remove the keyword `type` if it names an unknown type, such as `float`."""
    match schema:
        case dict():
            return {
                keyword: value if keyword in _DATA else remove_unknown_types(value)
                for keyword, value in schema.items()
                if not (keyword == "type" and _names_unknown_type(value))
            }
        case list():
            return [remove_unknown_types(item) for item in schema]
        case _:
            return schema


def _names_unknown_type(value: JsonValue) -> bool:
    """Return whether a value of the keyword `type` names an unknown type.

    A dictionary is not a value of this keyword. It is the schema of a property with the name
    `type`.
    """
    names = value if isinstance(value, list) else [value]
    is_known = all(isinstance(name, str) and name in KNOWN_TYPES for name in names)
    return not (is_known or isinstance(value, dict | bool))


def simplify(tool: Tool, *, is_strict: bool = False) -> Tool:
    """Return the tool with a schema that llama-server can compile; most tools stay unchanged.

    llama-server rejects a request with boolean sub-schemas, unknown types or remote references.
    `is_strict` also removes patterns and long lengths, for a backend that rejected the simplified
    schema. Replies are checked against the original schema, which remains in `Tool.parameters`.
    """
    source = _simplify_source[is_strict](tool.source)
    return tool if source is None else Tool(tool.name, tool.parameters, source)


def _simplify_parameters(source: bytes, *, is_strict: bool) -> bytes | None:
    document = json.parse(source)
    function = document.get("function") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(function, dict):
        return None
    schema = function.get("parameters")
    change = simplify_for_grammar if is_strict else _simplify_object
    simple = change(schema) if isinstance(schema, dict) else _ANY_OBJECT
    if schema is None or simple == schema:
        return None
    return json.dump({**document, "function": {**function, "parameters": simple}})


_simplify_source = {
    is_strict: DocumentCache(partial(_simplify_parameters, is_strict=is_strict))
    for is_strict in (False, True)
}


def simplify_for_grammar(schema: JsonObject) -> JsonObject:
    """Simplify a schema, and remove patterns and long lengths (llama.cpp#25895)."""
    return _simplify_object(schema, is_strict=True)


def _simplify_object(schema: JsonObject, root: str = "#", *, is_strict: bool = False) -> JsonObject:
    """Simplify a schema; its local references `#/...` become `<root>/...`."""
    return {
        keyword: _simplify_value(keyword, value, root, is_strict=is_strict)
        for keyword, value in schema.items()
        if not _is_removed(keyword, value, is_strict=is_strict)
    }


def _simplify_value(keyword: str, value: JsonValue, root: str, *, is_strict: bool) -> JsonValue:
    if keyword == "$ref" and isinstance(value, str):
        return root + value[1:] if value == "#" or value.startswith("#/") else value
    if keyword in _MAY_BE_BOOLEAN and isinstance(value, bool):
        return value
    return change_schemas(keyword, value, partial(_simplify, root=root, is_strict=is_strict))


def _is_removed(keyword: str, value: JsonValue, *, is_strict: bool) -> bool:
    match keyword:
        case "type":
            return _names_unknown_type(value)
        case "$ref":
            return not str(value).startswith("#")
        case "pattern":
            return is_strict
        case _:
            is_length = is_strict and keyword in _LENGTHS
            return is_length and isinstance(value, int) and value > _LONGEST


def _simplify(schema: JsonValue, root: str, *, is_strict: bool) -> JsonValue:
    match schema:
        case dict():
            return _simplify_object(schema, root, is_strict=is_strict)
        case bool():
            return {} if schema else {"not": {}}
        case str() if is_strict:  # {"city": "string"}
            return {"type": schema} if schema in KNOWN_TYPES else {}
        case _:
            return schema


def call_schema(tools: Sequence[Tool]) -> JsonObject:
    """Return the schema of a call, `{"name", "arguments"}`, of any of the tools.

    The schema of each tool moves to `$defs/tool_<number>`; its local references are adapted.
    """
    definitions: JsonObject = {}
    calls: list[JsonObject] = []
    for number, tool in enumerate(tools):
        root, schema = f"#/$defs/tool_{number}", tool.parameters
        parameters = {**(_ANY_OBJECT if isinstance(schema, bool) else schema)}
        for keyword in _ROOT_ONLY:
            parameters.pop(keyword, None)
        definitions[f"tool_{number}"] = _simplify_object(parameters, root)
        calls.append(
            {
                "type": "object",
                "properties": {"name": {"const": tool.name}, "arguments": {"$ref": root}},
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    choice: JsonObject = calls[0] if len(calls) == 1 else {"anyOf": [*calls]}
    return {**choice, "$defs": definitions}


def bind_members(tool: Tool, bound: JsonObject) -> Tool:
    """Return the tool with the members of `bound` required; `bound` contains their schemas."""
    if not bound or not isinstance(tool.parameters, dict):
        return tool
    parameters = tool.parameters
    required = parameters.get("required")
    properties: JsonObject = {**properties_of(parameters), **bound}
    names = [*(required if isinstance(required, list) else ()), *bound]
    kept: list[JsonValue] = [*dict.fromkeys(name for name in names if isinstance(name, str))]
    return Tool(tool.name, {**parameters, "properties": properties, "required": kept}, tool.source)
