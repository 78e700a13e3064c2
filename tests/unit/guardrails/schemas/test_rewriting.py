import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.tools import Tool
from proxy.guardrails.schemas.patterns import patterns_in
from proxy.guardrails.schemas.rewriting import (
    IrremovablePattern,
    bind_members,
    call_schema,
    change_schemas,
    remove_patterns,
    simplify,
)
from tests.unit.guardrails.schemas.test_schema import SCHEMAS, VALUES

BAD: JsonObject = {"type": "string", "pattern": "bad"}


@pytest.mark.parametrize(
    ("keyword", "value", "changed"),
    [
        ("properties", {"a": {}, "b": True}, {"a": "new", "b": "new"}),
        ("anyOf", [{}, {}], ["new", "new"]),
        ("items", [{}], ["new"]),
        ("items", {}, "new"),
        ("not", False, "new"),
        ("enum", [{}], [{}]),
        ("properties", [], []),
        ("x-own", {"a": {}}, {"a": {}}),
    ],
)
def test_change_schemas_changes_only_the_sub_schemas_of_a_keyword(
    keyword: str, value: JsonValue, changed: JsonValue
) -> None:
    assert change_schemas(keyword, value, lambda _: "new") == changed


@pytest.mark.parametrize(
    "schema",
    [
        BAD,
        {"properties": {"a": BAD, "pattern": BAD}},
        {"$defs": {"x": BAD}, "items": {"$ref": "#/$defs/x"}},
        {"anyOf": [BAD, {"allOf": [BAD]}], "dependentSchemas": {"a": BAD}},
        {"propertyNames": BAD, "contains": BAD, "prefixItems": [BAD, True]},
        {"then": BAD, "else": {"not": {"pattern": "good"}}},
    ],
)
def test_patterns_are_found_and_removed_at_any_depth(
    schema: JsonObject,
) -> None:
    assert "bad" in patterns_in(schema)
    assert "bad" not in patterns_in(remove_patterns(schema, {"bad"}))


def test_remove_patterns_keeps_patterns_that_are_not_listed() -> None:
    schema: JsonObject = {"pattern": "good", "patternProperties": {"good": {"pattern": "good"}}}
    assert remove_patterns(schema, {"bad"}) == schema
    assert remove_patterns(True, {"bad"}) is True


def test_names_that_match_a_removed_pattern_are_not_additional_properties() -> None:
    schema: JsonObject = {
        "patternProperties": {"bad": {"type": "integer"}, "^g": {"type": "string"}},
        "additionalProperties": False,
    }
    removed = remove_patterns(schema, {"bad"})
    assert removed == {
        "patternProperties": {"": True, "^g": {"type": "string"}},
        "additionalProperties": False,
    }
    assert Draft202012Validator(removed).is_valid({"bad": "x", "other": 1, "g": "x"})
    assert not Draft202012Validator(removed).is_valid({"g": 1})


@pytest.mark.parametrize(
    "schema",
    [
        {"not": BAD},
        {"oneOf": [BAD, {"type": "integer"}]},
        {"if": BAD, "then": False},
        {"contains": BAD, "maxContains": 2},
        {"properties": {"a": {"not": {"patternProperties": {"bad": True}}}}},
        {"$defs": {"x": BAD}, "not": {"$ref": "#/$defs/x"}},
        {"default": BAD, "$ref": "#/default"},  # the reference leads to data
    ],
)
def test_remove_patterns_raises_if_fewer_values_would_be_valid_without_the_pattern(
    schema: JsonObject,
) -> None:
    with pytest.raises(IrremovablePattern):
        remove_patterns(schema, {"bad"})


def test_properties_that_are_named_pattern_are_not_found_as_patterns() -> None:
    schema: JsonValue = {"properties": {"pattern": {"type": "string"}}, "patternProperties": []}
    assert [*patterns_in(schema)] == []


def tool(name: str, parameters: JsonValue) -> Tool:
    assert isinstance(parameters, dict | bool)
    return Tool(name, parameters, b"{}")


def arguments_schema(parameters: JsonValue) -> JsonValue:
    schema = call_schema([tool("t", parameters)])
    definitions = schema["$defs"]
    assert isinstance(definitions, dict)
    return definitions["tool_0"]


def test_the_call_schema_of_a_single_tool_is_an_object() -> None:
    assert call_schema([tool("get_time", {"type": "object"})]) == {
        "type": "object",
        "properties": {"name": {"const": "get_time"}, "arguments": {"$ref": "#/$defs/tool_0"}},
        "required": ["name", "arguments"],
        "additionalProperties": False,
        "$defs": {"tool_0": {"type": "object"}},
    }


def test_the_call_schema_of_several_tools_accepts_only_their_calls() -> None:
    schema = call_schema([tool("a", SCHEMAS[0]), tool("b", SCHEMAS[3]), tool("c", True)])
    Draft202012Validator.check_schema(schema)
    judge = Draft202012Validator(schema)
    assert judge.is_valid({"name": "a", "arguments": {"a": 1}})
    assert judge.is_valid({"name": "b", "arguments": {"a": "a"}})
    assert judge.is_valid({"name": "c", "arguments": {"x": []}})
    assert not judge.is_valid({"name": "a", "arguments": {"a": "a"}})
    assert not judge.is_valid({"name": "b", "arguments": {"a": "b"}})
    assert not judge.is_valid({"name": "d", "arguments": {}})
    assert not judge.is_valid({"name": "c", "arguments": {}, "more": 1})
    assert not judge.is_valid({"name": "c"})


@settings(deadline=None)
@given(st.sampled_from(SCHEMAS[:2] + SCHEMAS[3:5]), VALUES)
def test_a_call_is_valid_if_and_only_if_its_arguments_are_valid(
    schema: JsonObject, value: JsonValue
) -> None:
    calls = call_schema([tool("other", True), tool("t", schema)])
    call: JsonValue = {"name": "t", "arguments": value}
    assert Draft202012Validator(calls).is_valid(call) == Draft202012Validator(schema).is_valid(
        value
    )


def test_a_ref_is_adapted_only_where_it_is_a_keyword() -> None:
    plain: JsonObject = {"$ref": "#/$defs/x"}
    moved: JsonObject = {"$ref": "#/$defs/tool_0/$defs/x"}
    original: JsonObject = {
        "properties": {"$ref": plain, "self": {"$ref": "#"}, "named": {"$ref": "#anchor"}},
        "allOf": [plain],
        "items": [plain],
        "not": plain,
        "additionalProperties": plain,
        "const": plain,
        "enum": [plain],
        "default": plain,
        "examples": [plain],
        "dependencies": {"a": ["b"]},
        "$defs": {"x": {"type": ["string", "null"]}},
    }
    before = json.dump(original)
    properties: JsonObject = {
        "$ref": moved,
        "self": {"$ref": "#/$defs/tool_0"},
        "named": {"$ref": "#anchor"},
    }
    assert arguments_schema(original) == {
        **original,
        "properties": properties,
        "allOf": [moved],
        "items": [moved],
        "not": moved,
        "additionalProperties": moved,
    }
    assert json.dump(original) == before


@pytest.mark.parametrize(
    ("refused", "simplified"),
    [
        ({"properties": {"a": True, "b": False}}, {"properties": {"a": {}, "b": {"not": {}}}}),
        ({"items": True, "not": False}, {"items": {}, "not": {"not": {}}}),
        ({"additionalProperties": True}, {"additionalProperties": True}),
        ({"type": "any", "title": "x"}, {"title": "x"}),
        ({"type": ["string", "any"]}, {}),
        ({"$ref": "http://example.com/x", "title": "x"}, {"title": "x"}),
        ({"$id": "http://example.com/x", "$schema": "y", "type": "object"}, {"type": "object"}),
        (False, {"type": "object"}),
    ],
)
def test_constraints_refused_by_llama_server_are_relaxed(
    refused: JsonValue, simplified: JsonValue
) -> None:
    assert arguments_schema(refused) == simplified


def offered_tool(parameters: JsonValue) -> Tool:
    function: JsonObject = {"name": "f", "parameters": parameters}
    schema = parameters if isinstance(parameters, dict | bool) else {}
    return Tool("f", schema, json.dump({"type": "function", "function": function}))


@pytest.mark.parametrize(
    "parameters", [None, {"type": "object"}, {"type": "object", "properties": {"a": {"$ref": "#"}}}]
)
def test_a_schema_accepted_by_llama_server_is_sent_unchanged(parameters: JsonValue) -> None:
    original = offered_tool(parameters)
    assert simplify(original) is original


def test_a_schema_that_llama_server_refuses_is_simplified_for_sending_but_not_for_checking() -> (
    None
):
    parameters: JsonObject = {
        "type": "object",
        "properties": {"a": True, "b": {"type": "any"}, "c": {"$ref": "http://x/y"}},
    }
    sent = simplify(offered_tool(parameters))
    assert sent.parameters == parameters
    document = json.parse(sent.source)
    assert isinstance(document, dict)
    assert isinstance(document["function"], dict)
    assert document["function"]["parameters"] == {
        "type": "object",
        "properties": {"a": {}, "b": {}, "c": {}},
    }


def test_strict_simplification_removes_patterns_and_long_lengths() -> None:
    parameters: JsonObject = {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "pattern": "(?!x)a", "maxLength": 20_000},
            "maxLength": {"type": "array", "items": {"pattern": "b"}, "minItems": 2},
            "short": {"anyOf": [{"maxLength": 20}, "string", "odd", 5]},
        },
    }
    sent = simplify(offered_tool(parameters), is_strict=True)
    assert sent.parameters == parameters
    assert json.split_object(json.split_object(sent.source)["function"])["parameters"] == json.dump(
        {
            "type": "object",
            "properties": {
                "pattern": {"type": "string"},
                "maxLength": {"type": "array", "items": {}, "minItems": 2},
                "short": {"anyOf": [{"maxLength": 20}, {"type": "string"}, {}, 5]},
            },
        }
    )


def test_a_tool_with_the_schema_true_is_sent_with_an_object_schema() -> None:
    assert b'"parameters":{"type":"object"}' in simplify(offered_tool(True)).source


@pytest.mark.parametrize("source", [b"[]", b'{"type":"function"}'])
def test_an_invalid_tool_is_sent_unchanged(source: bytes) -> None:
    original = Tool("f", {}, source)
    assert simplify(original) is original


WEATHER: JsonObject = {
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "unit": {"enum": ["c", "f"]},
    },
    "required": ["city", "days"],
}


def test_bind_members_makes_members_required_with_a_constant_value() -> None:
    tool = Tool("weather", WEATHER, b"{}")
    parameters = bind_members(tool, {"city": {"const": "Paris"}, "unit": {"const": "c"}}).parameters
    assert isinstance(parameters, dict)
    assert parameters["required"] == ["city", "days", "unit"]
    assert parameters["properties"] == {
        "city": {"const": "Paris"},
        "days": {"type": "integer"},
        "unit": {"const": "c"},
    }


def test_members_are_bound_in_a_schema_without_properties() -> None:
    bound: JsonObject = {"a": {"const": 1}}
    parameters = bind_members(Tool("a", {"required": "x"}, b"{}"), bound).parameters
    assert parameters == {"required": ["a"], "properties": {"a": {"const": 1}}}
    anything = Tool("a", True, b"{}")
    assert bind_members(anything, bound) is anything
    weather = Tool("weather", WEATHER, b"{}")
    assert bind_members(weather, {}) is weather
