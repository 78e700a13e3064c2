from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator, FancyRegexOptions

from proxy import bounds
from proxy.conversation.json import JsonValue
from proxy.guardrails.schemas.patterns import (
    UnreadablePattern,
    choose_patterns,
    estimate,
)
from tests.fakes.arrivals import is_linear

# fmt: off
ATOMS = [
    "a", "é", "😀", "[a-z]", "[a-z0-9_-]", r"\d", r"\w", r"\s", r"\S", r"\D", r"\W", ".", r"[\s\S]",
    "[^<>]", r"[^\s]", "[éà-ü]", r"[\u00a1-\uffff]", r"\p{L}", r"\P{L}", r"\pL", r"[\p{L}\p{N}_]",
    r"[\w\s.,]", "(?i:k)", "(?i:[a-z])", "()", r"\b", "[]a]", r"\x41", r"\.", "{", "{}", "{,}",
]
REPEATS = ["", "*", "+", "?", "{3}", "{2,}", "{1,50}", "{0,7}?", "*?", "{4}{5}"]
# fmt: on
PIECES: st.SearchStrategy[str] = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: (
        st.builds("(?:{}){}".format, inner, st.sampled_from(REPEATS))
        | st.builds("({}|{})".format, inner, inner)
        | st.builds("{}{}".format, inner, inner)
        | st.builds("(?={}){}".format, inner, inner)
    ),
    max_leaves=8,
)


def compiles(pattern: str, limit: int | None = None) -> bool:
    options = FancyRegexOptions(size_limit=limit)
    try:
        Draft202012Validator({"pattern": pattern}, pattern_options=options)
    except ValueError:
        return False
    return True


@settings(deadline=None)
@given(PIECES)
@example("(?:(?:[a-z]{1,50}){1,50}){1,4}")
@example(r"(?=\w{1,20})(?!\W{1,20})")
@example("(?i)[a-zé]{30}")
def test_a_pattern_compiles_within_its_estimated_memory(pattern: str) -> None:
    cost = estimate(pattern)
    if cost.size <= bounds.PATTERN_SIZE and compiles(pattern):
        assert compiles(pattern, cost.memory_limit)


@pytest.mark.parametrize(
    "pattern",
    [
        r"^((a{1,50}){1,50}){1,40}xK$",
        r"^(a{1,1000}){1,100}$",
        r"^((((a{1,9}){1,9}){1,9}){1,9}){1,9}$",
        r"(a|b|ab){1,20000}",
        r"\p{L}{1,500}",
        r"(?i)\p{L}{1,500}",
        r"[^a]{5000}",
        r"\d" * 1_000,  # each `\d` is translated in a separate pass
        r"\cA" * 1_365,
        r"\p{L}" * 500,
        "(){1000000}",
        "((((){1000}){1000}){1000}){1000}",
        "(?=(a{1,1000}){1,100})",
        "(?:(?:(?:(?=a)|){1000}){1000}){1000}",
        "(?=a)" * 800,
        r"(?=b)\w{1,60}",  # in a pattern with a lookahead, `\w` matches all of Unicode
        r"a{999999999}",
    ],
)
def test_a_pattern_whose_repeats_expand_too_far_is_too_large(pattern: str) -> None:
    assert estimate(pattern).size > bounds.PATTERN_SIZE


@pytest.mark.parametrize(
    ("pattern", "backtracks"),
    [
        ("^a+$", False),
        (r"(?P<year>\d{4})-(?<month>\d\d)", False),
        ("(?i)a(?s:.)(?-u:b)", False),
        (r"\p{Lu}\u{41}\cA\[\(", False),
        ("(?=a)b", True),
        ("(?!a)b", True),
        ("(?<=a)b", True),
        ("(?<!a)b", True),
        ("(?>a+)b", True),
        (r"(a)\1", True),
        (r"(?<x>a)\k<x>", True),
        ("a++b", True),
        ("a{2,3}+b", True),
    ],
)
def test_backtracking_patterns_are_detected(*, pattern: str, backtracks: bool) -> None:
    assert (estimate(pattern).steps_per_try > 0) == backtracks


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "(",
            ")",
            "(a",
            "a)",
            "[a",
            "a\\",
            "(?x)a # b",
            "(?x:a)",
            "(?#a)",
            "(?(1)a|b)",
            "(*FAIL)",
        ),
        *("a{1234567890}", "a{1,1234567890}"),
    ],
)
def test_patterns_whose_syntax_depends_on_the_dialect_are_not_estimated(pattern: str) -> None:
    with pytest.raises(UnreadablePattern):
        estimate(pattern)


def test_braces_without_numbers_are_literal_text() -> None:
    assert estimate("a{}").steps == 3
    assert estimate("a{x}").steps == 4


@pytest.mark.deep
@pytest.mark.parametrize("piece", ["(", "a|", "[a", "a{1,9}", r"\d", "(?:a)*", "{", "(?=a)", "\\"])
def test_estimating_a_pattern_takes_linear_time(piece: str) -> None:
    def measure(text: str) -> None:
        with suppress(UnreadablePattern):
            estimate(text)

    assert is_linear(measure, lambda count: piece * count, 5_000)


LARGE = "^((a{1,50}){1,50}){1,40}xK$"


def with_patterns(*patterns: str) -> JsonValue:
    return {"allOf": [{"pattern": pattern} for pattern in patterns]}


def test_a_pattern_is_compiled_unless_it_is_too_large_or_invalid() -> None:
    choice = choose_patterns(with_patterns("^a+$", LARGE, "(", r"a\p{Nothing}"))
    assert [*choice.costs] == ["^a+$"]
    assert choice.refused.keys() == {LARGE, "(", r"a\p{Nothing}"}
    assert choose_patterns(with_patterns("^a+$")).problem == ""


def test_the_reported_problem_names_a_skipped_pattern_and_the_reason() -> None:
    problem = choose_patterns(with_patterns("^a+$", LARGE)).problem
    assert problem == f'the pattern "{LARGE}" is not checked: ' + (
        "it is too large after its repeats are expanded"
    )
    others = choose_patterns(with_patterns(LARGE, "(" * 60, "[")).problem
    assert "(and 2 more) is not checked: " in others
    assert len(choose_patterns(with_patterns("(" * 60)).problem) < 140


@pytest.mark.parametrize("length", [bounds.PATTERN_CHARACTERS, 100_000])
def test_a_pattern_that_is_too_long_is_not_estimated(length: int) -> None:
    choice = choose_patterns(with_patterns("a" * (length + 1)))
    assert "4,096 characters" in choice.problem
    assert not choice.costs


@pytest.mark.parametrize(
    "patterns",
    [
        [f"^a{number}$" for number in range(2_000)],  # many small patterns
        [f"[a-z]{{1,{5_000 - number}}}" for number in range(50)],
        [f"x{number}" + r"\p{L}" * 20 for number in range(50)],
        [f"(?=a)(?!b)c{number}" for number in range(2_000)],
        [f"((({number}" + "a" * 4_000 for number in range(100)],  # patterns that cannot be parsed
    ],
)
def test_the_patterns_of_a_schema_share_one_budget(patterns: list[str]) -> None:
    choice = choose_patterns(with_patterns(*patterns))
    assert len(choice.costs) + len(choice.refused) == len(patterns)
    assert "the patterns of the schema are too large in total" in choice.refused.values()
    assert sum(cost.size for cost in choice.costs.values()) <= bounds.PATTERNS_SIZE


def test_equal_patterns_count_once_in_the_budget() -> None:
    choice = choose_patterns(with_patterns(*["^[0-9a-f]{8}$"] * 10_000))
    assert not choice.refused
