import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonSchema, JsonValue
from proxy.conversation.tools import Tool
from proxy.dialects.ollama_chat.tools import encode_tool

KEPT = {"type", "description", "enum", "items", "properties", "required", "anyOf"}


def encoded(parameters: JsonValue, **function: JsonValue) -> JsonObject:
    source: JsonObject = {"name": "look", "parameters": parameters, **function}
    tool = Tool("look", True, json.dump({"type": "function", "function": source}))
    written = encode_tool(tool)
    assert isinstance(written, dict)
    assert written["type"] == "function"
    assert isinstance(written["function"], dict)
    return written["function"]


def parameter(schema: JsonValue, /, **others: JsonValue) -> JsonValue:
    """Encode a schema as that of the parameter `x`."""
    root = parameters({"type": "object", "properties": {"x": schema}, **others})
    assert isinstance(root["properties"], dict)
    return root["properties"]["x"]


def parameters(schema: JsonSchema) -> JsonObject:
    root = encoded(schema)["parameters"]
    assert isinstance(root, dict)
    return root


def test_a_plain_tool_stays_as_it_is() -> None:
    schema: JsonObject = {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where."},
            "unit": {"type": ["string", "null"], "enum": ["c", "f", None]},
            "days": {"type": "array", "items": {"type": "integer"}},
            "more": {"type": "object", "properties": {"a": {}}, "required": ["a"]},
        },
        "required": ["city"],
    }
    assert encoded(schema, description="Look out.") == {
        "name": "look",
        "description": "Look out.",
        "parameters": schema,
    }


@pytest.mark.parametrize("nothing", [None, True, {}, {"type": "object"}])
def test_a_tool_without_parameters_has_none(nothing: JsonValue) -> None:
    empty: JsonObject = {"type": "object", "properties": {}}
    assert encoded(nothing, description=None) == {"name": "look", "parameters": empty}


def test_what_would_be_dropped_is_said_in_words() -> None:
    schema: JsonObject = {"type": "integer", "minimum": 1, "default": 3, "title": "X"}
    words = "minimum: 1; default: 3"
    assert parameter(schema) == {"type": "integer", "description": words}
    described: JsonObject = {**schema, "description": "How many."}
    assert parameter(described) == {"type": "integer", "description": f"How many. ({words})"}


def test_a_map_says_of_what() -> None:
    schema: JsonObject = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert parameter(schema) == {
        "type": "object",
        "description": 'additionalProperties: {"type":"integer"}',
    }
    assert parameter({"type": "object", "additionalProperties": False}) == {"type": "object"}


def test_words_of_the_same_meaning_are_used() -> None:
    assert parameter({"const": "a"}) == {"enum": ["a"]}
    assert parameter({"oneOf": [{"type": "string"}, True]}) == {"anyOf": [{"type": "string"}, {}]}
    assert parameter({"anyOf": [{"const": 1}], "oneOf": [{}]}) == {"anyOf": [{"enum": [1]}]}


def test_boolean_schemas_become_objects() -> None:
    assert parameter(True) == {}
    assert parameter(False) == {"description": "No value is valid here."}
    assert parameter({"type": "array", "items": True}) == {"type": "array", "items": True}


def test_keywords_of_the_wrong_kind_are_not_sent() -> None:
    odd: JsonObject = {"type": 3, "enum": "a", "required": True, "properties": None}
    assert parameter(odd) == {}


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
def test_whatever_the_schema_ollama_can_read_what_is_sent(
    schema: JsonValue, definition: JsonValue
) -> None:
    """Go's decoder refuses the whole request for one member of the wrong kind."""
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


def test_references_are_put_in_their_place() -> None:
    city: JsonObject = {"type": "string", "pattern": "^[A-Z]"}
    definitions: JsonObject = {"a/b~c": city, "two": {"$ref": "#/$defs/a~1b~0c"}}
    assert parameter({"$ref": "#/$defs/two"}, **{"$defs": definitions}) == {
        "type": "string",
        "description": 'pattern: "^[A-Z]"',
    }
    listed: JsonObject = {"type": "array", "items": {"$ref": "#/$defs/two", "description": "One."}}
    assert parameter(listed, **{"$defs": definitions}) == {
        "type": "array",
        "items": {"type": "string", "description": 'One. (pattern: "^[A-Z]")'},
    }


@pytest.mark.parametrize("reference", ["https://host/schema", "#/$defs/none", "#/properties/x"])
def test_references_that_lead_nowhere_are_told(reference: str) -> None:
    told = {"description": f"as in {reference}"}
    assert parameter({"$ref": reference}) == told


def test_a_schema_within_itself_is_told_once() -> None:
    tree: JsonObject = {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}}
    schema: JsonObject = {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/tree"}},
        "$defs": {"tree": tree},
    }
    inner: JsonObject = {"description": "as in #/$defs/tree"}
    assert parameters(schema) == {
        "type": "object",
        "properties": {"x": {"type": "object", "properties": {"left": inner}}},
        "$defs": {"tree": tree},
    }


def test_nested_references_do_not_multiply_without_an_end() -> None:
    definitions: JsonObject = {
        f"d{number}": {
            "type": "object",
            "properties": {side: {"$ref": f"#/$defs/d{number + 1}"} for side in "ab"},
        }
        for number in range(40)
    }
    written = parameter({"$ref": "#/$defs/d0"}, **{"$defs": definitions})
    assert len(json.dump(written)) < 100_000


def test_the_parts_of_a_whole_are_merged() -> None:
    base: JsonObject = {"type": "object", "properties": {"a": {}}, "required": ["a"]}
    schema: JsonObject = {
        "allOf": [
            {"$ref": "#/$defs/base"},
            {"properties": {"b": {"const": 1}}, "required": ["a", "b"]},
            True,
        ],
        "description": "Both.",
    }
    definitions: JsonObject = {"base": base}
    assert parameter(schema, **{"$defs": definitions}) == {
        "type": "object",
        "description": "Both.",
        "properties": {"b": {"enum": [1]}, "a": {}},
        "required": ["a", "b"],
    }


def test_forms_of_all_parameters_are_offered_together() -> None:
    forms: list[JsonValue] = [
        {"properties": {"a": {"const": 1}}, "required": ["a"]},
        {"properties": {"b": {}}},
        {"required": ["c"]},
    ]
    written = parameters({"type": "object", "properties": {"c": {}}, "oneOf": forms})
    assert written["properties"] == {"a": {"enum": [1]}, "b": {}, "c": {}}
    assert str(written["description"]).startswith("One of these forms: [")
    assert "anyOf" not in written


def test_the_root_is_an_object_whatever_it_says() -> None:
    assert parameters({"type": ["object", "null"]})["type"] == "object"
