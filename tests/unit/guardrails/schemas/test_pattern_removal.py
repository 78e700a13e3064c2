import pytest
from jsonschema import Draft202012Validator

from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.schemas.pattern_removal import (
    IrremovablePattern,
    patterns_in,
    remove_patterns,
)

BAD: JsonObject = {"type": "string", "pattern": "bad"}


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
def test_all_places_of_a_pattern_are_found_and_removed(schema: JsonObject) -> None:
    assert "bad" in patterns_in(schema)
    assert "bad" not in patterns_in(remove_patterns(schema, {"bad"}))


def test_other_patterns_stay() -> None:
    schema: JsonObject = {"pattern": "good", "patternProperties": {"good": {"pattern": "good"}}}
    assert remove_patterns(schema, {"bad"}) == schema
    assert remove_patterns(True, {"bad"}) is True


def test_names_that_may_match_are_no_further_names() -> None:
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
        {"default": BAD, "$ref": "#/default"},  # a reference to where no schema is
    ],
)
def test_a_pattern_stays_where_less_would_be_valid_without_it(schema: JsonObject) -> None:
    with pytest.raises(IrremovablePattern):
        remove_patterns(schema, {"bad"})


def test_what_only_looks_like_patterns_is_nothing_to_remove() -> None:
    schema: JsonValue = {"properties": {"pattern": {"type": "string"}}, "patternProperties": []}
    assert [*patterns_in(schema)] == []
