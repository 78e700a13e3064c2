import pytest

from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.schemas.graph import (
    ROOT,
    Graph,
    References,
    UnknownTarget,
)

NAMED: JsonObject = {"$anchor": "n", "title": "named"}
INNER: JsonObject = {"$defs": {"x": {"title": "of inner"}, "n": {"$anchor": "n"}}, "$id": "inner"}
DYNAMIC: JsonObject = {"$dynamicAnchor": "d"}
DOCUMENT: JsonObject = {
    "$id": "http://example.com/root#",
    "$defs": {"a/b ~c": {"title": "odd"}, "list": {"anyOf": [{"title": "first"}]}, "n": NAMED},
    "properties": {"inner": INNER, "d": DYNAMIC, "$id": {"title": "a property"}},
}


@pytest.mark.parametrize(
    ("reference", "title"),
    [
        ("#/$defs/a~1b%20~0c", "odd"),
        ("#/$defs/list/anyOf/0", "first"),
        ("#/properties/$id", "a property"),
        ("#n", "named"),
        ("http://example.com/root#n", "named"),
        ("root#/$defs/n", "named"),
        ("inner#/$defs/x", "of inner"),
        (f"{ROOT}#/$defs/n", "named"),
        ("json-schema:///#/$defs/n", "named"),
    ],
)
def test_a_reference_resolves_within_the_document(reference: str, title: str) -> None:
    target = References(DOCUMENT).target(DOCUMENT, reference)
    assert isinstance(target, dict)
    assert target["title"] == title


@pytest.mark.parametrize("reference", ["#", "", "http://example.com/root"])
def test_a_reference_may_resolve_to_the_whole_document(reference: str) -> None:
    assert References(DOCUMENT).target(DOCUMENT, reference) is DOCUMENT


def test_a_reference_is_resolved_relative_to_its_location() -> None:
    references = References(DOCUMENT)
    assert references.target(INNER, "#") is INNER
    assert references.target(INNER, "#n") == {"$anchor": "n"}


def test_a_reference_to_a_meta_schema_resolves_to_true() -> None:
    meta_schema = "https://json-schema.org/draft/2020-12/schema"
    assert References({}).target({}, meta_schema) is True


def test_a_dynamic_reference_may_resolve_to_all_anchors_of_its_name() -> None:
    other: JsonObject = {"$dynamicAnchor": "d"}
    references = References({"$defs": {"one": DYNAMIC, "two": [other], "n": NAMED}})
    targets = references.dynamic_targets({}, "#d")
    assert {id(target) for target in targets} == {id(DYNAMIC), id(other)}
    assert references.dynamic_targets({}, "#n") == [NAMED]


@pytest.mark.parametrize(
    "reference",
    ["#/nowhere", "#/$defs/list/anyOf/1", "#/$defs/n/title/x", "#x", "other", "file:/x"],
)
def test_an_unknown_target_of_a_reference_is_reported(reference: str) -> None:
    with pytest.raises(UnknownTarget):
        References(DOCUMENT).target(DOCUMENT, reference)


LEAF: JsonObject = {"type": "string"}
# Takes three checks: the schema and its two branches.
TWO: JsonObject = {"anyOf": [{"minLength": 1}, LEAF]}


def checks(schema: JsonValue) -> int:
    graph = Graph(schema)
    return graph.checks[graph.number_of(schema)]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (True, 1),
        ({}, 1),
        ({"const": {"anyOf": [TWO]}, "anyOf": 5, "properties": [5]}, 3),
        ({"allOf": [LEAF, LEAF]}, 3),
        ({"not": TWO, "if": {}, "then": True}, 6),
        ({"dependentSchemas": {"a": TWO, "b": TWO}}, 7),
        ({"dependencies": {"a": ["b"]}}, 2),
        ({"propertyNames": TWO}, 4),
        ({"properties": {"a": TWO, "b": {}}, "additionalProperties": LEAF}, 5),
        ({"patternProperties": {"a": TWO, "b": TWO}, "items": LEAF}, 7),
        ({"prefixItems": [TWO, {}], "items": LEAF, "contains": LEAF}, 6),
        ({"unevaluatedProperties": False, "anyOf": [LEAF, LEAF]}, 8),
        ({"$ref": "#/$defs/x", "$defs": {"x": TWO, "unused": {"allOf": [TWO, TWO]}}}, 4),
        ({"items": {"$ref": "#"}}, 3),
        ({"anyOf": [LEAF, {"$ref": "#"}]}, 4),
    ],
)
def test_the_checks_of_a_schema_are_counted_for_every_path_of_references(
    schema: JsonValue, expected: int
) -> None:
    assert checks(schema) == expected


def test_a_graph_with_unknown_references_is_incomplete() -> None:
    assert Graph({"$ref": "#"}).is_complete
    assert not Graph({"anyOf": [{"$ref": "#/nowhere"}]}).is_complete
    assert not Graph({"$dynamicRef": "#nowhere"}).is_complete


def test_checks_of_the_targets_of_dynamic_references_are_counted() -> None:
    assert checks({"$defs": {"x": {"$dynamicAnchor": "x", **TWO}}, "$dynamicRef": "#x"}) == 4


@pytest.mark.parametrize(
    ("path", "depths"),
    [
        (["properties", "a", "$ref", "items", "type"], [0, 1, 1, 2]),
        (["anyOf", 0, "prefixItems", 1, "enum"], [0, 0, 1]),
        (["required"], [0]),
        (["type"], [0]),
    ],
)
def test_the_schemas_on_a_path_are_listed_with_their_depth(
    path: list[str | int], depths: list[int]
) -> None:
    schema: JsonObject = {
        "properties": {"a": {"$ref": "#/$defs/list"}},
        "$defs": {"list": {"items": {"type": "string"}}},
        "anyOf": [{"prefixItems": [{}, {"enum": [1]}]}],
        "required": ["a"],
        "type": "object",
    }
    listed = [*References(schema).schemas_on(schema, path)]
    assert [depth for _, depth in listed] == depths
    with pytest.raises(UnknownTarget):
        [*References(schema).schemas_on(schema, ["properties", "b", "type"])]
