import pytest

from proxy.context.budget import Budget
from proxy.context.overflow import check_size
from proxy.errors import ContextOverflow

BUDGET = Budget(8_192, 2_336)


def test_what_fits_passes() -> None:
    check_size(BUDGET.room, 20_000, BUDGET)


def test_what_does_not_fit_is_refused_with_all_numbers() -> None:
    with pytest.raises(ContextOverflow) as caught:
        check_size(BUDGET.room + 1, 20_000, BUDGET)
    assert (caught.value.prompt_tokens, caught.value.window) == (20_000, 8_192)
    assert all(number in str(caught.value) for number in ("8192", "20000", "5857", "2336"))
