import pytest

from proxy import bounds
from proxy.conversation.json import JsonValue
from proxy.guardrails.schemas.pattern_choice import choose_patterns, memory_limit

LARGE = "^((a{1,50}){1,50}){1,40}xK$"


def with_patterns(*patterns: str) -> JsonValue:
    return {"allOf": [{"pattern": pattern} for pattern in patterns]}


def test_a_pattern_is_compiled_unless_it_is_too_large_or_none() -> None:
    choice = choose_patterns(with_patterns("^a+$", LARGE, "(", r"a\p{Nothing}"))
    assert [*choice.costs] == ["^a+$"]
    assert choice.refused.keys() == {LARGE, "(", r"a\p{Nothing}"}
    assert choose_patterns(with_patterns("^a+$")).problem == ""


def test_the_problem_names_a_pattern_and_the_reason() -> None:
    problem = choose_patterns(with_patterns("^a+$", LARGE)).problem
    assert problem == f'the pattern "{LARGE}" is not checked: ' + (
        "it is too large when its repeats are written out"
    )
    others = choose_patterns(with_patterns(LARGE, "(" * 60, "[")).problem
    assert "is not checked, nor are others (2): " in others
    assert len(choose_patterns(with_patterns("(" * 60)).problem) < 140


@pytest.mark.parametrize("length", [bounds.PATTERN_CHARACTERS, 100_000])
def test_a_long_pattern_is_not_even_estimated(length: int) -> None:
    choice = choose_patterns(with_patterns("a" * (length + 1)))
    assert "4,096 characters" in choice.problem
    assert not choice.costs


@pytest.mark.parametrize(
    "patterns",
    [
        [f"^a{number}$" for number in range(2_000)],  # many small ones
        [f"[a-z]{{1,{5_000 - number}}}" for number in range(50)],
        [f"x{number}" + r"\p{L}" * 20 for number in range(50)],
        [f"(?=a)(?!b)c{number}" for number in range(2_000)],
        [f"((({number}" + "a" * 4_000 for number in range(100)],  # all of them unreadable
    ],
)
def test_the_patterns_of_a_schema_have_one_budget(patterns: list[str]) -> None:
    choice = choose_patterns(with_patterns(*patterns))
    assert len(choice.costs) + len(choice.refused) == len(patterns)
    assert "the patterns of the schema are too large together" in choice.refused.values()
    assert sum(cost.size for cost in choice.costs.values()) <= bounds.PATTERNS_SIZE


def test_a_pattern_that_occurs_often_counts_once() -> None:
    choice = choose_patterns(with_patterns(*["^[0-9a-f]{8}$"] * 10_000))
    assert not choice.refused


def test_the_memory_limit_is_that_of_the_largest() -> None:
    costs = choose_patterns(with_patterns("a", "[a-z]{1,900}")).costs
    assert memory_limit(costs) == costs["[a-z]{1,900}"].memory_limit
    assert memory_limit({}) > 0
