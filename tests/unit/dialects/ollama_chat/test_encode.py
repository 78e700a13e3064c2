from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonSchema, JsonValue
from proxy.conversation.tools import Tool
from proxy.dialects.ollama_chat.encode import (
    encode_tool,
)

KEPT = {"type", "description", "enum", "items", "properties", "required", "anyOf"}


def encoded_tool(parameters: JsonValue, **function: JsonValue) -> JsonObject:
    source: JsonObject = {"name": "look", "parameters": parameters, **function}
    tool = Tool("look", True, json.dump({"type": "function", "function": source}))
    encoded = encode_tool(tool)
    assert isinstance(encoded, dict)
    assert encoded["type"] == "function"
    assert isinstance(encoded["function"], dict)
    return encoded["function"]


def parameter(schema: JsonValue, /, **others: JsonValue) -> JsonValue:
    """Encode a tool whose parameter `x` has this schema; return the encoded schema of `x`."""
    root = parameters({"type": "object", "properties": {"x": schema}, **others})
    assert isinstance(root["properties"], dict)
    return root["properties"]["x"]


def parameters(schema: JsonSchema) -> JsonObject:
    root = encoded_tool(schema)["parameters"]
    assert isinstance(root, dict)
    return root


schemas: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["object", "a", "#/$defs/a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [*sorted(KEPT), "$ref", "$defs", "allOf", "oneOf", "const", "minimum", "a"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=30,
)


@given(schemas, schemas)
def test_every_encoded_schema_can_be_read_by_ollama(
    schema: JsonValue, definition: JsonValue
) -> None:
    """Go's decoder rejects the whole request if one member has the wrong type."""
    document: JsonObject = {
        "type": "object",
        "properties": {"x": schema},
        "$defs": {"a": definition},
    }
    root = parameters(document)
    assert root["type"] == "object"
    check_readable(root)


def check_readable(schema: JsonValue) -> None:
    assert isinstance(schema, dict)
    assert schema.keys() <= KEPT | {"$defs"}
    assert isinstance(schema.get("description", ""), str)
    for names in (schema.get("type", []), schema.get("required", [])):
        assert isinstance(names, str) or all(isinstance(name, str) for name in as_list(names))
    assert isinstance(schema.get("enum", []), list)
    properties = schema.get("properties", {})
    assert isinstance(properties, dict)
    for part in (*properties.values(), *as_list(schema.get("anyOf", []))):
        check_readable(part)


def as_list(value: JsonValue) -> list[JsonValue]:
    assert isinstance(value, list)
    return value


def test_nested_references_are_expanded_up_to_a_limit() -> None:
    definitions: JsonObject = {
        f"d{number}": {
            "type": "object",
            "properties": {side: {"$ref": f"#/$defs/d{number + 1}"} for side in "ab"},
        }
        for number in range(40)
    }
    encoded = parameter({"$ref": "#/$defs/d0"}, **{"$defs": definitions})
    assert len(json.dump(encoded)) < 100_000
