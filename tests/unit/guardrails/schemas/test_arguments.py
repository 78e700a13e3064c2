import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonSchema, JsonValue
from proxy.conversation.tools import Tool
from proxy.facts import Coerced, Dropped, Fact, Repaired, Unchecked
from proxy.guardrails.schemas.arguments import (
    BrokenArguments,
    CheckedMember,
    InvalidAnswer,
    InvalidArguments,
    Members,
    ValidAnswer,
    ValidArguments,
    check,
    check_answer,
    object_text,
)
from proxy.guardrails.schemas.violations import TOO_LARGE

PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"enum": ["c", "f"]},
        "days": {"type": "integer"},
        "inner": {"$ref": "#/$defs/inner"},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"inner": {"type": ["array", "boolean"], "items": {"type": "number"}}},
}
WEATHER = Tool("get_weather", PARAMETERS, b"{}")
DAYS: JsonObject = {"type": "integer"}
TIME = Tool("get_time", {"type": "object", "properties": {}}, b"{}")


@pytest.mark.parametrize(
    "text",
    [
        '{"city":"Rome"}',
        ' { "city" : "R\\u006fme",\n "days": 3 }\n',
        '{"city": "", "inner": [1e3]}',
    ],
)
def test_valid_arguments_are_returned_byte_for_byte(text: str) -> None:
    assert check(WEATHER, text) == ValidArguments(text, json_object(text))


def json_object(text: str) -> JsonObject:
    value = json.parse(text)
    assert isinstance(value, dict)
    return value


NAMED: JsonObject = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^(a|b){1,100}$"}, "days": DAYS},
    "required": ["name"],
}
LONG = "a" * 50_000


def test_a_too_long_value_is_reported_as_unchecked_and_other_members_are_checked() -> None:
    tool = Tool("t", NAMED, b"{}")
    text = json.dump_text({"name": LONG, "days": 1})
    checked = check(tool, text)
    assert isinstance(checked, ValidArguments)
    assert checked.text == text
    (fact,) = checked.facts
    assert isinstance(fact, Unchecked)
    assert "too long to match" in fact.problem
    coerced = check(tool, {"name": LONG, "days": "1"})
    assert isinstance(coerced, ValidArguments)
    assert coerced.value["days"] == 1
    assert [type(fact) for fact in coerced.facts] == [Unchecked, Coerced]
    assert isinstance(check(tool, {"name": LONG, "days": "x"}), InvalidArguments)
    assert isinstance(check(tool, {"name": "c"}), InvalidArguments)


def test_arguments_with_a_too_long_value_are_unchecked_if_the_pattern_cannot_be_removed() -> None:
    tool = Tool("t", {"not": NAMED, "type": "object"}, b"{}")
    checked = check(tool, {"name": LONG})
    assert isinstance(checked, ValidArguments)
    assert [type(fact) for fact in checked.facts] == [Unchecked]


def test_an_answer_with_a_too_long_value_is_reported_and_other_members_are_checked() -> None:
    checked = check_answer(json.dump_text({"name": LONG, "days": 1}), NAMED)
    assert isinstance(checked, ValidAnswer)
    assert [type(fact) for fact in checked.facts] == [Unchecked]
    assert isinstance(
        check_answer(json.dump_text({"name": LONG, "days": "x"}), NAMED), InvalidAnswer
    )
    assert isinstance(check_answer('{"name": "c"}', NAMED), InvalidAnswer)


def test_a_value_equal_to_the_declared_default_is_returned_unchanged() -> None:
    unit: JsonObject = {"enum": ["s", "ms"], "default": "N/A"}
    date: JsonObject = {"type": "string", "default": None}
    near: JsonObject = {"type": "string"}
    properties: JsonObject = {"unit": unit, "date": date, "near": near}
    tool = Tool("t", {"type": "object", "properties": properties}, b"{}")
    text = '{ "unit": "N/A", "date": null }'
    assert check(tool, text) == ValidArguments(text, json_object(text))
    without_near = check(tool, {"unit": "N/A", "date": None, "near": None})
    assert isinstance(without_near, ValidArguments)
    assert without_near.value == {"unit": "N/A", "date": None}


@pytest.mark.parametrize("arguments", ["", " \n", None, "null", "{}", {}, '""'])
def test_missing_arguments_become_an_empty_object(arguments: JsonValue) -> None:
    checked = check(TIME, arguments)
    assert isinstance(checked, ValidArguments)
    assert (checked.text, checked.value) == ("{}", {})
    assert isinstance(check(WEATHER, arguments), InvalidArguments)


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        ({"city": "Rome"}, ()),
        ('"{\\"city\\":\\"Rome\\"}"', (Coerced("get_weather", ""),)),
        ("{'city': 'Rome',}", (Repaired("get_weather"),)),
        ("\"{'city': 'Rome'}\"", (Coerced("get_weather", ""), Repaired("get_weather"))),
        ('{"city": "Rome", "unit": null}', (Coerced("get_weather", "/unit"),)),
        ('{"city": {"city": "Rome"}}', (Coerced("get_weather", "/city"),)),
        ("{city: ' Rome', }".replace(" R", "R"), (Repaired("get_weather"),)),
        ('{"city": "Rome"}}', (Repaired("get_weather"),)),
        ('{"city": "Rome"}\n]}', (Repaired("get_weather"),)),
        ("{'city': 'Rome'}}", (Repaired("get_weather"),)),
    ],
)
def test_repaired_arguments_are_serialized_again_and_reported(
    arguments: JsonValue, facts: tuple[Fact, ...]
) -> None:
    assert check(WEATHER, arguments) == ValidArguments('{"city":"Rome"}', {"city": "Rome"}, facts)


@pytest.mark.parametrize("half", [r"\ud83d", r"\ude00"])
def test_half_a_surrogate_pair_in_arguments_is_replaced_and_reported(half: str) -> None:
    text = f'{{"city": "Ro{half}me"}}'
    repaired = (Repaired("get_weather"),)
    city: JsonObject = {"city": "Ro\ufffdme"}
    assert check(WEATHER, text) == ValidArguments(json.dump_text(city), city, repaired)


@pytest.mark.parametrize("rest", [', "unit": "c"}', "{}", '{"city": "Oslo"}', " and more", "[}"])
def test_arguments_with_text_other_than_brackets_after_the_object_are_broken(rest: str) -> None:
    assert isinstance(check(WEATHER, f'{{"city": "Rome"}}{rest}'), BrokenArguments)


def test_arguments_that_are_the_text_none_become_an_empty_object() -> None:
    assert check(TIME, "None") == ValidArguments("{}", {}, (Repaired("get_time"),))


@pytest.mark.parametrize(
    "text", ['{"city": "Rome"', "{'city': 'Rome'", '"{\\"city\\": \\"Rome\\""']
)
def test_missing_brackets_are_added_only_if_may_close_is_set(text: str) -> None:
    assert isinstance(check(WEATHER, text), BrokenArguments)
    closed = check(WEATHER, text, may_close=True)
    assert isinstance(closed, ValidArguments)
    assert closed.text == '{"city":"Rome"}'
    assert Repaired("get_weather") in closed.facts


def test_a_truncated_value_is_never_completed() -> None:
    for text in ('{"city": "Ro', '{"city": "Rome", "days": 1', '{"city": '):
        assert isinstance(check(WEATHER, text, may_close=True), BrokenArguments)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("Rome", "not valid JSON: expected value at line 1 column 1"),
        ('{"city": "Rome"} {}', "not valid JSON"),
        ("[1]", "not an array"),
        ([1], "not an array"),
        ("5", "not a single value"),
        (True, "not a single value"),
        ("'[1]'", "not an array"),
        ({"city": float("nan")}, "cannot be written as JSON"),
        ({"city": "\ud800"}, "cannot be written as JSON"),
        ('{"days": 1e999}', "cannot be written as JSON"),
        ('{"city": "Oslo", "city": "Rome"}', "duplicate key"),
    ],
)
def test_arguments_other_than_an_object_are_broken(arguments: JsonValue, problem: str) -> None:
    checked = check(WEATHER, arguments)
    assert isinstance(checked, BrokenArguments)
    assert problem in checked.problem


def test_a_value_that_is_nested_too_deeply_is_broken() -> None:
    value: JsonValue = {}
    for _ in range(100_000):
        value = {"city": value}
    assert isinstance(check(WEATHER, value), BrokenArguments)
    assert isinstance(check(WEATHER, '{"city":' * 5_000 + "1" + "}" * 5_000), BrokenArguments)


def test_remaining_violations_are_reported_together_with_coerced_values() -> None:
    checked = check(WEATHER, '{"unit": "kelvin", "days": "3", "when": 1}')
    assert isinstance(checked, InvalidArguments)
    assert checked.value == {"unit": "kelvin", "days": 3, "when": 1}
    assert checked.facts == (Coerced("get_weather", "/days"),)
    assert [str(violation) for violation in checked.violations] == [
        "/city: is required but missing",
        '/unit: expected one of "c", "f", got "kelvin"',
        "/when: is not a known parameter",
    ]


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "any", "pattern": 5},
        {"$ref": "http://127.0.0.1:9/x"},
        {"properties": 5},
        {"pattern": 5},
    ],
)
def test_any_object_is_accepted_as_unchecked_if_the_schema_cannot_be_compiled(
    parameters: JsonObject,
) -> None:
    checked = check(Tool("odd", parameters, b""), '{"a": 1}')
    assert isinstance(checked, ValidArguments)
    assert checked.text == '{"a": 1}'
    (fact,) = checked.facts
    assert isinstance(fact, Unchecked)
    assert fact.tool == "odd"


def test_an_unknown_type_is_reported_and_other_values_are_coerced() -> None:
    parameters: JsonObject = {
        "type": "object",
        "properties": {"a": {"type": "float"}, "n": {"type": "integer"}},
    }
    checked = check(Tool("odd", parameters, b""), '{"a": "1.5", "n": "5"}')
    assert isinstance(checked, ValidArguments)
    assert checked.value == {"a": "1.5", "n": 5}
    assert [type(fact) for fact in checked.facts] == [Unchecked, Coerced]
    assert isinstance(check(Tool("odd", parameters, b""), '{"n": "x"}'), InvalidArguments)


def test_a_value_too_expensive_to_check_is_accepted_as_unchecked() -> None:
    definitions: JsonObject = {"d0": {"type": "integer"}}
    for level in range(30):
        link: JsonValue = {"$ref": f"#/$defs/d{level}"}
        definitions[f"d{level + 1}"] = {"anyOf": [link, link]}
    schema: JsonObject = {"properties": {"a": {"$ref": "#/$defs/d30"}}, "$defs": definitions}
    checked = check(Tool("odd", schema, b""), '{"a": "x"}')
    assert isinstance(checked, ValidArguments)
    (fact,) = checked.facts
    assert isinstance(fact, Unchecked)
    assert "too long" in fact.problem
    fewer: JsonObject = {**schema, "properties": {"a": {"$ref": "#/$defs/d16"}}}
    assert check(Tool("odd", fewer, b""), '{"a": "x"}') == InvalidArguments(
        {"a": "x"}, (TOO_LARGE,)
    )
    least: JsonObject = {**schema, "properties": {"a": {"$ref": "#/$defs/d6"}}}
    refused = check(Tool("odd", least, b""), '{"a": "x"}')
    assert isinstance(refused, InvalidArguments)
    assert [str(violation) for violation in refused.violations] == ['/a: expected integer, got "x"']
    assert check(Tool("odd", fewer, b""), '{"a": 1}') == ValidArguments('{"a": 1}', {"a": 1})
    two: JsonObject = {**schema, "properties": {"a": {"$ref": "#/$defs/d2"}}}
    coerced = check(Tool("odd", two, b""), '{"a": "1"}')
    assert isinstance(coerced, ValidArguments)
    assert coerced.value == {"a": 1}


def test_the_schema_true_accepts_all_arguments_and_false_accepts_none() -> None:
    assert isinstance(check(Tool("t", parameters=True, source=b""), "{}"), ValidArguments)
    assert isinstance(check(Tool("t", parameters=False, source=b""), "{}"), InvalidArguments)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ({"a": 1}, '{"a":1}'),
        ("{'a': 1}", '{"a":1}'),
        ("", "{}"),
        ('{"a": 1', None),
        ("[1]", None),
        ("Rome", None),
    ],
)
def test_object_text_is_none_unless_the_arguments_are_an_object(
    arguments: JsonValue, text: str | None
) -> None:
    assert object_text(arguments) == text


NUMBERS: list[JsonValue] = ["x"] * 100_000


@pytest.mark.parametrize("numbers", [NUMBERS, json.dump_text(NUMBERS)], ids=["list", "string"])
def test_arguments_with_too_many_errors_get_a_single_violation(numbers: JsonValue) -> None:
    schema: JsonObject = {"type": "array", "items": {"type": "integer"}}
    tool = Tool("add", {"properties": {"numbers": schema}}, b"")
    checked = check(tool, json.dump_text({"numbers": numbers}))
    assert isinstance(checked, InvalidArguments)
    assert checked.value == {"numbers": numbers}
    assert [violation.expected.partition(":")[0] for violation in checked.violations] == [
        "expected less at once"
    ]


INSTANCES = st.fixed_dictionaries(
    {"city": st.text() | st.integers(-5, 5)},
    optional={
        "unit": st.sampled_from(["c", "F", None]),
        "days": st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        "inner": st.booleans() | st.lists(st.integers() | st.just("2")),
        "more": st.none(),
    },
)


@settings(deadline=None)
@given(INSTANCES)
def test_valid_arguments_are_unchanged_and_accepted_results_fit_the_schema(
    instance: JsonObject,
) -> None:
    text = json.dump_text(instance)
    judge = Draft202012Validator(PARAMETERS)
    match check(WEATHER, text):
        case ValidArguments(result, value, facts):
            assert json.parse(result) == value
            assert judge.is_valid(value)
            assert (result == text and not facts) == judge.is_valid(instance)
        case InvalidArguments(value, violations):
            assert violations
            assert not judge.is_valid(value)
        case BrokenArguments():
            pytest.fail("an object is not broken")


@settings(deadline=None)
@given(st.text(st.sampled_from("{}[]\"':, \\n0eNaul")) | st.text())
def test_any_text_is_checked_without_an_error(text: str) -> None:
    checked = check(WEATHER, text, may_close=True)
    assert isinstance(checked, ValidArguments | BrokenArguments | InvalidArguments)


OPTIONAL: JsonObject = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
}


@pytest.mark.parametrize(
    ("arguments", "value"),
    [('{"params": {"a": 1, "b": "x"}}', {"a": 1, "b": "x"}), ('{"input": {"a": "1"}}', {"a": 1})],
)
def test_arguments_inside_an_undeclared_parameter_are_unwrapped(
    arguments: str, value: JsonObject
) -> None:
    checked = check(Tool("t", OPTIONAL, b""), arguments)
    assert isinstance(checked, ValidArguments)
    assert checked.value == value
    assert Coerced("t", "") in checked.facts


@pytest.mark.parametrize(
    ("keywords", "arguments"),
    [
        ({}, {"params": {"a": 1, "c": 2}}),
        ({}, {"params": {}}),
        ({}, {"params": [1]}),
        ({}, {"params": {"a": 1}, "b": "x"}),
        ({}, {"params": {"a": "many"}}),
        ({"additionalProperties": True}, {"params": {"a": 1}}),
        ({"additionalProperties": {}}, {"params": {"a": 1}}),
        ({"patternProperties": {"^p": {}}}, {"params": {"a": 1}}),
        ({"properties": {"params": {}}}, {"params": {"a": 1}}),
        ({"properties": None}, {"params": {"a": 1}}),
    ],
)
def test_nested_arguments_that_the_schema_may_intend_are_not_unwrapped(
    keywords: JsonObject, arguments: JsonObject
) -> None:
    checked = check(Tool("t", {**OPTIONAL, **keywords}, b""), arguments)
    assert not isinstance(checked, BrokenArguments)
    assert checked.value == arguments


CITY: JsonSchema = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        # a valid answer is unchanged
        ('{"city": "Paris"}', ValidAnswer('{"city": "Paris"}')),
        (' {"city":"Paris"}\n', ValidAnswer(' {"city":"Paris"}\n')),
        ('{"city": "```"}', ValidAnswer('{"city": "```"}')),
        # a fence around the answer is removed
        (
            '```json\n{"city": "Paris"}\n```',
            ValidAnswer('{"city": "Paris"}', (Dropped("code_fence"),)),
        ),
        ('```\n{"city": "Paris"}```', ValidAnswer('{"city": "Paris"}', (Dropped("code_fence"),))),
        (
            ' ```JSON\n\n{"city": "Paris"}\n\n``` ',
            ValidAnswer('{"city": "Paris"}', (Dropped("code_fence"),)),
        ),
    ],
)
def test_a_valid_structured_answer_is_accepted(text: str, answer: ValidAnswer) -> None:
    assert check_answer(text, CITY) == answer


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("It is Paris.", "it is not valid JSON: "),
        ("", "it is not valid JSON: "),
        ('{"city": "Paris"} I hope this helps.', "it is not valid JSON: "),
        ('```python\n{"city": "Paris"}\n```', "it is not valid JSON: "),
        ('```json\n{"city": "Paris"}', "it is not valid JSON: "),
        ("```json", "it is not valid JSON: "),
        ("{}", "/city: is required but missing"),
        ('{"city": 5}', "/city: "),
        ("[]", "the answer: "),
    ],
)
def test_an_invalid_structured_answer_is_rejected_with_its_violations(
    text: str, problem: str
) -> None:
    checked = check_answer(text, CITY)
    assert isinstance(checked, InvalidAnswer)
    assert checked.problems[0].startswith(problem)


def test_any_json_answer_is_valid_if_the_schema_cannot_be_compiled() -> None:
    checked = check_answer("[1]", {"pattern": 5})
    assert isinstance(checked, ValidAnswer)
    assert [(type(fact), checked.text) for fact in checked.facts] == [(Unchecked, "[1]")]
    assert isinstance(check_answer("one", {"pattern": 5}), InvalidAnswer)


def test_an_unknown_type_is_removed_from_the_schema_and_reported() -> None:
    schema: JsonObject = {"type": "nonsense", "minItems": 1}
    checked = check_answer("[1]", schema)
    assert isinstance(checked, ValidAnswer)
    assert [(type(fact), checked.text) for fact in checked.facts] == [(Unchecked, "[1]")]
    assert isinstance(check_answer("[]", schema), InvalidAnswer)


def test_an_answer_with_too_many_errors_gets_a_single_problem() -> None:
    checked = check_answer(f"[{'0,' * 50_000}0]", {"items": {"type": "string"}})
    assert isinstance(checked, InvalidAnswer)
    (problem,) = checked.problems
    assert problem.startswith("the answer: expected less at once")


def test_too_many_members_are_rejected_before_parsing() -> None:
    tool = Tool("f", {"type": "object"}, b"{}")
    members = ",".join(f'"a{number}":1' for number in range(100_001))
    checked = check(tool, f"{{{members}}}")
    assert isinstance(checked, BrokenArguments)
    assert "more than 100,000 members" in checked.problem


NUMBER: JsonObject = {"type": "number"}


@pytest.mark.parametrize(
    ("schema", "arguments", "converted"),
    [
        (DAYS, "81.0", "81"),
        (DAYS, "1e3", "1000"),
        ({"type": ["integer", "null"]}, "3.0", "3"),
        ({"anyOf": [DAYS, {"type": "string"}]}, "3.0", "3"),
        ({"type": "array", "items": DAYS}, "[1.0, 2]", "[1,2]"),
        (NUMBER, "81.0", ""),
        ({"anyOf": [DAYS, NUMBER]}, "81.0", ""),
        ({}, "81.0", ""),
        (DAYS, "1e300", ""),
        ({**NUMBER, "default": None}, "null", ""),
        ({**NUMBER, "description": "The modulus. Default is None."}, "null", ""),
        ({**DAYS, "description": "Defaults to `null`"}, "null", ""),
        ({**NUMBER, "description": "None by default in 2024"}, "null", "{}"),
    ],
)
def test_numbers_and_nulls_in_arguments_are_converted_to_the_type_of_the_schema(
    schema: JsonSchema, arguments: str, converted: str
) -> None:
    text = f'{{"a": {arguments}}}'
    expected = {"": text, "{}": "{}"}.get(converted, f'{{"a":{converted}}}')
    checked = check(Tool("f", {"type": "object", "properties": {"a": schema}}, b"{}"), text)
    assert isinstance(checked, ValidArguments)
    assert (checked.text, bool(checked.facts)) == (expected, expected != text)


@pytest.mark.parametrize(
    "arguments",
    [
        '{"a": "say "hi"}',
        '{"a": ""x"}',
        '{"a": "x""}',
        '{"a": "say ""hi"" now"}',
        '{"a": "x" y"}',
        '{"a": ", "b": x"}',
        '{"a": "x, "b": "}',
        '{"a": “x"}',
        """{"a": "x'}""",
    ],
)
def test_ambiguous_quotation_marks_are_not_repaired(arguments: str) -> None:
    assert isinstance(check(Tool("t", {}, b"{}"), arguments), BrokenArguments)


MEMBERS: JsonObject = {
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
    ("schema", "accepts_any"),
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
def test_a_member_accepts_any_string_only_if_every_string_fits_its_schema(
    schema: JsonValue, accepts_any: bool
) -> None:
    assert Members({"properties": {"a": schema}}).accepts_any_string("a") is accepts_any


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
def test_no_member_is_declared_if_the_schema_checks_members_in_combination(
    schema: JsonSchema,
) -> None:
    assert not Members(schema).declares("city")
    assert Members(MEMBERS).declares("city")


@pytest.mark.parametrize(
    ("name", "value", "checked"),
    [
        ("city", "Paris", CheckedMember("Paris")),
        ("days", 3, CheckedMember(3)),
        ("days", "3", CheckedMember(3, is_changed=True)),
        ("days", 3.0, CheckedMember(3, is_changed=True)),
        ("city", {"a": {"b": 1}}, CheckedMember('{"a":{"b":1}}', is_changed=True)),
        ("unit", "C", CheckedMember("c", is_changed=True)),
        ("near", {"x": "1.5"}, CheckedMember({"x": 1.5}, is_changed=True)),
        ("days", {"days": 3}, CheckedMember(3, is_changed=True)),
        ("days", "three", None),
        ("unit", "kelvin", None),
        ("near", {"x": "east"}, None),
    ],
)
def test_a_single_member_is_checked_like_in_the_complete_arguments(
    name: str, value: JsonValue, checked: CheckedMember | None
) -> None:
    assert Members(MEMBERS).check(name, value) == checked


@pytest.mark.parametrize("name", ["a b", "\N{LATIN SMALL LETTER E WITH ACUTE}", "#", "%"])
def test_a_valid_member_with_any_name_is_unchanged(name: str) -> None:
    members = Members({"type": "object", "properties": {name: {"type": "number"}}})
    assert members.check(name, 1e5) == CheckedMember(1e5)


def test_a_null_member_that_coercion_would_drop_is_not_checked_alone() -> None:
    optional: JsonObject = {"properties": {"days": {"type": "integer"}}}
    assert Members(optional).check("days", None) is None


def test_a_single_member_is_not_checked_if_the_schema_cannot_be_compiled() -> None:
    broken: JsonObject = {"properties": {"a": {"type": "string", "pattern": 5}}}
    assert Members(broken).check("a", "text") is None
    boolean: JsonObject = {"properties": {"a": True}}
    assert Members(boolean).check("a", [1]) == CheckedMember([1])
