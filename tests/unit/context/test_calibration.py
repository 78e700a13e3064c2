import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.context.calibration import MARGIN, Constants, CountError, Growth, Rate

TOOLS = 7


def test_the_initial_rate_is_one_token_for_each_rough_token() -> None:
    assert Rate().tokens(3_000, 1) == Rate().likely(3_000) == 3_000


@given(st.floats(0.4, 2.3))
def test_a_learned_rate_overestimates_by_at_most_seventeen_percent(pieces_per_token: float) -> None:
    rate = Rate()
    tokens = int(100_000 / pieces_per_token)
    rate.observe(100_000, tokens)
    assert tokens <= rate.tokens(100_000) <= 1.17 * tokens
    assert abs(rate.likely(100_000) - tokens) <= 1


def test_small_differences_do_not_change_a_rate() -> None:
    rate = Rate()
    rate.observe(15_000, 10_000)
    learnt = rate.tokens(10_000)
    rate.observe(15_000, 10_200)
    assert rate.tokens(10_000) == learnt
    for _ in range(2):
        rate.observe(15_000, 11_500)
    assert rate.tokens(10_000) > learnt


@pytest.mark.parametrize("before", [1, 5])
def test_a_single_outlier_does_not_change_a_rate(before: int) -> None:
    """For example, a prompt with base64 says nothing about the next prompt."""
    rate = Rate()
    for _ in range(before):
        rate.observe(15_000, 10_000)
    learnt = rate.tokens(10_000)
    rate.observe(15_000, 90_000)
    rate.observe(15_000, 10_000)
    assert rate.tokens(10_000) == learnt


@pytest.mark.parametrize(("size", "tokens"), [(249, 100), (40_000, 0), (40_000, -5)])
def test_short_texts_and_impossible_token_counts_do_not_change_a_rate(
    size: int, tokens: int
) -> None:
    rate = Rate()
    rate.observe(size, tokens)
    assert rate == Rate()


@pytest.mark.parametrize(("tokens", "expected"), [(1, 4_571), (10**6, 89_600)])
def test_a_rate_from_an_extreme_measurement_is_limited(tokens: int, expected: int) -> None:
    rate = Rate()
    rate.observe(10_000, tokens)
    assert rate.tokens(10_000, MARGIN) == pytest.approx(expected, rel=0.02)


def test_new_messages_are_estimated_from_earlier_new_messages() -> None:
    growth = Growth()
    assert growth.tokens(1_000) is None
    growth.observe(2, 0, 30)
    assert growth.per_message == 15
    growth.observe(2, 400, 330)
    assert growth.tokens(1_000) == 750
    for _ in range(9):
        growth.observe(2, 400, 430)
    assert growth.tokens(1_000) == pytest.approx(1_000, abs=2)
    assert growth.per_message == 15


@pytest.mark.parametrize("tokens", [-500, 0, 20])
def test_impossible_measurements_of_growth_are_ignored_or_limited(tokens: int) -> None:
    growth = Growth(per_message=15)
    growth.observe(2, 400, tokens)
    assert growth.tokens(400) is None
    growth.observe(2, 0, -500)
    assert growth.per_message == 0
    growth.observe(2, 0, 50_000)
    assert growth.per_message == 64


def test_the_token_count_of_a_set_of_tools_is_learned_from_one_prompt() -> None:
    constants = Constants()
    assert constants.count_besides(TOOLS) is None
    constants.observe(TOOLS, 2, 312, 1_000)
    assert constants.count_besides(TOOLS) == 300
    assert constants.count_besides(TOOLS + 1) is None


def test_the_overhead_of_a_message_is_learned_from_two_prompts() -> None:
    constants = Constants()
    for count in (2, 9):
        constants.observe(TOOLS, count, 300 + 9 * count, 10_000)
    assert constants.overhead == 6
    constants.observe(TOOLS, 10, 300 + 9 * 10, 10_000)
    assert constants.overhead == 9
    assert constants.count_besides(TOOLS) == 300


def test_the_overhead_of_a_message_is_learned_again_when_twice_as_many_messages_were_added() -> (
    None
):
    constants = Constants()
    for count in (2, 12):
        constants.observe(TOOLS, count, 9 * count, 10_000)
    constants.observe(TOOLS, 21, 12 * 21, 10_000)
    assert constants.overhead == 9
    constants.observe(TOOLS, 22, 12 * 22, 10_000)
    assert constants.overhead == 12


def test_the_learned_token_count_of_tools_changes_only_after_a_large_difference() -> None:
    constants = Constants()
    constants.observe(TOOLS, 2, 312, 1_000)
    constants.observe(TOOLS, 3, 338, 1_000)
    assert constants.count_besides(TOOLS) == 300
    constants.observe(TOOLS, 3, 418, 1_000)
    assert constants.count_besides(TOOLS) == 400


def test_learned_token_counts_and_overheads_are_never_negative() -> None:
    constants = Constants()
    constants.observe(TOOLS, 50, 10, 1_000)
    assert constants.count_besides(TOOLS) == 0
    constants.observe(TOOLS, 60, 0, 1_000)
    assert constants.overhead == 0


def test_only_the_token_counts_of_the_latest_64_sets_of_tools_are_stored() -> None:
    constants = Constants()
    for tools in range(65):
        constants.observe(tools, 2, 312, 1_000)
    assert constants.count_besides(0) is None
    assert constants.count_besides(1) == constants.count_besides(64) == 300


@pytest.mark.parametrize(
    ("counted", "tokens", "most"),
    [(1_000, 900, 1), (1_000, 1_080, 1.11), (1_000, 9_999, 8.2), (0, 5, 6)],
)
def test_a_rejected_prompt_raises_the_count_error(counted: int, tokens: int, most: float) -> None:
    error = CountError()
    error.learn_refused(counted, tokens)
    assert error.factor * max(1, counted) >= min(tokens, 8 * counted)
    assert 1 <= error.factor <= most


def test_the_count_error_is_lowered_only_if_it_is_far_too_large() -> None:
    error = CountError()
    error.learn_refused(1_000, 1_500)
    first = error.factor
    error.learn_refused(1_000, 1_200)
    error.learn_served(1_000, 1_300)
    assert error.factor == first
    error.learn_served(1_000, 1_020)
    assert 1.02 <= error.factor < 1.1
