from contextlib import ExitStack, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.inference.budget import RetryBudget, Ticket


def tickets(stack: ExitStack, budget: RetryBudget, count: int) -> list[Ticket]:
    return [stack.enter_context(budget.request()) for _ in range(count)]


@pytest.mark.parametrize(
    ("live", "allowed"), [(1, 1), (3, 3), (10, 3), (19, 3), (20, 4), (100, 20)]
)
def test_a_fifth_of_the_live_requests_may_retry_and_never_fewer_than_three(
    live: int, allowed: int
) -> None:
    with ExitStack() as stack:
        asked = tickets(stack, RetryBudget(), live)
        assert sum(ticket.may_retry() for ticket in asked) == allowed


def test_a_request_that_may_retry_may_do_so_again() -> None:
    with ExitStack() as stack:
        budget = RetryBudget(floor=1)
        first, second = tickets(stack, budget, 2)
        assert [first.may_retry(), first.may_retry(), second.may_retry()] == [True, True, False]


def test_what_a_request_took_comes_back_when_it_ends_however_it_ends() -> None:
    budget = RetryBudget(floor=1)
    with suppress(RuntimeError), budget.request() as ticket:
        assert ticket.may_retry()
        raise RuntimeError
    with budget.request() as ticket:
        assert ticket.may_retry()


@given(st.lists(st.integers(min_value=0, max_value=30), max_size=200))
def test_the_budget_is_never_exceeded_nor_leaked(steps: list[int]) -> None:
    budget = RetryBudget()
    open_requests: list[tuple[ExitStack, Ticket]] = []
    for step in steps:
        if step < 15 or not open_requests:
            stack = ExitStack()
            ticket = stack.enter_context(budget.request())
            before = sum(one.is_retrying for _, one in open_requests)
            limit = max(3, (len(open_requests) + 1) // 5)
            assert ticket.may_retry() is (before < limit)
            open_requests.append((stack, ticket))
        else:
            open_requests.pop(step % len(open_requests))[0].close()
    for stack, _ in open_requests:
        stack.close()
    with ExitStack() as stack:
        assert sum(ticket.may_retry() for ticket in tickets(stack, budget, 10)) == 3
