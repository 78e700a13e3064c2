import pytest

from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.complaints import Complaint, complaints
from proxy.guardrails.schemas import compiled


def said(schema: JsonObject, value: JsonValue) -> list[str]:
    errors = compiled(schema).errors(value)
    return [str(complaint) for complaint in complaints(errors)]


def forms(*schemas: JsonValue) -> JsonObject:
    return {"properties": {"a": {"anyOf": list(schemas)}}}


TEXT_OBJECT: JsonObject = {"type": "object", "properties": {"x": {"type": "string"}}}
NEEDY_OBJECT: JsonObject = {**TEXT_OBJECT, "required": ["y"]}
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
        (forms({"type": "integer"}, {"type": "null"}), {"a": "x"}, "integer or null, got"),
        (forms({"const": "b"}, {"const": "c"}), {"a": "x"}, 'expected "b" or "c", got "x"'),
        (forms(TEXT_OBJECT, {"type": "null"}), {"a": {"x": 1}}, "/a/x: expected string, got 1"),
        (forms(NEEDY_OBJECT, TEXT_OBJECT), {"a": {"x": 1}}, "/a/x: expected string, got 1"),
        (forms(TEXT_OBJECT, TEXT_OBJECT), {"a": {"x": 1}}, "/a: expected one of 2 different forms"),
        (
            {"oneOf": [{"type": "null"}, {"type": "string"}]},
            5,
            "the arguments: expected null or string, got 5",
        ),
    ],
)
def test_a_defect_becomes_one_precise_sentence(
    schema: JsonObject, value: JsonValue, sentence: str
) -> None:
    only, *more = said(schema, value)
    assert sentence in only
    assert not more


def test_what_is_missing_is_said_first_and_no_more_than_five_things() -> None:
    properties: JsonObject = {name: {"type": "string"} for name in "abcdefg"}
    schema: JsonObject = {"properties": properties, "required": ["x", "y"]}
    sentences = said(schema, dict.fromkeys("abcdefg", 1))
    assert len(sentences) == 5
    assert sentences[:2] == ["/x: is required but missing", "/y: is required but missing"]


def test_long_things_are_shortened() -> None:
    (complaint,) = said({"enum": [str(number) for number in range(30)]}, "x" * 500)
    assert '"19", ..., got "xxx' in complaint
    assert complaint.endswith("x...")
    assert len(complaint) < 300
    (complaint,) = said(CLOSED, {"n" * 500: 1})
    assert len(complaint) < 200


def test_a_complaint_shows_what_stood_there() -> None:
    assert str(Complaint("/a", "expected null", "1")) == "/a: expected null, got 1"
    assert str(Complaint("", "is wrong")) == "the arguments: is wrong"
