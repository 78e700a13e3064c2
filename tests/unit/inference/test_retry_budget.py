from contextlib import ExitStack, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.inference.retry_budget import RetryBudget, RetryTicket


def tickets(stack: ExitStack, budget: RetryBudget, count: int) -> list[RetryTicket]:
    return [stack.enter_context(budget.request()) for _ in range(count)]


@pytest.mark.parametrize(
    ("live", "allowed"), [(1, 1), (3, 3), (10, 3), (15, 3), (20, 2), (50, 5), (100, 10), (1000, 10)]
)
def test_the_number_of_allowed_retries_depends_on_the_number_of_live_requests(
    live: int, allowed: int
) -> None:
    with ExitStack() as stack:
        live_tickets = tickets(stack, RetryBudget(), live)
        assert sum(ticket.may_retry() for ticket in live_tickets) == allowed


def test_retries_under_load_are_at_most_a_fifth_of_the_requests() -> None:
    budget, further = RetryBudget(), 0
    with ExitStack() as stack:
        tickets(stack, budget, 50)
        for _ in range(1000):
            with budget.request() as ticket:
                further += ticket.may_retry() + ticket.may_retry()
    assert further == (50 + 1000) / 5


def test_unused_retries_are_saved_for_later_but_at_most_ten() -> None:
    budget = RetryBudget()
    with ExitStack() as stack:
        tickets(stack, budget, 1000)
    with ExitStack() as stack:
        assert sum(ticket.may_retry() for ticket in tickets(stack, budget, 100)) == 10


def test_a_request_that_was_granted_one_retry_is_also_granted_a_second() -> None:
    with ExitStack() as stack:
        budget = RetryBudget(floor=1)
        first, second = tickets(stack, budget, 2)
        assert [first.may_retry(), first.may_retry(), second.may_retry()] == [True, True, False]


def test_a_request_that_fails_returns_its_retry_to_the_budget() -> None:
    budget = RetryBudget(floor=1)
    with suppress(RuntimeError), budget.request() as ticket:
        assert ticket.may_retry()
        raise RuntimeError
    with budget.request() as ticket:
        assert ticket.may_retry()


@given(st.lists(st.integers(min_value=0, max_value=19), max_size=200))
def test_in_any_order_of_requests_retries_stay_within_the_budget_and_return_to_it(
    steps: list[int],
) -> None:
    budget = RetryBudget()
    requests = retries = 0
    open_requests: list[tuple[ExitStack, RetryTicket]] = []
    for step in steps:
        if step < 15 or not open_requests:
            stack = ExitStack()
            ticket = stack.enter_context(budget.request())
            before = sum(ticket.is_retrying for _, ticket in open_requests)
            may_retry = ticket.may_retry()
            if len(open_requests) < 15:
                assert may_retry is (before < 3)
            requests += 1
            retries += may_retry and len(open_requests) >= 15
            assert retries * 2 <= requests / 5
            open_requests.append((stack, ticket))
        else:
            open_requests.pop(step % len(open_requests))[0].close()
    for stack, _ in open_requests:
        stack.close()
    with ExitStack() as stack:
        assert sum(ticket.may_retry() for ticket in tickets(stack, budget, 10)) == 3
