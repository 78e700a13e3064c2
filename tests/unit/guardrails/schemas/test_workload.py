import pytest

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.schemas.graph import TooManySchemas
from proxy.guardrails.schemas.workload import ListingBudget, Workload
from tests.fakes.arrivals import is_linear

INTEGER: JsonObject = {"type": "integer"}


def ref(name: str) -> JsonObject:
    return {"$ref": f"#/$defs/{name}"}


def workload(schema: JsonValue) -> Workload:
    return Workload.of(schema, json.dump(schema))


def doubling(levels: int, keyword: str = "anyOf", width: int = 2) -> JsonObject:
    """Return a schema in which each definition refers to the previous one `width` times."""
    definitions: JsonObject = {"d0": INTEGER}
    for level in range(levels):
        definitions[f"d{level + 1}"] = {keyword: [ref(f"d{level}")] * width}
    return {**ref(f"d{levels}"), "$defs": definitions}


def nested(levels: int, value: JsonValue) -> JsonValue:
    for _ in range(levels):
        value = [value]
    return value


def unevaluated(levels: int) -> JsonObject:
    schema: JsonObject = {"type": ["object", "integer"]}
    for _ in range(levels):
        schema = {"unevaluatedProperties": False, "anyOf": [schema, {"properties": {"a": {}}}]}
    return schema


def all_in_all(kinds: int) -> JsonObject:
    """Return schemas of lists; each item of such a list must match every one of the schemas."""
    every: list[JsonValue] = [{"items": ref(f"d{kind}")} for kind in range(kinds)]
    return {**ref("d0"), "$defs": {f"d{kind}": {"allOf": every} for kind in range(kinds)}}


NAMES: list[JsonValue] = [f"n{number}" for number in range(20_000)]
TREE: JsonObject = {
    **ref("node"),
    "$defs": {
        "node": {
            "anyOf": [
                {"type": "number"},
                {"properties": {"left": ref("node"), "right": ref("node")}, "required": ["left"]},
                {"properties": {"list": {"items": ref("node")}}, "required": ["list"]},
            ]
        }
    },
}


HEAVY: JsonObject = {"$defs": doubling(20)["$defs"]}
BY_LABEL: JsonObject = {**HEAVY, "properties": {"a": INTEGER}, "additionalProperties": ref("d20")}
EACH: JsonObject = {**HEAVY, "properties": {"a": INTEGER}, "patternProperties": {"x": ref("d20")}}
BY_INDEX: JsonObject = {**HEAVY, "prefixItems": [INTEGER], "items": ref("d20")}


@pytest.mark.parametrize(
    ("schema", "value", "is_checkable"),
    [
        (doubling(17), "x", True),
        (doubling(20), "x", False),
        (doubling(17), {"a": 1}, True),
        (doubling(9, width=4), 1, True),
        (doubling(11, width=4), 1, False),
        (doubling(60, "allOf"), 1, False),
        ({"items": doubling(10), "$defs": doubling(10)["$defs"]}, [1] * 100, True),
        ({"items": doubling(10), "$defs": doubling(10)["$defs"]}, [1] * 1_000, False),
        (unevaluated(8), {"a": 1}, True),
        (unevaluated(16), {"a": 1}, False),
        (all_in_all(8), nested(4, 1), True),
        (all_in_all(8), nested(9, 1), False),
        (TREE, nested(150, 1), True),
        ({"propertyNames": doubling(10), "$defs": doubling(10)["$defs"]}, {"a": 1}, True),
        (
            {"propertyNames": doubling(10), "$defs": doubling(10)["$defs"]},
            {str(number): 1 for number in range(1_000)},
            False,
        ),
        ({"anyOf": [{"minimum": number} for number in range(5_000)]}, [1] * 1_000, True),
        # a member or an item is checked only by the schemas for its name or index
        *(
            (BY_LABEL, {name: 1}, is_checkable)
            for name, is_checkable in (("a", True), ("b", False))
        ),
        (
            EACH,
            {},
            True,
        ),  # no pattern is matched here: each one is counted as if it applied to every member
        (EACH, {"a": 1}, False),
        (BY_INDEX, [1], True),
        (BY_INDEX, [1, 1], False),
    ],
)
def test_a_value_is_checked_unless_it_takes_too_long(
    *, schema: JsonObject, value: JsonValue, is_checkable: bool
) -> None:
    assert workload(schema).is_checkable(value) == is_checkable


def tree(depth: int) -> JsonValue:
    return {"left": tree(depth - 1), "right": "x"} if depth else "x"


@pytest.mark.parametrize(
    ("schema", "value", "is_listable"),
    [
        (doubling(10), "x", True),
        (doubling(13), "x", False),
        (doubling(11, "allOf"), "x", True),
        (doubling(14, "allOf"), "x", False),
        ({"items": INTEGER}, ["x"] * 10_000, True),
        ({"items": INTEGER}, ["x"] * 20_000, False),
        ({"propertyNames": {"maxLength": 1}}, {f"{n}x": n for n in range(100)}, True),
        ({"propertyNames": {"maxLength": 1}}, {f"{n}x": n for n in range(500)}, False),
        ({"required": NAMES[:1_000]}, {}, True),
        ({"required": NAMES}, {}, False),
        ({"dependentRequired": {"a": NAMES}}, {"a": 1}, False),
        ({"prefixItems": [INTEGER], "items": {"enum": ["x" * 200] * 500}}, ["x"] * 10, True),
        ({"prefixItems": [INTEGER], "items": {"enum": ["x" * 200] * 500}}, ["x"] * 50, False),
        (TREE, tree(6), True),
        ({"anyOf": [INTEGER, {"$ref": "#"}]}, "x", True),
        (TREE, nested(180, "x"), True),
        ({"anyOf": [{"minimum": number} for number in range(20_001)]}, "x", False),
    ],
)
def test_errors_are_listed_unless_there_may_be_too_many(
    *, schema: JsonObject, value: JsonValue, is_listable: bool
) -> None:
    assert workload(schema).is_listable(value) == is_listable


def test_values_listed_in_several_calls_share_one_budget() -> None:
    integers, budget = workload({"items": INTEGER}), ListingBudget()
    listed = [integers.is_listable(["x"] * 3_500, budget) for _ in range(6)]
    assert listed == [True, True, True, True, False, False]
    assert integers.is_listable(["x"] * 4_000)


def test_a_sub_schema_has_a_separate_workload() -> None:
    parts = workload({"properties": {"a": ref("d20"), "b": {}}, "$defs": doubling(20)["$defs"]})
    value: JsonValue = "x"
    assert parts.is_listable(value)
    assert not parts.part(("properties", "a")).is_listable(value)
    assert not parts.part(("$defs", "d20", "anyOf", 1)).is_checkable(value)
    assert parts.part(("properties", "b")).is_listable(value)
    for nowhere in (("properties", "c"), ("$defs",)):
        with pytest.raises(LookupError):
            parts.part(nowhere)


def test_too_large_and_too_deep_schemas_and_unknown_references_are_rejected() -> None:
    workload(doubling(900, "items", 1))
    with pytest.raises(TooManySchemas, match="a chain of more than"):
        workload(doubling(1_100, "anyOf", 1))
    with pytest.raises(TooManySchemas, match="consists of more than"):
        workload({"$ref": "#/anyOf/0", "anyOf": [{"minimum": number} for number in range(20_001)]})
    with pytest.raises(ValueError, match="a reference has an unknown target"):
        workload({"$ref": "#/nowhere"})


@pytest.mark.parametrize(
    "schema", [doubling(12, "allOf"), TREE, {"items": ref("node"), "$defs": TREE["$defs"]}]
)
def test_estimating_the_workload_takes_time_linear_in_the_value(schema: JsonObject) -> None:
    load = workload(schema)

    def work(text: str) -> None:
        load.is_checkable([*text])
        load.is_listable([*text])

    assert is_linear(work, lambda size: "x" * size, 20_000)
