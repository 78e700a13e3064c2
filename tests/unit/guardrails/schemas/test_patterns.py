from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator, FancyRegexOptions

from proxy import bounds
from proxy.guardrails.schemas.patterns import UnreadablePattern, estimate
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
def test_an_estimate_is_never_too_low(pattern: str) -> None:
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
        r"\d" * 1_000,  # the translation of each is another pass
        r"\cA" * 1_365,
        r"\p{L}" * 500,
        "(){1000000}",
        "((((){1000}){1000}){1000}){1000}",
        "(?=(a{1,1000}){1,100})",
        "(?:(?:(?:(?=a)|){1000}){1000}){1000}",
        "(?=a)" * 800,
        r"(?=b)\w{1,60}",  # of all of Unicode beside a lookahead
        r"a{999999999}",
    ],
)
def test_what_an_engine_would_write_out_is_too_large(pattern: str) -> None:
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
def test_what_backtracks_is_known(*, pattern: str, backtracks: bool) -> None:
    assert estimate(pattern).backtracks == backtracks


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
def test_what_others_may_read_differently_is_not_estimated(pattern: str) -> None:
    with pytest.raises(UnreadablePattern):
        estimate(pattern)


def test_a_text_in_braces_is_no_repeat() -> None:
    assert estimate("a{}").states == 3
    assert estimate("a{x}").states == 4


def test_states_are_those_of_all_copies() -> None:
    assert estimate("a").states == 1
    assert estimate("a{10}").states == 20
    assert estimate("(?:ab){10}").states == 40
    assert estimate("").states == 1


@pytest.mark.parametrize("piece", ["(", "a|", "[a", "a{1,9}", r"\d", "(?:a)*", "{", "(?=a)", "\\"])
def test_an_estimate_is_linear(piece: str) -> None:
    def measure(text: str) -> None:
        with suppress(UnreadablePattern):
            estimate(text)

    assert is_linear(measure, lambda count: piece * count, 5_000)
