import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context.calibration import MARGIN, Constants, Rate

TOOLS = 7


def test_at_first_a_token_is_taken_for_three_bytes() -> None:
    assert 1_000 <= Rate().tokens(3_000, 1) <= 1_060


@given(st.floats(1.1, 7.5))
def test_a_rate_is_learnt_in_steps_and_errs_on_the_safe_side(bytes_per_token: float) -> None:
    rate = Rate()
    tokens = int(100_000 / bytes_per_token)
    rate.observe(100_000, tokens)
    assert tokens <= rate.tokens(100_000) <= 1.17 * tokens


def test_a_rate_holds_still_for_small_differences() -> None:
    rate = Rate()
    rate.observe(40_000, 10_000)
    learnt = rate.tokens(10_000)
    rate.observe(40_000, 10_300)
    assert rate.tokens(10_000) == learnt
    rate.observe(40_000, 11_500)
    assert rate.tokens(10_000) > learnt


@pytest.mark.parametrize(("size", "tokens"), [(999, 100), (40_000, 0), (40_000, -5)])
def test_a_rate_learns_nothing_of_too_little(size: int, tokens: int) -> None:
    rate = Rate()
    rate.observe(size, tokens)
    assert rate == Rate()


@pytest.mark.parametrize(("tokens", "expected"), [(1, 1_418), (10**6, 11_000)])
def test_a_rate_stays_plausible(tokens: int, expected: int) -> None:
    rate = Rate()
    rate.observe(10_000, tokens)
    assert rate.tokens(10_000, MARGIN) == pytest.approx(expected, rel=0.02)


def test_a_prompt_tells_what_stands_around_messages() -> None:
    constants = Constants()
    assert constants.fixed(TOOLS) is None
    constants.observe(TOOLS, 2, 312, 1_000)
    assert constants.fixed(TOOLS) == 300
    assert constants.fixed(TOOLS + 1) is None


def test_two_prompts_of_different_lengths_tell_the_overhead() -> None:
    constants = Constants()
    for count in (2, 9):
        constants.observe(TOOLS, count, 300 + 9 * count, 10_000)
    assert constants.overhead == 6
    constants.observe(TOOLS, 10, 300 + 9 * 10, 10_000)
    assert constants.overhead == 9
    assert constants.fixed(TOOLS) == 300


def test_an_overhead_is_revised_only_by_twice_as_much_evidence() -> None:
    constants = Constants()
    for count in (2, 12):
        constants.observe(TOOLS, count, 9 * count, 10_000)
    constants.observe(TOOLS, 21, 12 * 21, 10_000)
    assert constants.overhead == 9
    constants.observe(TOOLS, 22, 12 * 22, 10_000)
    assert constants.overhead == 12


def test_a_clear_error_is_put_right_at_once() -> None:
    constants = Constants()
    constants.observe(TOOLS, 2, 312, 1_000)
    constants.observe(TOOLS, 3, 338, 1_000)
    assert constants.fixed(TOOLS) == 300
    constants.observe(TOOLS, 3, 418, 1_000)
    assert constants.fixed(TOOLS) == 400


def test_nothing_costs_less_than_nothing() -> None:
    constants = Constants()
    constants.observe(TOOLS, 50, 10, 1_000)
    assert constants.fixed(TOOLS) == 0
    constants.observe(TOOLS, 60, 0, 1_000)
    assert constants.overhead == 0


def test_only_so_many_sets_of_tools_are_remembered() -> None:
    constants = Constants()
    for tools in range(65):
        constants.observe(tools, 2, 312, 1_000)
    assert constants.fixed(0) is None
    assert constants.fixed(1) == constants.fixed(64) == 300
