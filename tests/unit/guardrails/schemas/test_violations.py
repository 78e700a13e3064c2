from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema_rs import ValidationError, ValidationErrorKind

from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.schemas.schema import compile_schema
from proxy.guardrails.schemas.violations import Violation, describe_violations


def violation_messages(schema: JsonObject, value: JsonValue) -> list[str]:
    errors = compile_schema(schema).errors(value)
    return [str(violation) for violation in describe_violations(errors)]


def any_of(*schemas: JsonValue) -> JsonObject:
    return {"properties": {"a": {"anyOf": list(schemas)}}}


TEXT_OBJECT: JsonObject = {"type": "object", "properties": {"x": {"type": "string"}}}
NEEDY_OBJECT: JsonObject = {**TEXT_OBJECT, "required": ["y"]}
UNION: JsonObject = {"anyOf": [{"const": 1}, {"const": 2}]}
NAMED_S: JsonObject = {"propertyNames": {"const": "s"}}
CLOSED: JsonObject = {"properties": {"a": {}}, "additionalProperties": False}
ODDLY_NAMED: JsonObject = {"properties": {"additionalProperties": False}}


@pytest.mark.parametrize(
    ("schema", "value", "sentence"),
    [
        ({"required": ["city"]}, {}, "/city: is required but missing"),
        ({"required": ["a/b"]}, {}, "/a~1b: is required but missing"),
        ({"enum": ["c", "f"]}, "kelvin", 'expected one of "c", "f", got "kelvin"'),
        ({"const": 5}, "x", 'expected 5, got "x"'),
        ({"type": ["string", "null"]}, 5, "expected null or string, got 5"),
        ({"minimum": 3}, 1, "expected a number that is at least 3, got 1"),
        ({"maxLength": 1}, "ab", 'expected at most 1 characters, got "ab"'),
        ({"pattern": "^b{2}$"}, "a", 'expected text that matches the pattern "^b{2}$", got "a"'),
        ({"uniqueItems": True}, [1, 1], "expected items that are all different, got [1,1]"),
        ({"not": {}}, 1, "expected what the schema demands with 'not', got 1"),
        (CLOSED, {"b": 1}, "/b: is not a known parameter"),
        ({"additionalProperties": False}, {"b": 1}, "the arguments: expected no parameters at all"),
        ({"properties": {"b": False}}, {"b": 1}, "/b: is not allowed"),
        (ODDLY_NAMED, {"additionalProperties": 1}, "/additionalProperties: is not allowed"),
        ({"unevaluatedProperties": False}, {"b": 1}, "/b: is not a known parameter"),
        (any_of({"type": "integer"}, {"type": "null"}), {"a": "x"}, "integer or null, got"),
        (any_of({"const": "b"}, {"const": "c"}), {"a": "x"}, 'expected "b" or "c", got "x"'),
        (any_of(TEXT_OBJECT, {"type": "null"}), {"a": {"x": 1}}, "/a/x: expected string, got 1"),
        (any_of(NEEDY_OBJECT, TEXT_OBJECT), {"a": {"x": 1}}, "/a/x: expected string, got 1"),
        (
            any_of(TEXT_OBJECT, TEXT_OBJECT),
            {"a": {"x": 1}},
            "/a: expected one of 2 different forms",
        ),
        (
            {"oneOf": [{"type": "null"}, {"type": "string"}]},
            5,
            "the arguments: expected null or string, got 5",
        ),
        ({"oneOf": [{}, {}, {}]}, 5, "expected only one of 3 forms to fit, not several, got 5"),
        (
            {"properties": {"p": {"propertyNames": {"enum": ["s", "l"]}}}},
            {"p": {"m": 3}},
            '/p/m: is no name that is allowed here, expected one of "s", "l"',
        ),
        (any_of(UNION, {"const": 3}), {"a": "x"}, 'expected 1 or 2 or 3, got "x"'),
        (any_of(NAMED_S, {"maxProperties": 0}), {"a": {"m": 1}}, 'member names that are "s"'),
        (any_of({"required": ["b"]}, {"required": ["c"]}), {"a": {}}, 'with the member "b" or an'),
        (any_of({"minItems": 1}, False), {"a": []}, "expected at least 1 items or nothing at all"),
    ],
)
def test_each_violation_is_described_by_a_single_sentence(
    schema: JsonObject, value: JsonValue, sentence: str
) -> None:
    only, *more = violation_messages(schema, value)
    assert sentence in only
    assert not more


def test_missing_members_come_first_and_at_most_five_violations_are_listed() -> None:
    properties: JsonObject = {name: {"type": "string"} for name in "abcdefg"}
    schema: JsonObject = {"properties": properties, "required": ["x", "y"]}
    sentences = violation_messages(schema, dict.fromkeys("abcdefg", 1))
    assert len(sentences) == 5
    assert sentences[:2] == ["/x: is required but missing", "/y: is required but missing"]


def test_long_values_are_shortened_in_the_description() -> None:
    (violation,) = violation_messages({"enum": [str(number) for number in range(30)]}, "x" * 500)
    assert '"19", ..., got "xxx' in violation
    assert violation.endswith("x...")
    assert len(violation) < 300
    (violation,) = violation_messages(CLOSED, {"n" * 500: 1})
    assert len(violation) < 200


def test_a_violation_shows_the_actual_value_if_it_has_one() -> None:
    assert str(Violation("/a", "expected null", "1")) == "/a: expected null, got 1"
    assert str(Violation("", "is wrong")) == "the arguments: is wrong"


# A schema for each kind of violation, with a value that violates it.
KINDS: dict[str, tuple[JsonValue, JsonValue]] = {
    "AdditionalProperties": (CLOSED, {"b": 1}),
    "AnyOf": ({"anyOf": [{"type": "null"}, {"const": 1}]}, 2),
    "Constant": ({"const": {"a": [1]}}, 2),
    "Contains": ({"contains": {"type": "null"}}, [2]),
    "Enum": ({"enum": ["a", 10**30, None]}, 2),
    "ExclusiveMaximum": ({"exclusiveMaximum": 2}, 2),
    "ExclusiveMinimum": ({"exclusiveMinimum": 2.5}, 2),
    "FalseSchema": (False, 2),
    "MaxItems": ({"maxItems": 0}, [2]),
    "Maximum": ({"maximum": -1e300}, 2),
    "MaxLength": ({"maxLength": 1}, "ab"),
    "MaxProperties": ({"maxProperties": 0}, {"b": 1}),
    "MinItems": ({"minItems": 2}, [2]),
    "Minimum": ({"minimum": 10**30}, 2),
    "MinLength": ({"minLength": 3}, "ab"),
    "MinProperties": ({"minProperties": 2}, {"b": 1}),
    "MultipleOf": ({"multipleOf": 0.3}, 2),
    "Not": ({"not": {"anyOf": [{}]}}, 2),
    "OneOfMultipleValid": ({"oneOf": [{}, {}]}, 2),
    "OneOfNotValid": ({"oneOf": [{"const": 3}, {"required": ["z"]}]}, {}),
    "Pattern": ({"pattern": "^c{2}$"}, "ab"),
    "PropertyNames": ({"propertyNames": {"enum": ["s", "l"]}}, {"m": 3}),
    "Required": ({"required": ["z"]}, {}),
    "Type": ({"type": ["array", "null"]}, 2),
    "UnevaluatedItems": ({"unevaluatedItems": False}, [2]),
    "UnevaluatedProperties": ({"unevaluatedProperties": False}, {"b": 1}),
    "UniqueItems": ({"uniqueItems": True}, [2, 2]),
}
# Kinds of errors that do not exist in this draft, or that the validator never reports.
UNREPORTED = {"AdditionalItems", "BacktrackLimitExceeded", "ContentEncoding", "ContentMediaType"}
UNREPORTED |= {"Custom", "Format", "FromUtf8", "Referencing", "RegexEngineFailure"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_violation_has_a_message(kind: str) -> None:
    schema, value = KINDS[kind]
    (error,) = compile_schema({"properties": {"a": schema}}).errors({"a": value})
    assert type(error.kind).__name__ == kind
    (violation,) = describe_violations([error])
    assert violation.pointer.startswith("/a")


def test_the_tests_cover_all_kinds_of_violations() -> None:
    known = {name for name in vars(ValidationErrorKind) if name[0].isupper()}
    assert known == KINDS.keys() | UNREPORTED


def within_items(schema: JsonValue, value: JsonValue) -> tuple[JsonValue, JsonValue]:
    return {"type": "array", "items": schema}, [value, value]


def within_members(schema: JsonValue, value: JsonValue) -> tuple[JsonValue, JsonValue]:
    return {"additionalProperties": schema, "propertyNames": {"minLength": 2}}, {"n": value}


def within_a_union(schema: JsonValue, value: JsonValue) -> tuple[JsonValue, JsonValue]:
    return {"anyOf": [schema, {"type": "null"}]}, value


def within_equals(schema: JsonValue, value: JsonValue) -> tuple[JsonValue, JsonValue]:
    return {"oneOf": [schema, schema, {"allOf": [schema]}]}, value


def within_names(schema: JsonValue, value: JsonValue) -> tuple[JsonValue, JsonValue]:
    return {"propertyNames": {"allOf": [schema, False]}}, {"n": value}


WRAPPERS: list[Callable[[JsonValue, JsonValue], tuple[JsonValue, JsonValue]]] = [
    within_items,
    within_members,
    within_a_union,
    within_equals,
    within_names,
]


@settings(deadline=None)
@given(st.sampled_from(list(KINDS)), st.lists(st.sampled_from(WRAPPERS), max_size=4))
def test_nested_violations_of_all_kinds_have_messages(
    kind: str, wrappers: list[Callable[[JsonValue, JsonValue], tuple[JsonValue, JsonValue]]]
) -> None:
    schema, value = KINDS[kind]
    for wrap in wrappers:
        schema, value = wrap(schema, value)
    message = violation_messages({"properties": {"a": schema}}, {"a": value})
    assert 0 < len(message) <= 5
    assert all(sentence.startswith("/a") and len(sentence) < 1_500 for sentence in message)


def test_a_deeply_nested_union_is_described_by_its_number_of_forms() -> None:
    nested: JsonObject = {"const": 1}
    for _ in range(80):
        nested = {"anyOf": [nested]}
    assert violation_messages(nested, 2) == [
        "the arguments: expected one of 1 different forms, got 2"
    ]


def test_a_value_that_json_cannot_represent_is_described() -> None:
    (source,) = compile_schema({"const": 1}).errors(2)
    error = ValidationError("", "", [], ["a"], [], source.kind, "\ud800")
    assert str(*describe_violations([error])) == "/a: expected 1, got what JSON cannot write"
