import json as stdlib_json
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.schemas.coercion import (
    Coercion,
    coerce,
    copy_value,
    to_list,
    to_option,
    to_type,
    unescape_names,
)
from proxy.guardrails.schemas.schema import compile_schema, pointer


@pytest.mark.parametrize(
    ("value", "types", "result"),
    [
        ("5", ["integer"], 5),
        (" -5 ", ["integer"], -5),
        ("5.0", ["integer"], 5),
        ("5.0", ["integer", "number"], 5),
        ("5", ["number"], 5),
        ("5.50", ["number"], 5.5),
        ("9223372036854775807", ["integer"], 9223372036854775807),
        ("-9223372036854775808", ["number"], -9223372036854775808),
        ("9" * 40, ["integer"], int("9" * 40)),
        ("5e3", ["integer"], 5000),
        ("1.5E+2", ["integer", "number"], 150),
        ("5e3", ["number"], 5000.0),
        ("1e-9", ["number"], 1e-9),
        ("0.1234567890123456", ["number"], 0.1234567890123456),
        ("05", ["integer"], 5),
        ("5.0", ["number"], 5.0),
        ("true", ["boolean"], True),
        ("False", ["boolean", "null"], False),
        (5, ["string"], "5"),
        (True, ["string"], "true"),
        ('{"a": 1}', ["object"], {"a": 1}),
        ("['a', True,]", ["array"], ["a", True]),
        ("[]", ["object", "array"], []),
    ],
)
def test_an_unambiguous_scalar_is_coerced(
    value: JsonValue, types: list[str], result: JsonValue
) -> None:
    converted = to_type(value, types)
    assert (converted, type(converted)) == (result, type(result))


@pytest.mark.parametrize(
    ("value", "types"),
    [
        ("5 apples", ["integer", "number"]),
        ("5.5", ["integer"]),
        ("5e-3", ["integer"]),
        ("1e400", ["integer"]),
        ("05", ["number"]),
        ("-05", ["integer"]),
        ("1e999", ["number"]),
        ("0.12345678901234567", ["number"]),
        ("9" * 101, ["integer", "number"]),
        ("+5", ["integer"]),
        ("1,000", ["integer"]),
        ("\N{ARABIC-INDIC DIGIT FIVE}", ["integer"]),
        ("", ["integer", "boolean", "object", "array"]),
        ("null", ["null", "integer"]),
        ("None", ["null"]),
        ("yes", ["boolean"]),
        ("TRUE", ["boolean"]),
        ("true", ["object", "integer"]),
        ("1", ["boolean"]),
        (1, ["boolean"]),
        (True, ["integer"]),
        (1.1, ["string"]),
        (5.5, ["integer"]),
        (None, ["string"]),
        ({}, ["string"]),
        ('{"a": 1}', ["array"]),
        ("[1]", ["object"]),
        ('{"a": 1', ["object"]),
        ('{"a": 1} {"b": 2}', ["object"]),
    ],
)
def test_an_ambiguous_scalar_is_not_coerced(value: JsonValue, types: list[str]) -> None:
    assert to_type(value, types) is None


@pytest.mark.parametrize("value", ["a", 5, 5.5, False])
def test_a_single_scalar_is_wrapped_in_a_list_if_an_array_is_expected(value: JsonValue) -> None:
    assert to_list(value, ["array"]) == [value]
    assert to_list(value, ["object"]) is None


@pytest.mark.parametrize("value", ["a, b", "a;b", "a\nb", "[a]", " {", "", " ", None, {}, []])
def test_an_ambiguous_value_is_not_wrapped_in_a_list(value: JsonValue) -> None:
    assert to_list(value, ["array"]) is None


@pytest.mark.parametrize(
    ("value", "options", "result"),
    [
        # the only similar option is chosen
        (" Celsius", ["celsius", "fahrenheit"], "celsius"),
        ("STRASSE", ["straße"], "straße"),
        ("2", [1, 2], 2),
        (2, ["1", "2"], "2"),
        ("True", [True, None], True),
        ('"Open"', ["open", "shut"], "open"),
        ("`open`", ["open", "shut"], "open"),
        ("'2'", [1, 2], 2),
        # no option is chosen if none or several are similar
        ("A ", ["a", " A"], None),
        ("x", ["a"], None),
        ("null", [None], None),
        (None, [None], None),
        ({}, [{}], None),
        (1.5, ["1.5"], None),
    ],
)
def test_a_value_becomes_an_enum_option_only_if_exactly_one_is_similar(
    value: JsonValue, options: list[JsonValue], result: JsonValue
) -> None:
    assert to_option(value, options) == result


INTEGER: JsonObject = {"type": "integer"}
TEXT: JsonObject = {"type": "string"}
INTEGERS: JsonObject = {"type": "array", "items": INTEGER}


def coerce_and_check(schema: JsonObject, value: JsonValue) -> Coercion:
    """Coerce a value, not in place; assert that errors remain only if the result is invalid."""
    before = json.dump(value)
    coercion = coerce(compile_schema(schema), value)
    assert json.dump(value) == before
    assert Draft202012Validator(schema).is_valid(coercion.value) == (not coercion.errors)
    return coercion


def object_with(schema: JsonValue, *, is_required: bool = False) -> JsonObject:
    """Make the schema of an object with a member `a` that must satisfy `schema`."""
    return {"type": "object", "properties": {"a": schema}, "required": ["a"] * is_required}


def union(*schemas: JsonValue) -> JsonObject:
    return object_with({"anyOf": list(schemas)})


@pytest.mark.parametrize(
    ("schema", "value", "result", "pointers"),
    [
        (object_with(INTEGER), {"a": "5"}, {"a": 5}, ["/a"]),
        (object_with(TEXT), {"a": 5}, {"a": "5"}, ["/a"]),
        (object_with({"enum": ["c", "f"]}), {"a": " C"}, {"a": "c"}, ["/a"]),
        (object_with({"const": "c"}), {"a": "C"}, {"a": "c"}, ["/a"]),
        (object_with({"type": "integer", "enum": [1, 2]}), {"a": "2"}, {"a": 2}, ["/a"]),
        (object_with(INTEGERS), {"a": "5"}, {"a": [5]}, ["/a", "/a/0"]),
        (object_with(INTEGERS), {"a": "[5, '6']"}, {"a": [5, 6]}, ["/a", "/a/1"]),
        (object_with(INTEGERS), {"a": 5}, {"a": [5]}, ["/a"]),
        (object_with(object_with(INTEGER)), {"a": '{"a": "5"}'}, {"a": {"a": 5}}, ["/a", "/a/a"]),
        (object_with(TEXT), {"a": {"a": "x"}}, {"a": "x"}, ["/a"]),
        (object_with(INTEGER), {"a": {"a": "5"}}, {"a": 5}, ["/a"]),
        (object_with(TEXT), {"a": {"b": {"c": 1}}}, {"a": '{"b":{"c":1}}'}, ["/a"]),
        (object_with(TEXT), {"a": [{"b": 1}]}, {"a": '[{"b":1}]'}, ["/a"]),
        (union(TEXT, {"type": "null"}), {"a": {"b": 1}}, {"a": '{"b":1}'}, ["/a"]),
        (union(TEXT, object_with(INTEGER)), {"a": {"a": "5"}}, {"a": {"a": 5}}, ["/a/a"]),
        (union({"enum": ["open"]}, {"const": "shut"}), {"a": '"shut"'}, {"a": "shut"}, ["/a"]),
        (object_with(TEXT), {"a": None}, {}, ["/a"]),
        (object_with({"enum": ["c"]}), {"a": None}, {}, ["/a"]),
        (union(TEXT, INTEGER), {"a": None}, {}, ["/a"]),
        ({**object_with(TEXT), "additionalProperties": False}, {"b": 1, "c": 2}, {}, ["/b", "/c"]),
        ({"type": "object", "additionalProperties": False}, {"b": 1, "c": 2}, {}, ["/b", "/c"]),
        (union(INTEGER, {"type": "null"}), {"a": "5"}, {"a": 5}, ["/a"]),
        (union(INTEGER, INTEGERS), {"a": "5"}, {"a": 5}, ["/a"]),
        (union(object_with(INTEGER), INTEGER), {"a": {"a": "5"}}, {"a": {"a": 5}}, ["/a/a"]),
        (union(INTEGER, {"type": "null"}), {"a": {"a": "5"}}, {"a": 5}, ["/a"]),
        (union({"anyOf": [INTEGER, INTEGERS]}), {"a": "5"}, {"a": 5}, ["/a"]),
        (
            union(
                {"type": "object", "additionalProperties": False},
                {**object_with(INTEGER, is_required=True), "additionalProperties": False},
            ),
            {"a": {"a": "5"}},
            {"a": {"a": 5}},
            ["/a/a"],
        ),
        (
            object_with({"oneOf": [INTEGER, {"type": "boolean"}]}),
            {"a": "true"},
            {"a": True},
            ["/a"],
        ),
        ({"allOf": [object_with(INTEGER), {"required": ["a"]}]}, {"a": "5"}, {"a": 5}, ["/a"]),
        (
            {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": INTEGER}},
            {"a": "5"},
            {"a": 5},
            ["/a"],
        ),
        (
            {"properties": {"v": INTEGER, "next": {"$ref": "#"}}},
            {"v": "1", "next": {"v": "2", "next": {"v": "3"}}},
            {"v": 1, "next": {"v": 2, "next": {"v": 3}}},
            ["/v", "/next/v", "/next/next/v"],
        ),
        (object_with(TEXT) | {"type": "object"}, '{"a": 5}', {"a": "5"}, ["", "/a"]),
    ],
)
def test_an_unambiguous_value_is_coerced_and_reported(
    schema: JsonObject, value: JsonValue, result: JsonValue, pointers: list[str]
) -> None:
    coercion = coerce_and_check(schema, value)
    assert coercion.value == result
    assert json.dump(coercion.value) == json.dump(result)
    assert sorted(map(pointer, coercion.paths)) == sorted(pointers)
    assert not coercion.errors


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (object_with(INTEGER), {"a": "5 apples"}),
        (object_with(INTEGER, is_required=True), {}),
        (object_with(TEXT, is_required=True), {"a": None}),
        ({"additionalProperties": TEXT}, {"a": None}),
        (object_with({"items": TEXT}), {"a": [None]}),
        (object_with({"type": "null"}), {"a": "null"}),
        (object_with(INTEGERS), {"a": "x"}),
        (object_with(INTEGERS), {"a": "1, 2"}),
        (object_with({"type": "array", "minItems": 2}), {"a": 1}),
        (object_with({"enum": ["a", "A "]}), {"a": " a"}),
        (object_with(INTEGER), {"a": {"a": "x"}}),
        (object_with(TEXT), {"a": {"type": "string", "description": "b"}}),
        (object_with(TEXT), {"a": ["b"]}),
        (object_with({**TEXT, "maxLength": 5}), {"a": {"b": 1}}),
        (object_with({"enum": ["a", '"a"']}), {"a": "'a'"}),
        (object_with(INTEGER), {"a": {"a": {"a": [1]}}}),
        (object_with(INTEGER), {"a": {"b": 1}}),
        (object_with({"not": {}}), {"a": 1}),
        (object_with({"allOf": [TEXT, {"type": "boolean"}]}), {"a": True}),
        (object_with({"allOf": [{"const": "5"}, INTEGER]}), {"a": "5"}),
        (union(INTEGER, {"type": "boolean"}), {"a": "x"}),
        (union(object_with(INTEGER, is_required=True), INTEGER), {"a": {"b": 1}}),
        (object_with({"oneOf": [INTEGER, {"type": "number"}]}), {"a": "5"}),
        ({"properties": {"a": {}}, "required": ["a"], "additionalProperties": False}, {"aa": 1}),
        (
            {
                "allOf": [
                    {"properties": {"a": {}}, "additionalProperties": False},
                    {"required": ["b"]},
                ]
            },
            {"a": 1, "b": 2},
        ),
        ({"$id": "http://example.com/", **union(INTEGER)}, {"a": "x"}),
    ],
)
def test_a_coercion_that_does_not_remove_its_error_is_undone(
    schema: JsonObject, value: JsonValue
) -> None:
    coercion = coerce_and_check(schema, value)
    assert json.dump(coercion.value) == json.dump(value)
    assert coercion.paths == ()
    assert coercion.errors


def test_a_coercion_that_removes_its_error_is_kept_despite_other_errors() -> None:
    schema: JsonObject = {
        "properties": {"n": {**INTEGER, "minimum": 9}, "o": object_with(INTEGER, is_required=True)},
        "required": ["x"],
    }
    coercion = coerce_and_check(schema, {"n": "5", "o": '{"b": 1}'})
    assert coercion.value == {"n": 5, "o": {"b": 1}}
    assert [error.kind.name for error in coercion.errors].count("required") == 2
    assert len(coercion.errors) == 3


def test_a_coercion_inside_a_coercion_that_is_undone_is_not_reported() -> None:
    schema = object_with({"type": "object", "properties": {"x": INTEGER}, "required": ["y"]})
    wrapped: JsonValue = {"a": {"a": {"x": "5"}}}
    strict = object_with({**object_with(TEXT), "type": "array"})
    assert coerce_and_check(schema, wrapped).paths == ()
    assert coerce_and_check(strict, wrapped).value == wrapped


def test_a_value_wrapped_too_often_is_unchanged() -> None:
    value: JsonValue = 5
    for _ in range(10):
        value = {"a": value}
    assert coerce_and_check(object_with(INTEGER), value).value == value


def test_coercion_to_a_recursive_union_terminates() -> None:
    schema: JsonObject = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {"anyOf": [INTEGER, {"type": "array", "items": {"$ref": "#/$defs/node"}}]}
        },
    }
    value: JsonValue = "x"
    for _ in range(8):
        value = [value, value]
    assert coerce_and_check(schema, value).errors
    assert coerce_and_check(schema, ["1", ["2"]]).value == [1, [2]]


def test_an_uncompilable_branch_is_skipped() -> None:
    inner: JsonObject = {"$id": "http://example.com/inner", "anyOf": [INTEGER, {"type": "null"}]}
    coercion = coerce_and_check(
        {"$defs": {"x": inner}, **object_with({"$ref": "http://example.com/inner"})}, {"a": "x"}
    )
    assert coercion.errors


@pytest.mark.parametrize("value", [float("inf"), float("nan"), "\ud800"])
def test_values_that_json_cannot_represent_are_refused(value: JsonValue) -> None:
    with pytest.raises(ValueError, match=r"."):
        copy_value({"a": value})


SCALARS = st.sampled_from(
    [None, True, False, 0, 5, -1, 2.5, "5", "a", "A", "true", "[5]", '{"a": "5"}', ""]
)
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
    ),
    max_leaves=5,
)
LEAVES: st.SearchStrategy[JsonObject] = st.sampled_from(
    [
        INTEGER,
        TEXT,
        {"type": ["boolean", "number"]},
        {"type": "null"},
        {"enum": ["a", 5, None]},
        {"const": "b"},
        {},
        {"$ref": "#/$defs/x"},
        {"type": "integer", "minimum": 3},
    ]
)


def compounds(inner: st.SearchStrategy[JsonObject]) -> st.SearchStrategy[JsonObject]:
    def make_object(a: JsonObject, b: JsonObject, required: list[str]) -> JsonObject:
        return {
            "type": "object",
            "properties": {"a": a, "b": b},
            "required": [*required],
            "additionalProperties": len(required) != 1,
        }

    def make_array(items: JsonObject) -> JsonObject:
        return {"type": "array", "items": items}

    def make_combination(keyword: str, schemas: list[JsonObject]) -> JsonObject:
        return {keyword: [*schemas]}

    required = st.lists(st.sampled_from("ab"), unique=True)
    keywords = st.sampled_from(["anyOf", "oneOf", "allOf"])
    return (
        st.builds(make_array, inner)
        | st.builds(make_object, inner, inner, required)
        | st.builds(make_combination, keywords, st.lists(inner, min_size=1, max_size=2))
    )


SCHEMAS = st.recursive(LEAVES, compounds, max_leaves=4).map(
    lambda schema: {**schema, "$defs": {"x": {"type": ["integer", "array"]}}}
)


def sorted_text(value: JsonValue) -> str:
    return stdlib_json.dumps(value, sort_keys=True)


def scalars(value: JsonValue) -> Iterator[str]:
    """Yield the scalars in a value; a string that contains JSON is parsed first."""
    match value:
        case dict():
            for member in value.values():
                yield from scalars(member)
        case list():
            for item in value:
                yield from scalars(item)
        case str() if value[:1] in {"[", "{"}:
            yield from scalars(json.parse(value))
        case _:
            yield str(value).casefold()


@settings(deadline=None)
@given(SCHEMAS, VALUES)
def test_coercion_never_invents_scalars_and_never_changes_valid_values(
    schema: JsonObject, value: JsonValue
) -> None:
    coercion = coerce_and_check(schema, value)
    assert set(scalars(coercion.value)) <= set(scalars(value))
    if Draft202012Validator(schema).is_valid(value):
        assert (coercion.value, coercion.paths) == (value, ())
    if sorted_text(coercion.value) != sorted_text(value):
        assert coercion.paths


@settings(deadline=None)
@given(SCHEMAS, VALUES)
def test_coercing_a_coerced_value_changes_nothing(schema: JsonObject, value: JsonValue) -> None:
    once = coerce_and_check(schema, value)
    again = coerce_and_check(schema, once.value)
    assert sorted_text(again.value) == sorted_text(once.value)
    assert again.paths == ()


@pytest.mark.deep
@pytest.mark.parametrize("item", ["5", "x", None, {}])
def test_coercion_takes_time_linear_in_the_number_of_defects(item: JsonValue) -> None:
    schema = compile_schema(object_with(INTEGERS))

    def seconds(count: int) -> float:
        items: list[JsonValue] = [item] * count
        start = time.process_time()
        coerce(schema, {"a": items})
        return time.process_time() - start

    # The measurements alternate, so that a slow machine affects both.
    few, many = zip(*((seconds(400), seconds(1600)) for _ in range(8)), strict=True)
    assert min(many) / min(few) < 9  # quadratic work gives 16


@pytest.mark.parametrize("word", ["null", "None"])
def test_a_member_with_the_text_null_is_dropped_if_no_string_is_expected(word: str) -> None:
    assert coerce_and_check(object_with(INTEGER), {"a": word}).value == {}
    assert coerce_and_check(object_with(TEXT), {"a": word}).value == {"a": word}
    assert coerce_and_check(object_with(INTEGER, is_required=True), {"a": word}).value == {
        "a": word
    }


@pytest.mark.parametrize(("item", "items"), [(["x", "y"], ["x", "y"]), ("x", ["x"])])
def test_an_object_whose_only_member_is_item_becomes_a_list(
    item: JsonValue, items: JsonValue
) -> None:
    schema = object_with({"type": "array", "items": TEXT})
    assert coerce_and_check(schema, {"a": {"item": item}}).value == {"a": items}


@pytest.mark.parametrize("names", [["a_b"], ["b\\_c"], ["a\\_b", "a_b"], ["a\\_b_c", "a_b\\_c"]])
def test_member_names_are_unchanged_if_unescaping_is_ambiguous_or_needless(
    names: list[str],
) -> None:
    arguments: JsonObject = dict.fromkeys(names, "x\\_y")
    parameters: JsonObject = {"properties": {"a_b": {}, "a_b_c": {}}}
    assert unescape_names(parameters, arguments) is arguments
