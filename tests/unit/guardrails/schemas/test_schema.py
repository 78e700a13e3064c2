from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from proxy import bounds
from proxy.conversation.json import JsonObject, JsonValue
from proxy.guardrails.schemas.schema import (
    TooLargeToExplain,
    TooLongToMatch,
    UnusableSchema,
    compile_schema,
    pointer,
    prepare_checks,
)
from proxy.guardrails.schemas.workload import ListingBudget
from tests.fakes.arrivals import is_linear

SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["a", "b", "1", "true"])
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
    ),
    max_leaves=6,
)
SCHEMAS: list[JsonObject] = [
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"enum": ["a", 1]}}, "additionalProperties": False},
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]},
    {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"const": "a"}}},
    {"properties": {"a": {"$ref": "#"}}, "maxProperties": 1, "type": "object"},
    {"oneOf": [{"type": "number"}, {"type": "integer"}, {"type": "null"}]},
]


@settings(deadline=None)
@given(st.sampled_from(SCHEMAS), VALUES)
def test_validation_agrees_with_the_validator_of_the_package_jsonschema(
    schema: JsonObject, value: JsonValue
) -> None:
    ours = compile_schema(schema)
    assert ours.is_valid(value) == Draft202012Validator(schema).is_valid(value)
    assert ours.is_valid(value) == (not list(ours.errors(value)))


@pytest.mark.parametrize("unknown", ["float", "str", "", "any", 5, None, ["string", "float"], [1]])
def test_an_unknown_type_is_ignored_and_other_keywords_are_checked(
    unknown: JsonValue,
) -> None:
    schema = compile_schema(
        {
            "properties": {
                "a": {"type": unknown, "enum": ["x"]},
                "type": {"type": "string"},
                "b": {"anyOf": [{"type": unknown, "minimum": 1}, {"type": "null"}]},
                "c": {"const": {"type": "float"}},
            },
            "required": ["type"],
        }
    )
    assert schema.problem
    assert "\n" not in schema.problem
    assert schema.is_valid({"type": "y", "a": "x", "b": 2, "c": {"type": "float"}})
    invalid_values: list[JsonValue] = [
        {"type": 1},
        {"type": "y", "a": "z"},
        {"type": "y", "b": 0},
        {"type": "y", "c": {}},
    ]
    for invalid in invalid_values:
        assert not schema.is_valid(invalid)
    part = schema.part(("properties", "type"))
    assert part is not None
    assert not part.is_valid(1)


def test_a_schema_without_unknown_types_has_no_problem() -> None:
    assert not compile_schema({"type": ["string", "null"]}).problem


def test_a_schema_is_compiled_once_for_the_same_bytes() -> None:
    assert compile_schema({"type": "object"}) is compile_schema({"type": "object"})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "http://127.0.0.1:9/schema"},
        {"$ref": "file:///etc/hostname"},
        {"$ref": "https://json-schema.org/not-there"},
        {"$id": "http://example.com/a", "$ref": "b"},
        {"$ref": "#/nowhere"},
        {"properties": []},
        {"pattern": 5},
        {"not": {"pattern": "("}},  # ignoring this pattern would make every value invalid
        {"required": True},
    ],
)
def test_an_unusable_schema_is_reported_in_one_line(schema: JsonObject) -> None:
    with pytest.raises(UnusableSchema) as raised:
        compile_schema(schema)
    assert 0 < len(str(raised.value)) <= 200
    assert "\n" not in str(raised.value)


def test_a_schema_that_is_no_object_or_boolean_is_refused() -> None:
    no_schemas: list[JsonValue] = [None, 5, "x", []]
    for parameters in no_schemas:
        with pytest.raises(UnusableSchema, match="an object or a boolean"):
            compile_schema(parameters)  # type: ignore[arg-type]


def test_a_schema_that_is_nested_too_deeply_is_reported() -> None:
    schema: JsonObject = {}
    for _ in range(100_000):
        schema = {"not": schema}
    with pytest.raises(UnusableSchema):
        compile_schema(schema)


def test_boolean_schemas_and_unknown_keywords_are_accepted() -> None:
    assert compile_schema(True).is_valid({"a": 1})
    assert not compile_schema(False).is_valid({"a": 1})
    assert compile_schema({"x-color": 5, "format": "date"}).is_valid("no date")


def test_a_pattern_too_expensive_to_match_raises_too_long_to_match_and_can_be_removed() -> None:
    schema = compile_schema({"pattern": r"^(?=a)(a+a+)+\1b$"})
    with pytest.raises(TooLongToMatch):
        schema.is_valid("a" * 40)
    assert schema.without_patterns().is_valid("a" * 40)
    assert schema.without_patterns().problem
    assert schema.without_patterns() is schema.without_patterns()
    assert not any(schema.errors("a" * 40))
    assert not schema.is_valid("b")


LARGE = "^((a{1,50}){1,50}){1,40}xK$"
TEXT: JsonObject = {"type": "string"}


@pytest.mark.parametrize("pattern", [LARGE, "(", r"\p{L}{1,500}", "[a-z]" * 1_000])
def test_an_uncompiled_pattern_counts_as_matched_and_other_keywords_are_checked(
    pattern: str,
) -> None:
    schema = compile_schema(
        {
            "type": "object",
            "properties": {
                "a": {**TEXT, "pattern": pattern},
                "b": {**TEXT, "pattern": "^b$"},
                "c": {"type": "integer"},
            },
            "patternProperties": {pattern: {"type": "integer"}},
            "additionalProperties": False,
        }
    )
    assert "is not checked" in schema.problem
    assert schema.is_valid({"a": "x", "b": "b", "c": 1, "d": "x"})
    assert not schema.is_valid({"a": 1})
    assert not schema.is_valid({"b": "x"})
    assert not schema.is_valid({"c": "x"})


def test_a_skipped_pattern_and_an_unknown_type_are_both_reported() -> None:
    schema = compile_schema({"type": "float", "pattern": "("})
    assert "is not checked" in schema.problem
    assert "float" in schema.problem


# fmt: off
REAL: dict[str, tuple[str, str, str]] = {
    "e-mail": (r"^[\w.+-]+@[\w-]+\.[\w.-]+$", "a.b+c@example.com", "a.example.com"),
    "e-mail as in HTML": (
        r"^[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]+@[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
        r"(?:\.[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?)*$", "a@b.example", "a@b..example"),
    "date": (r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$", "2024-02-29", "2024-13-01"),
    "time": (
        r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(([+-]\d\d:\d\d)|Z)?$",
        "2024-02-29T12:00:00Z", "yesterday"),
    "semver": (
        r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
        r"(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(?:\+([0-9a-zA-Z-]+"
        r"(?:\.[0-9a-zA-Z-]+)*))?$", "1.2.3-rc.1+x", "1.2"),
    "UUID": (r"^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$",
        "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
    "URL": (r"^https?://[^\s/$.?#].[^\s]*$", "https://example.com/a?b=c", "example.com"),
    "URL with lookaheads": (
        r"^(?:(?:https?|ftp)://)(?:\S+(?::\S*)?@)?(?:(?!(?:10|127)(?:\.\d{1,3}){3})"
        r"(?:[1-9]\d?|1\d\d|2[01]\d|22[0-3])(?:\.(?:1?\d{1,2}|2[0-4]\d|25[0-5])){3}"
        r"|(?:[a-z0-9-]+\.)+[a-z]{2,})(?::\d{2,5})?(?:/\S*)?$", "http://example.com/x", "http://10.0.0.1"),
    "Windows path": (
        r'^[a-zA-Z]:\\(?:[^\\/:*?"<>|\r\n]+\\)*[^\\/:*?"<>|\r\n]*$', r"C:\a\b.txt", "/a/b"),
    "identifier": (r"^[A-Za-z_][A-Za-z0-9_]{0,63}$", "my_name", "1name"),
    "phone": (r"^\+?[1-9]\d{1,14}$", "+491701234567", "call me"),
    "phone with spaces": (
        r"^(\+\d{1,3}[- ]?)?\(?\d{3}\)?[- .]?\d{3}[- .]?\d{4}$", "(555) 123-4567", "x"),
    "IPv4": (r"^((25[0-5]|(2[0-4]|1\d|[1-9]|)\d)\.?\b){4}$", "192.168.0.1", "999.1.1.1"),
    "password": (
        r"^(?=.*[a-z])(?=.*[A-Z])(?=.*\d)[A-Za-z\d@$!%*?&]{8,64}$", "Abcdefg1", "abcdefg1"),
    "not blank": (r"^(?!\s*$).+", "text", "  "),
    "host": (r"^(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.[a-z]{2,})+$", "my-host.org", "-my.org"),
    "same separator": (r"^\d{4}([-/])\d\d\1\d\d$", "2024/01/02", "2024/01-02"),
    "no dots": (r"^(?!.*\.\.).*$", "a.b", "a..b"),
    "name in any script": (r"^\p{L}[\p{L}\p{M}' -]{0,20}$", "Zoë Müller", "42"),
    "short text": (r"^.{1,500}$", "text", ""),
    "printable": (r"^[\u0020-\uD7FF\uE000-\uFFFD\r\n\t]*$", "text", "\x01"),
    "cron": (r"^(\*|([0-5]?\d)) (\*|([01]?\d|2[0-3])) (\*|[1-9]) (\*|[1-9]) (\*|[0-6])$",
        "0 12 * * 1", "daily"),
    "Base64": (r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$", "YWJj", "a b"),
    "color": (r"^#(?:[0-9a-fA-F]{3}){1,2}$", "#a1b2c3", "red"),
}
# fmt: on


@pytest.mark.parametrize("name", REAL)
def test_common_patterns_accept_the_good_value_and_reject_the_bad_value(name: str) -> None:
    pattern, good, bad = REAL[name]
    schema = compile_schema({"properties": {"a": {"type": "string", "pattern": pattern}}})
    assert schema.problem == ""
    assert schema.is_valid({"a": good})
    assert not schema.is_valid({"a": bad})
    assert not any(schema.errors({"a": good}))


def test_the_common_patterns_fit_into_the_budget_of_one_schema() -> None:
    real = {name: case for name, case in REAL.items() if r"\p{" not in case[0]}
    properties: JsonObject = {name: {"pattern": pattern} for name, (pattern, _, _) in real.items()}
    schema = compile_schema({"properties": properties})
    assert schema.problem == ""
    assert schema.is_valid({name: good for name, (_, good, _) in real.items()})


def test_long_text_without_a_pattern_does_not_count_against_the_limit() -> None:
    pattern = {"type": "string", "pattern": r"^/[\w/.-]{1,255}$"}
    schema = compile_schema({"properties": {"path": {**pattern}, "content": {"type": "string"}}})
    assert schema.is_valid({"path": "/a/b.txt", "content": "x" * 10_000_000})
    assert not schema.is_valid({"path": "a", "content": "x" * 10_000_000})


HALF = bounds.PATTERN_STEPS // 2
# Values that take too long for these patterns, which visit 400 states per character.
LONG: dict[str, tuple[JsonObject, JsonValue]] = {
    "text": ({"pattern": "^(a|b){0,100}$"}, "a" * HALF),
    "texts": ({"items": {"pattern": "^(a|b){0,100}$"}}, ["a" * 100] * (HALF // 100)),
    "patternProperties": ({"patternProperties": {"^(a|b){0,100}$": True}}, {"a" * HALF: 1}),
    "propertyNames": ({"propertyNames": {"pattern": "^(a|b){0,100}$"}}, {"a" * HALF: 1}),
    "references": (
        {"$defs": {"x": {"pattern": "^(a|b){0,100}$"}}, "items": {"$ref": "#/$defs/x"}},
        ["a" * HALF],
    ),
    "backtracking": ({"pattern": "^(?=x)(a|b){0,100}$"}, "a" * 10_000),
    "a schema with too many sub-schemas": (
        {"anyOf": [{"minimum": number} for number in range(20_001)], "pattern": "(a|b){0,100}$"},
        "a" * HALF,
    ),
}


@pytest.mark.parametrize("kind", LONG)
def test_a_value_too_expensive_to_match_is_checked_without_patterns(kind: str) -> None:
    schema, value = LONG[kind]
    compiled = compile_schema(schema)
    with pytest.raises(TooLongToMatch):
        compiled.is_valid(value)
    with pytest.raises(TooLongToMatch):
        next(compiled.errors(value))
    assert compiled.without_patterns().is_valid(value)


def test_the_schema_is_unusable_for_a_long_value_if_its_patterns_cannot_be_removed() -> None:
    schema = compile_schema({"not": {"pattern": "^(a|b){0,100}$"}})
    assert not schema.is_valid("a")
    with pytest.raises(TooLongToMatch):
        schema.is_valid("a" * HALF)
    with pytest.raises(UnusableSchema, match="cannot be removed"):
        schema.without_patterns()


def test_a_backtracking_pattern_is_matched_against_short_values_but_not_long_values() -> None:
    schema = compile_schema({"pattern": "^(?:(?!foo).)*$"})
    for length in (10, 50, 100):
        assert schema.is_valid("x" * length)
        assert not schema.is_valid("x" * (length // 2) + "foo")
    with pytest.raises(TooLongToMatch):
        schema.is_valid("x" * 3_000)


def test_errors_listed_in_several_calls_share_one_budget() -> None:
    schema, budget = compile_schema({"pattern": "^(a|b){0,100}$"}), ListingBudget()
    text = "a" * 2_000 + "c"
    assert any(schema.errors(text, budget))
    with pytest.raises(TooLargeToExplain):
        [*chain.from_iterable(schema.errors(text, budget) for _ in range(20))]


def test_a_sub_schema_with_a_large_pattern_is_not_compiled_separately() -> None:
    large: JsonObject = {"pattern": "^.{1,900}$"}
    branches: list[JsonValue] = [{"type": "integer", "minimum": 3}, large]
    schema = compile_schema({"properties": {"a": {"anyOf": branches}, "b": {"type": "integer"}}})
    assert schema.part(("properties", "a")) is None
    part = schema.part(("properties", "b"))
    assert part is not None
    assert part.is_valid(1)
    small = compile_schema({"anyOf": [{"pattern": "a{1,100}"}, {"pattern": "b"}]})
    budget = ListingBudget()
    parts = [small.part(("anyOf", 0), budget) for _ in range(2_000)]
    assert parts[0] is not None
    assert parts[-1] is None


DEFAULTS: JsonObject = {
    "type": "object",
    "default": {},
    "properties": {
        "unit": {"enum": ["s", "ms"], "default": "N/A"},
        "year": {"type": "integer", "default": "dontcare"},
        "date": {"type": "string", "default": None},
        "list": {"type": "array", "items": {"type": "integer"}, "default": ["all"]},
        "one": {"type": "boolean", "default": 1},
        "ref": {"$ref": "#/$defs/color", "default": "any"},
        "city": {"type": "string"},
    },
    "$defs": {"color": {"enum": ["red", "green"]}},
    "required": ["city"],
}


@pytest.mark.parametrize(
    ("name", "value", "is_valid"),
    [
        ("unit", "N/A", True),
        ("unit", "N/a", False),
        ("year", "dontcare", True),
        ("year", "2019", False),
        ("date", None, True),
        ("list", ["all"], True),
        ("list", ["all", 1], False),
        ("one", 1, True),
        ("one", 2, False),
        ("ref", "any", True),
        ("ref", "blue", False),
        ("city", None, False),
    ],
)
def test_a_declared_default_is_valid(*, name: str, value: JsonValue, is_valid: bool) -> None:
    schema = compile_schema(DEFAULTS)
    arguments: JsonObject = {"city": "Paris", name: value}
    assert schema.is_valid(arguments) == is_valid
    assert any(schema.errors(arguments)) != is_valid
    part = schema.part(("properties", name))
    assert part is not None
    assert part.is_valid(value) == is_valid


def test_a_declared_default_is_valid_in_a_branch_of_a_union() -> None:
    branch: JsonObject = {"properties": {"a": {"type": "string", "default": None}}}
    schema = compile_schema({"anyOf": [branch, {"required": ["b"]}]})
    assert schema.is_valid({"a": None})
    assert not schema.is_valid({"a": 1})


def test_a_default_for_the_whole_object_does_not_make_its_members_optional() -> None:
    schema = compile_schema(DEFAULTS)
    assert not schema.is_valid({})
    assert not schema.is_valid({"unit": "N/A"})
    assert not schema.is_valid({"unit": "N/A", "year": "x", "city": "Paris"})


def test_the_defaults_of_a_schema_with_too_many_sub_schemas_are_ignored() -> None:
    branches: JsonObject = {str(number): {"type": "integer"} for number in range(20_001)}
    schema = compile_schema({"properties": branches | {"a": {"type": "string", "default": 1}}})
    assert not schema.is_valid({"a": 1})


@pytest.mark.parametrize(
    ("value", "is_valid"),
    [(["a", "b"], True), ([], True), (["a", "c"], False), ("a", False), (["a", 1], False)],
)
def test_an_enum_that_contains_no_array_applies_to_the_items_of_an_array(
    *, value: JsonValue, is_valid: bool
) -> None:
    items: JsonObject = {"type": "array", "items": {"type": "string"}, "enum": ["a", "b", 1]}
    assert compile_schema({"properties": {"x": items}}).is_valid({"x": value}) == is_valid
    assert not compile_schema({**items, "enum": ["a", ["b"]]}).is_valid(["a"])


def test_patterns_match_text_with_non_ascii_characters() -> None:
    schema = compile_schema({"items": {"pattern": "^ä$"}, "properties": {"ä": {"pattern": "^ä$"}}})
    assert schema.is_valid(["ä", 2**70])
    assert schema.is_valid({"ä": "ä", "b": [2**70]})
    assert not schema.is_valid(["b", 2**70])


def test_a_default_may_violate_its_own_pattern() -> None:
    items: JsonObject = {"properties": {"a": {"pattern": "^x$", "default": "none"}}}
    assert compile_schema(items).is_valid({"a": "none"})
    assert not compile_schema(items).is_valid({"a": "y"})


def test_the_pattern_of_many_items_is_checked() -> None:
    items = compile_schema({"items": {"pattern": "^a"}})
    assert items.is_valid(["a"] * 20_000)
    assert not items.is_valid(["b"] * 20_000)


INTEGER: JsonObject = {"type": "integer"}
NAMES: list[JsonValue] = [f"n{number}" for number in range(400)]
# Lists with many errors: the schema of the list, an invalid item, and how often it may occur before
# the errors exceed the limit.
TOO_MUCH: dict[str, tuple[JsonObject, JsonValue, int]] = {
    "items": ({"items": INTEGER}, "x", 20_000),
    "items within a member": ({"items": {"items": INTEGER}}, ["x"], 10_000),
    "members that are missing": ({"items": {"required": NAMES}}, {}, 50),
    "branches": ({"items": {"anyOf": [INTEGER] * 100}}, "x", 200),
    "options": ({"items": {"enum": NAMES}}, "x", 1_000),
}


@pytest.mark.parametrize(("schema", "item", "count"), TOO_MUCH.values(), ids=TOO_MUCH)
def test_too_many_errors_make_a_value_invalid_but_are_not_listed(
    schema: JsonObject, item: JsonValue, count: int
) -> None:
    value: list[JsonValue] = [item] * (count + 1)
    assert not compile_schema(schema).is_valid(value)
    with pytest.raises(TooLargeToExplain):
        next(compile_schema(schema).errors(value))
    assert list(compile_schema(schema).errors(value[:20]))
    assert compile_schema({}).is_valid(value)


def test_invalid_property_names_are_listed_only_in_small_objects() -> None:
    """Each error about a name contains a copy of the object."""
    schema = compile_schema({"propertyNames": {"maxLength": 1}})
    names = {f"{number}x": number for number in range(500)}
    with pytest.raises(TooLargeToExplain):
        next(schema.errors(dict(names)))
    assert len(list(schema.errors(dict(list(names.items())[:100])))) == 100
    assert list(schema.errors({"a": [0] * 50_000})) == []


def test_a_value_is_not_checked_if_branches_multiply_its_checks() -> None:
    definitions: JsonObject = {"d0": INTEGER}
    for level in range(25):
        link: JsonValue = {"$ref": f"#/$defs/d{level}"}
        definitions[f"d{level + 1}"] = {"anyOf": [link, link]}
    schema = compile_schema({"properties": {"a": {"$ref": "#/$defs/d25"}}, "$defs": definitions})
    with pytest.raises(UnusableSchema, match="too long"):
        schema.is_valid({"a": "x"})
    with pytest.raises(TooLargeToExplain):
        next(schema.errors({"a": "x"}))
    assert schema.is_valid({"b": "x"})


@pytest.mark.parametrize("schema", [{"items": INTEGER}, {"items": {"required": NAMES}}])
def test_validation_takes_time_linear_in_the_number_of_violations(schema: JsonObject) -> None:
    compiled = compile_schema(schema)
    # With more violations, the allocation of memory would dominate the measurement.
    assert is_linear(lambda text: compiled.is_valid([*text]), lambda size: "x" * size, 20_000)


def test_references_in_a_sub_schema_are_resolved_in_the_whole_schema() -> None:
    part = compile_schema(SCHEMAS[3]).part(("properties", "a"))
    assert part is not None
    assert part.is_valid("a")
    assert not part.is_valid("b")
    assert part.part(("properties", "zzz")) is None


def test_a_json_pointer_escapes_special_characters() -> None:
    assert pointer(()) == ""
    assert pointer(("a/b", 0, "~")) == "/a~1b/0/~0"


@pytest.mark.parametrize("schema", [{"$ref": "#/$defs/x"}, {"type": 5}, {"enum": [1]}])
def test_prepare_checks_raises_no_error_for_any_schema(schema: JsonObject) -> None:
    prepare_checks({**schema, "allOf": [{"minimum": number} for number in range(20_001)]})
    prepare_checks(schema)


def test_a_schema_that_is_too_long_is_not_compiled() -> None:
    with pytest.raises(UnusableSchema, match="bytes"):
        compile_schema({"title": "x" * bounds.SCHEMA_BYTES})
