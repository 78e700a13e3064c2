import pytest

from temper_evals.simulated.clock import ReplyCost, Slots, tokens_in


def test_the_seconds_of_a_reply_depend_on_uncached_and_generated_tokens() -> None:
    cost = ReplyCost(1100, 100, 60)
    assert (cost.prompt_seconds, cost.seconds) == (2.0, 4.0)
    assert [tokens_in("x" * length) for length in (0, 1, 4, 5)] == [0, 1, 1, 2]


def test_the_prefix_that_a_prompt_shares_with_an_earlier_prompt_is_cached() -> None:
    slots = Slots(2)
    assert slots.take("a" * 400) == 0
    assert slots.take("b" * 400) == 0
    assert slots.take("a" * 400 + "c" * 40) == 100
    assert slots.take("a" * 440) == 100
    assert slots.take("b" * 400) == 99  # even of a cached prompt the last token is computed


def test_a_prompt_without_a_cached_prefix_replaces_the_least_recently_used_slot() -> None:
    slots = Slots(2)
    for letter in "abc":
        slots.take(letter * 400)
    assert slots.take("a" * 400) == 0


@pytest.mark.parametrize("common", [0, 1, 199, 200])
def test_the_number_of_cached_tokens_is_the_common_prefix_in_whole_tokens(common: int) -> None:
    slots = Slots(1)
    slots.take("a" * 400)
    prompt = "a" * (4 * common) + "b" * 10
    assert slots.take(prompt) == min(common, 100)
