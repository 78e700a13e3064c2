import pytest

from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.schemas.graph import Graph, Node, TooManySchemas

LEAF: JsonObject = {"type": "string"}
TWO: JsonObject = {"anyOf": [{"minLength": 1}, LEAF]}  # of three checks


def checks(schema: JsonValue) -> int:
    graph = Graph(schema)
    return graph.checks[graph.number_of(schema)]


def node(schema: JsonObject) -> Node:
    graph = Graph(schema)
    return graph.nodes[graph.number_of(schema)]


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
def test_checks_are_counted_along_every_way_through_a_schema(
    schema: JsonValue, expected: int
) -> None:
    assert checks(schema) == expected


def doubling(levels: int) -> JsonObject:
    definitions: JsonObject = {"d0": LEAF}
    for level in range(levels):
        link: JsonValue = {"$ref": f"#/$defs/d{level}"}
        definitions[f"d{level + 1}"] = {"anyOf": [link, link]}
    return {"$ref": f"#/$defs/d{levels}", "$defs": definitions}


def test_branches_multiply_to_a_certain_number() -> None:
    assert checks(doubling(3)) == 1 + (1 + 2 * (1 + 1 + 2 * (1 + 1 + 2 * (1 + 1))))
    assert checks(doubling(500)) == 10**9


def test_the_longest_chain_is_measured() -> None:
    graph = Graph(doubling(100))
    assert max(graph.lengths) == 2 + 2 * 100


@pytest.mark.parametrize(
    ("schema", "errors"),
    [
        ({}, 1),
        ({"required": ["a", "b"]}, 2),
        ({"dependentRequired": {"a": ["b", "c"], "b": ["c"]}}, 3),
        ({"dependencies": {"a": ["b", "c"], "b": {}}}, 2),
        ({"enum": ["x" * 100] * 12}, 10),
        ({"const": "x" * 600}, 5),
    ],
)
def test_a_schema_has_errors_of_its_own(schema: JsonObject, errors: int) -> None:
    assert node(schema).errors == errors


def test_what_stands_within_is_checked_by_its_label() -> None:
    schema: JsonObject = {
        "properties": {"a": {"title": "a"}},
        "additionalProperties": {"title": "other"},
        "patternProperties": {"x": {"title": "each"}},
        "prefixItems": [{"title": "first"}],
        "items": {"title": "item"},
    }
    graph = Graph(schema)
    titles = {number: title for title, number in _numbers(graph, schema).items()}
    top = graph.nodes[graph.number_of(schema)]
    assert [titles[one] for one in top.within("member", "a")] == ["a", "each"]
    assert [titles[one] for one in top.within("member", "b")] == ["other", "each"]
    assert [titles[one] for one in top.within("member", None)] == ["other", "each"]
    assert [titles[one] for one in top.within("item", 0)] == ["first"]
    assert [titles[one] for one in top.within("item", 1)] == ["item"]


def _numbers(graph: Graph, value: JsonValue) -> dict[str, int]:
    """Find the nodes of all schemas with a title."""
    found: dict[str, int] = {}
    rest = [value]
    while rest:
        one = rest.pop()
        if isinstance(one, dict):
            rest += one.values()
            if isinstance(title := one.get("title"), str):
                found[title] = graph.number_of(one)
        elif isinstance(one, list):
            rest += one
    return found


def test_unknown_references_are_noticed() -> None:
    assert Graph({"$ref": "#"}).is_whole
    assert not Graph({"anyOf": [{"$ref": "#/nowhere"}]}).is_whole
    assert not Graph({"$dynamicRef": "#nowhere"}).is_whole


def test_dynamic_references_are_followed() -> None:
    assert checks({"$defs": {"x": {"$dynamicAnchor": "x", **TWO}}, "$dynamicRef": "#x"}) == 4


def test_there_is_an_end_to_schemas() -> None:
    with pytest.raises(TooManySchemas):
        Graph({"anyOf": [{"minimum": number} for number in range(20_001)]})
