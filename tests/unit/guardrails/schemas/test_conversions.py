import pytest

from proxy.conversation.json import JsonValue
from proxy.guardrails.schemas.conversions import to_list, to_option, to_type


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
def test_a_scalar_becomes_what_it_can_only_mean(
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
def test_nothing_is_guessed(value: JsonValue, types: list[str]) -> None:
    assert to_type(value, types) is None


@pytest.mark.parametrize("value", ["a", 5, 5.5, False])
def test_one_item_becomes_a_list_of_it(value: JsonValue) -> None:
    assert to_list(value, ["array"]) == [value]
    assert to_list(value, ["object"]) is None


@pytest.mark.parametrize("value", ["a, b", "a;b", "a\nb", "[a]", " {", "", " ", None, {}, []])
def test_what_may_be_several_items_or_none_becomes_no_list(value: JsonValue) -> None:
    assert to_list(value, ["array"]) is None


@pytest.mark.parametrize(
    ("value", "options", "result"),
    [
        (" Celsius", ["celsius", "fahrenheit"], "celsius"),
        ("STRASSE", ["straße"], "straße"),
        ("2", [1, 2], 2),
        (2, ["1", "2"], "2"),
        ("True", [True, None], True),
    ],
)
def test_the_only_option_alike_is_chosen(
    value: JsonValue, options: list[JsonValue], result: JsonValue
) -> None:
    assert to_option(value, options) == result


@pytest.mark.parametrize(
    ("value", "options"),
    [
        ("A ", ["a", " A"]),
        ("x", ["a"]),
        ("null", [None]),
        (None, [None]),
        ({}, [{}]),
        (1.5, ["1.5"]),
    ],
)
def test_no_option_is_chosen_if_none_or_several_are_alike(
    value: JsonValue, options: list[JsonValue]
) -> None:
    assert to_option(value, options) is None
