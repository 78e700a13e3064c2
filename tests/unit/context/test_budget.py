import pytest

from proxy.context.budget import LEAST_ANSWER, NUDGES, BudgetMode, TokenBudget, Window, check_size
from proxy.errors import ContextOverflow


@pytest.mark.parametrize(
    ("max_tokens", "answer"),
    [(None, 2_048), (0, 2_048), (1_000, 1_000), (4_096, 4_096), (9_000, 4_096)],
)
def test_max_tokens_are_reserved_up_to_half_of_the_window(
    max_tokens: int | None, answer: int
) -> None:
    budget = Window(8_192).budget(max_tokens)
    assert budget == TokenBudget(8_192, answer + NUDGES)
    assert budget.room == 8_192 - answer - 288


def test_a_window_smaller_than_the_answer_reserve_has_no_room_for_a_prompt() -> None:
    assert Window(256).budget(None).room == 0


@pytest.mark.parametrize(
    ("mode", "limit", "size"),
    [
        ("backend", 100, 8_192),
        ("manual", 4_000, 4_000),
        ("manual", 9_000, 8_192),
        ("manual", None, 8_192),
        ("full", 6_000, 6_000),
        ("full", None, 8_192),
        ("fast", 3_000, 3_000),
        ("fast", 6_000, 4_096),
        ("fast", None, 4_096),
    ],
)
def test_the_window_size_depends_on_the_mode_and_the_configured_limit(
    mode: BudgetMode, limit: int | None, size: int
) -> None:
    assert Window(8_192, mode, limit).size == size
    assert Window(8_192, mode, limit).budget(100).window == size


def test_a_count_error_above_one_reduces_the_room_for_the_prompt() -> None:
    exact, inexact = Window(8_192).budget(1_000), Window(8_192, count_error=1.1).budget(1_000)
    assert inexact.room == int(exact.room / 1.1)
    assert exact.most == 8_192 - 64
    assert inexact.most == int((8_192 - 64) / 1.1)
    assert inexact.window == 8_192


BUDGET = TokenBudget(8_192, 2_336)
MOST = BUDGET.window - LEAST_ANSWER


@pytest.mark.parametrize("size", [BUDGET.room, BUDGET.room + 1, MOST])
def test_check_size_accepts_a_prompt_that_leaves_room_for_an_answer(size: int) -> None:
    check_size(size, 20_000, BUDGET)


def test_a_prompt_over_the_limit_raises_context_overflow() -> None:
    with pytest.raises(ContextOverflow) as caught:
        check_size(MOST + 1, 20_000, BUDGET)
    assert (caught.value.prompt_tokens, caught.value.window) == (20_000, 8_192)
    assert all(number in str(caught.value) for number in ("8192", "20000", str(MOST + 1)))
