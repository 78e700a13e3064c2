"""Schemas rewritten for a purpose other than checking a value with them unchanged.

`remove_patterns` and `without_unknown_types` produce a schema that the validator can compile,
`simplify` and `simplify_for_grammar` one that llama-server can compile. `call_schema` combines the
schemas of tools into the schema of one call, and `bind_members` fixes members of one tool.
`change_schemas` knows the keywords with schemas in their values.

    {"type": "float", "minimum": 1}      {"minimum": 1}     without_unknown_types
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

# In the values of these, `{"type": "float"}` is data and not a schema.
_DATA = frozenset(["const", "default", "dependentRequired", "enum", "examples"])

_SCHEMAS_BY_NAME = frozenset(["$defs", "definitions", "dependentSchemas", "properties"])
_SCHEMAS_BY_NAME |= {"patternProperties", "dependencies"}
_SCHEMA_LISTS = frozenset(["allOf", "anyOf", "oneOf", "prefixItems", "items"])
_SCHEMAS = frozenset(["additionalProperties", "contains", "else", "if", "items", "not", "then"])
_SCHEMAS |= {"additionalItems", "contentSchema", "propertyNames"}
_SCHEMAS |= {"unevaluatedItems", "unevaluatedProperties"}
# A value is rejected if *more* of these match. References may lead to a removed pattern.
_INVERTING = frozenset(["if", "not", "oneOf"])
_REFERENCES = frozenset(["$ref", "$dynamicRef"])
_EVERY_NAME = ""  # the pattern that matches all names
KNOWN_TYPES = frozenset(["array", "boolean", "integer", "null", "number", "object", "string"])
_MAY_BE_BOOLEAN = frozenset(["additionalProperties", "unevaluatedItems", "unevaluatedProperties"])
_LENGTHS = frozenset(["maxItems", "maxLength", "minItems", "minLength"])
_LONGEST = 200  # a grammar repeats its rule this often
_ANY_OBJECT: JsonObject = {"type": "object"}
# Within `$defs`, an `$id` would begin another document, in which `#/...` leads elsewhere.
_LEFT_OUT_AT_THE_ROOT = ("$id", "$schema")


def change_schemas(
    keyword: str, value: JsonValue, change: Callable[[JsonValue], JsonValue]
) -> JsonValue:
    """Apply a change to the schemas that are the value of a keyword, or inside it."""
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
    """Without the pattern the schema would reject values that it accepts now."""


def remove_patterns(schema: JsonValue, patterns: Collection[str]) -> JsonValue:
    """Return the schema without these patterns; raises IrremovablePattern."""
    removed = _Removal(patterns).remove(schema)
    if not frozenset(patterns).isdisjoint(patterns_in(removed)):
        raise IrremovablePattern("a pattern is where no schema is expected")
    return removed


class _Removal:
    def __init__(self, patterns: Collection[str]) -> None:
        self._patterns = patterns
        self._effects = 0  # patterns removed, and references to where that may have happened

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
            raise IrremovablePattern(f"a pattern cannot be left out within {keyword!r}")
        return changed

    def _remove_names(self, by_pattern: JsonObject) -> JsonObject:
        """Return `patternProperties` in which every other name is allowed, with any value."""
        rest = {name: schema for name, schema in by_pattern.items() if name not in self._patterns}
        if len(rest) == len(by_pattern):
            return by_pattern
        self._effects += 1
        return {_EVERY_NAME: True, **rest}


def without_unknown_types(schema: JsonValue) -> JsonValue:
    """Remove the keyword `type` if it names an unknown type, such as `float`."""
    match schema:
        case dict():
            return {
                keyword: value if keyword in _DATA else without_unknown_types(value)
                for keyword, value in schema.items()
                if not (keyword == "type" and _names_unknown_type(value))
            }
        case list():
            return [without_unknown_types(item) for item in schema]
        case _:
            return schema


def _names_unknown_type(value: JsonValue) -> bool:
    """Return whether this value of `type` names an unknown type.

    A dictionary is the schema of a property named `type`.
    """
    names = value if isinstance(value, list) else [value]
    is_known = all(isinstance(name, str) and name in KNOWN_TYPES for name in names)
    return not (is_known or isinstance(value, dict | bool))


def simplify(tool: Tool, *, is_further: bool = False) -> Tool:
    """Return the tool with a schema that llama-server can compile; most tools stay unchanged.

    llama-server rejects the whole request for boolean sub-schemas, unknown types and remote
    references. With `is_further`, for a backend that rejected even that, also for patterns and long
    lengths. Replies are checked against the original, which the tool keeps as `parameters`.
    """
    source = _simplify_source[is_further](tool.source)
    return tool if source is None else Tool(tool.name, tool.parameters, source)


def _simplify_parameters(source: bytes, *, is_further: bool) -> bytes | None:
    document = json.parse(source)
    function = document.get("function") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(function, dict):
        return None
    schema = function.get("parameters")
    change = simplify_for_grammar if is_further else _simplify_object
    simple = change(schema) if isinstance(schema, dict) else _ANY_OBJECT
    if schema is None or simple == schema:
        return None
    return json.dump({**document, "function": {**function, "parameters": simple}})


_simplify_source = {
    is_further: DocumentCache(partial(_simplify_parameters, is_further=is_further))
    for is_further in (False, True)
}


def simplify_for_grammar(schema: JsonObject) -> JsonObject:
    """Also remove patterns and long lengths, which grammars fail at (llama.cpp#25895)."""
    return _simplify_object(schema, is_further=True)


def _simplify_object(
    schema: JsonObject, root: str = "#", *, is_further: bool = False
) -> JsonObject:
    """Simplify a schema, and make its local references start at `root`."""
    return {
        keyword: _simplify_value(keyword, value, root, is_further=is_further)
        for keyword, value in schema.items()
        if not _is_refused(keyword, value, is_further=is_further)
    }


def _simplify_value(keyword: str, value: JsonValue, root: str, *, is_further: bool) -> JsonValue:
    if keyword == "$ref" and isinstance(value, str):
        return root + value[1:] if value == "#" or value.startswith("#/") else value
    if keyword in _MAY_BE_BOOLEAN and isinstance(value, bool):
        return value
    return change_schemas(keyword, value, partial(_simplify, root=root, is_further=is_further))


def _is_refused(keyword: str, value: JsonValue, *, is_further: bool) -> bool:
    match keyword:
        case "type":
            return _names_unknown_type(value)
        case "$ref":
            return not str(value).startswith("#")
        case "pattern":
            return is_further
        case _:
            is_length = is_further and keyword in _LENGTHS
            return is_length and isinstance(value, int) and value > _LONGEST


def _simplify(schema: JsonValue, root: str, *, is_further: bool) -> JsonValue:
    match schema:
        case dict():
            return _simplify_object(schema, root, is_further=is_further)
        case bool():
            return {} if schema else {"not": {}}
        case str() if is_further:  # {"city": "string"}
            return {"type": schema} if schema in KNOWN_TYPES else {}
        case _:
            return schema


def call_schema(tools: Sequence[Tool]) -> JsonObject:
    """Return the schema of one call, `{"name", "arguments"}`, of any of the tools.

    The schema of each tool moves to `$defs/tool_<number>`, its local references with it.
    """
    definitions: JsonObject = {}
    calls: list[JsonObject] = []
    for number, tool in enumerate(tools):
        root, whole = f"#/$defs/tool_{number}", tool.parameters
        parameters = {**(_ANY_OBJECT if isinstance(whole, bool) else whole)}
        for keyword in _LEFT_OUT_AT_THE_ROOT:
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
    """Return the tool with these members required, and these schemas for them."""
    if not bound or not isinstance(tool.parameters, dict):
        return tool
    parameters = tool.parameters
    required = parameters.get("required")
    properties: JsonObject = {**properties_of(parameters), **bound}
    names = [*(required if isinstance(required, list) else ()), *bound]
    kept: list[JsonValue] = [*dict.fromkeys(name for name in names if isinstance(name, str))]
    return Tool(tool.name, {**parameters, "properties": properties, "required": kept}, tool.source)
