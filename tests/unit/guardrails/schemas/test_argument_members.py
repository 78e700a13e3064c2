import pytest

from proxy.conversation.json import JsonObject, JsonSchema, JsonValue
from proxy.guardrails.schemas.arguments import Members, Settled

SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "where"},
        "days": {"type": "integer"},
        "unit": {"enum": ["c", "f"]},
        "near": {"$ref": "#/$defs/place"},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
    "$defs": {"place": {"type": "object", "properties": {"x": {"type": "number"}}}},
}


@pytest.mark.parametrize(
    ("schema", "takes_any"),
    [
        (True, True),
        ({}, True),
        ({"type": "string", "description": "text", "default": ""}, True),
        ({"type": ["string", "null"]}, True),
        ({"anyOf": [{"type": "null"}, {"type": "string"}], "title": "Note"}, True),
        (False, False),
        ("string", False),
        ({"type": "integer"}, False),
        ({"type": "string", "enum": ["a"]}, False),
        ({"type": "string", "pattern": "^a"}, False),
        ({"type": "string", "format": "date"}, False),
        ({"type": "string", "minLength": 1}, False),
        ({"const": "a"}, False),
        ({"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 3}]}, False),
        ({"anyOf": "string"}, False),
        ({"type": "integer", "anyOf": [{"type": "string"}]}, False),
        ({"$ref": "#/$defs/text"}, False),
    ],
)
def test_a_string_flows_only_where_every_string_is_valid(
    schema: JsonValue, takes_any: bool
) -> None:
    assert Members({"properties": {"a": schema}}).takes_any_string("a") is takes_any


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"properties": "city"},
        {"properties": {"city": {}}, "anyOf": [{"required": ["city"]}]},
        {"properties": {"city": {}}, "patternProperties": {"c": {"maxLength": 1}}},
        {"$ref": "#/$defs/place", "properties": {"city": {}}},
    ],
)
def test_nothing_is_declared_where_members_are_judged_in_combination(schema: JsonSchema) -> None:
    assert not Members(schema).declares("city")
    assert Members(SCHEMA).declares("city")


@pytest.mark.parametrize(
    ("name", "value", "settled"),
    [
        ("city", "Paris", Settled("Paris")),
        ("days", 3, Settled(3)),
        ("days", "3", Settled(3, is_changed=True)),
        ("days", 3.0, Settled(3, is_changed=True)),
        ("city", {"a": {"b": 1}}, Settled('{"a":{"b":1}}', is_changed=True)),
        ("unit", "C", Settled("c", is_changed=True)),
        ("near", {"x": "1.5"}, Settled({"x": 1.5}, is_changed=True)),
        ("days", {"days": 3}, Settled(3, is_changed=True)),
        ("days", "three", None),
        ("unit", "kelvin", None),
        ("near", {"x": "east"}, None),
    ],
)
def test_a_member_is_settled_as_the_whole_will_be(
    name: str, value: JsonValue, settled: Settled | None
) -> None:
    assert Members(SCHEMA).settle(name, value) == settled


@pytest.mark.parametrize("name", ["a b", "\N{LATIN SMALL LETTER E WITH ACUTE}", "#", "%"])
def test_a_valid_member_keeps_its_spelling_whatever_its_name(name: str) -> None:
    members = Members({"type": "object", "properties": {name: {"type": "number"}}})
    assert members.settle(name, 1e5) == Settled(1e5)


def test_a_null_that_would_be_dropped_is_not_settled() -> None:
    optional: JsonObject = {"properties": {"days": {"type": "integer"}}}
    assert Members(optional).settle("days", None) is None


def test_nothing_is_settled_by_a_schema_that_nobody_can_use() -> None:
    broken: JsonObject = {"properties": {"a": {"type": "string", "pattern": 5}}}
    assert Members(broken).settle("a", "text") is None
    boolean: JsonObject = {"properties": {"a": True}}
    assert Members(boolean).settle("a", [1]) == Settled([1])
