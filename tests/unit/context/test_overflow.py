import pytest

from proxy.context.budget import LEAST_ANSWER, Budget
from proxy.context.overflow import check_size
from proxy.errors import ContextOverflow

BUDGET = Budget(8_192, 2_336)
MOST = BUDGET.window - LEAST_ANSWER


@pytest.mark.parametrize("size", [BUDGET.room, BUDGET.room + 1, MOST])
def test_what_leaves_any_room_for_an_answer_passes(size: int) -> None:
    check_size(size, 20_000, BUDGET)


def test_what_does_not_fit_is_refused_with_both_numbers() -> None:
    with pytest.raises(ContextOverflow) as caught:
        check_size(MOST + 1, 20_000, BUDGET)
    assert (caught.value.prompt_tokens, caught.value.window) == (20_000, 8_192)
    assert all(number in str(caught.value) for number in ("8192", "20000", str(MOST + 1)))
