import asyncio
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import QueueFull
from proxy.serving.admission import MOST_PASSED_OVER, Admission, Priority, Ticket, WaitingQueue
from tests.timeouts import TIMEOUT_SECONDS


def join(queue: WaitingQueue, *keys: str) -> list[Ticket]:
    tickets = [queue.join(key) for key in keys]
    return [ticket for ticket in tickets if ticket is not None]


def test_requests_are_admitted_up_to_the_capacity() -> None:
    queue = WaitingQueue(capacity=2)
    tickets = join(queue, "a", "a", "a")
    assert [ticket.is_served for ticket in tickets] == [True, True, False]
    assert (queue.served, queue.waiting) == (2, 1)


def test_no_request_waits_if_the_capacity_is_unknown() -> None:
    assert all(ticket.is_served for ticket in join(WaitingQueue(), *"abcabc"))


def test_keys_are_served_in_turn_and_requests_of_a_key_in_order() -> None:
    queue = WaitingQueue(capacity=1)
    first, *waiting = join(queue, "a", "a", "a", "b", "c", "b")
    a2, a3, b1, c1, b2 = waiting
    served = []
    current = first
    while following := queue.leave(current):
        (current,) = following
        served.append(current)
    assert served == [a2, b1, c1, a3, b2]


def test_a_full_queue_refuses_requests() -> None:
    queue = WaitingQueue(most_waiting=1, capacity=1)
    assert len(join(queue, "a", "b", "c")) == 2


def test_a_canceled_ticket_is_skipped() -> None:
    queue = WaitingQueue(capacity=1)
    first, second, third = join(queue, "a", "a", "b")
    assert queue.leave(second) == []
    assert queue.leave(first) == [third]
    assert queue.leave(third) == []
    assert (queue.served, queue.waiting) == (0, 0)


def test_more_capacity_admits_waiting_requests_and_less_revokes_no_slot() -> None:
    queue = WaitingQueue(capacity=1)
    tickets = join(queue, "a", "a", "b", "b")
    assert queue.resize(3) == [tickets[1], tickets[2]]
    assert queue.resize(1) == []
    assert queue.served == 3
    assert queue.leave(tickets[0]) == queue.leave(tickets[1]) == []
    assert queue.leave(tickets[2]) == [tickets[3]]
    assert queue.resize(None) == []


@given(
    st.integers(min_value=1, max_value=4),
    st.lists(st.tuples(st.sampled_from("abcL"), st.integers(min_value=0, max_value=30))),
)
def test_requests_are_served_up_to_the_capacity_and_no_slot_is_free_while_one_waits(
    capacity: int, steps: list[tuple[str, int]]
) -> None:
    queue = WaitingQueue(most_waiting=8, capacity=capacity)
    inside: list[Ticket] = []
    for key, number in steps:
        if key != "L":
            is_full = queue.waiting == 8
            ticket = queue.join(key)
            assert (ticket is None) is is_full
            inside += [ticket] if ticket is not None else []
        elif inside:
            called = queue.leave(inside.pop(number % len(inside)))
            assert all(ticket.is_served and ticket in inside for ticket in called)
        served = [ticket for ticket in inside if ticket.is_served]
        assert queue.served == len(served) == min(capacity, len(inside))
        assert queue.waiting == len(inside) - len(served)


async def test_a_slot_is_occupied_during_the_block_and_then_given_to_the_next_request() -> None:
    admission = Admission(WaitingQueue(capacity=1))
    order: list[str] = []
    gate = asyncio.Event()

    async def ask(name: str) -> None:
        async with admission.slot(name):
            order.append(f"{name} in")
            await gate.wait()
            order.append(f"{name} out")

    async with asyncio.TaskGroup() as group:
        for name in "ab":
            group.create_task(ask(name))
        await asyncio.sleep(0)
        assert order == ["a in"]
        gate.set()
    assert order == ["a in", "a out", "b in", "b out"]


async def test_canceling_a_waiting_request_or_failing_in_the_block_frees_the_slot() -> None:
    admission = Admission(WaitingQueue(capacity=1))

    async def wait() -> None:
        async with admission.slot("b"):
            raise AssertionError

    with suppress(RuntimeError):
        async with admission.slot("a"):
            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0)
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting
            assert admission.queue.waiting == 0
            raise RuntimeError
    assert admission.queue.served == 0


async def test_a_slot_granted_to_a_canceled_request_is_given_to_the_next_request() -> None:
    admission = Admission(WaitingQueue(capacity=1))
    served: list[str] = []

    async def ask(name: str) -> None:
        async with admission.slot(name):
            served.append(name)

    async with admission.slot("a"):
        leaving, staying = (asyncio.create_task(ask(name)) for name in "bc")
        await asyncio.sleep(0)
    leaving.cancel()
    await staying
    with suppress(asyncio.CancelledError):
        await leaving
    assert served == ["c"]
    assert admission.queue.served == 0


async def test_resize_to_more_slots_admits_waiting_requests() -> None:
    admission = Admission(WaitingQueue(capacity=1))
    async with admission.slot("a"):
        waiting = asyncio.create_task(admission.slot("b").__aenter__())
        await asyncio.sleep(0)
        admission.resize(2)
        await waiting


@pytest.mark.parametrize(("seconds", "advice"), [(0.0, 1), (30.0, 4), (10_000.0, 60)])
async def test_the_error_for_a_full_queue_estimates_retry_after(
    seconds: float, advice: int
) -> None:
    now = [0.0]
    admission = Admission(WaitingQueue(most_waiting=1, capacity=1), clock=lambda: now[0])
    async with admission.slot("a"):
        now[0] += seconds
    async with admission.slot("a"):
        waiting = asyncio.create_task(admission.slot("b").__aenter__())
        await asyncio.sleep(0)
        with pytest.raises(QueueFull) as raised:
            await admission.slot("c").__aenter__()
        assert (raised.value.waiting, raised.value.retry_after) == (1, advice)
        waiting.cancel()


HIGH, NORMAL, LOW = Priority


def serve_all(queue: WaitingQueue, first: Ticket) -> list[Ticket]:
    """Let each ticket leave as soon as it is served; return the order of the later tickets."""
    served: list[Ticket] = []
    following = queue.leave(first)
    while following:
        served += following
        following = queue.leave(following[0])
    return served


def test_low_priority_requests_are_served_after_normal_and_high_priority() -> None:
    queue = WaitingQueue(capacity=1)
    (first,) = join(queue, "a")
    joined = [("b", LOW), ("c", LOW), ("d", NORMAL), ("e", HIGH), ("d", NORMAL), ("f", NORMAL)]
    tickets = [queue.join(key, priority) for key, priority in joined]
    b, c, d1, e, d2, f = tickets
    assert serve_all(queue, first) == [e, d1, f, d2, b, c]


def test_a_low_priority_request_that_was_passed_over_eight_times_is_next() -> None:
    queue = WaitingQueue(capacity=1)
    (first,) = join(queue, "a")
    low = [queue.join("background", LOW) for _ in range(2)]
    people = [queue.join(f"person {n}") for n in range(MOST_PASSED_OVER + 3)]
    order = serve_all(queue, first)
    assert order == [*people[:8], low[0], *people[8:], low[1]]
    assert MOST_PASSED_OVER == 8


def test_of_two_requests_passed_over_eight_times_the_one_of_lower_priority_is_next() -> None:
    queue = WaitingQueue(capacity=1)
    (first,) = join(queue, "a")
    low, normal = queue.join("c", LOW), queue.join("b", NORMAL)
    high = [queue.join(f"{n}", HIGH) for n in range(12)]
    assert serve_all(queue, first) == [*high[:8], low, normal, *high[8:]]


def test_low_priority_requests_do_not_count_towards_the_limit_of_other_requests() -> None:
    queue = WaitingQueue(most_waiting=2, capacity=1)
    join(queue, "a")
    assert [queue.join("b", LOW) is None for _ in range(3)] == [False, False, True]
    assert [queue.join("c", NORMAL) is None for _ in range(3)] == [False, False, True]
    assert queue.join("b", LOW) is None
    assert queue.waiting == 4


def displace(queue: WaitingQueue, key: str, priority: Priority = NORMAL) -> tuple[Ticket, Ticket]:
    """Add a request to a full queue; return its ticket and the ticket that it displaced."""
    assert queue.join(key, priority) is None
    exchange = queue.displace(key, priority)
    assert exchange is not None
    return exchange


def test_a_key_with_few_requests_displaces_the_newest_request_of_the_busiest_key() -> None:
    queue = WaitingQueue(most_waiting=4, capacity=1)
    first, *crowd = join(queue, *["flood"] * 5)
    other, displaced = displace(queue, "other")
    assert displaced is crowd[-1]
    assert displaced.is_displaced
    assert queue.leave(displaced) == []  # a displaced ticket has no slot to pass on
    assert displace(queue, "other")[1] is crowd[-2]
    assert queue.displace("other") is None  # both keys have two tickets, so a third is refused
    assert queue.displace("flood") is None
    third, displaced = displace(queue, "third")
    assert displaced is crowd[-3]  # of two keys with equally many tickets, the first key loses one
    assert queue.waiting == 4
    order = serve_all(queue, first)
    assert order.index(other) < order.index(third)


def test_a_request_displaces_a_request_of_the_same_priority() -> None:
    queue = WaitingQueue(most_waiting=2, capacity=1)
    join(queue, "a")
    normal = [queue.join("boss", NORMAL) for _ in range(2)]
    high = [queue.join("boss", HIGH) for _ in range(2)]
    assert displace(queue, "other", NORMAL)[1] is normal[-1]
    assert displace(queue, "other", HIGH)[1] is high[-1]
    assert queue.waiting == 4


def test_a_low_priority_request_displaces_only_low_priority_requests() -> None:
    queue = WaitingQueue(most_waiting=4, capacity=1)
    join(queue, *"aaa")
    low = [queue.join("batch", LOW) for _ in range(2)]
    assert displace(queue, "nightly", LOW)[1] is low[-1]
    assert queue.displace("other", LOW) is None


def test_displace_returns_none_for_an_empty_queue() -> None:
    assert WaitingQueue(most_waiting=0).displace("a") is None


async def test_a_displaced_request_fails_with_queue_full() -> None:
    admission = Admission(WaitingQueue(most_waiting=2, capacity=1))
    async with admission.slot("flood"):
        entering = [asyncio.create_task(admission.enter("flood")) for _ in range(2)]
        await asyncio.sleep(0)
        other = asyncio.create_task(admission.enter("other"))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await admission.enter("other")
        with pytest.raises(QueueFull):
            await entering[1]
        assert admission.queue.waiting == 2
    admission.leave(await entering[0])
    admission.leave(await other)
    assert (admission.queue.served, admission.queue.waiting) == (0, 0)


async def test_canceling_a_displaced_request_releases_no_slot() -> None:
    admission = Admission(WaitingQueue(most_waiting=2, capacity=1))
    async with admission.slot("flood"):
        entering = [asyncio.create_task(admission.enter("flood")) for _ in range(2)]
        await asyncio.sleep(0)
        other = asyncio.create_task(admission.enter("other"))
        await asyncio.sleep(0)
        entering[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering[1]
        assert admission.queue.waiting == 2
    for waiting in (entering[0], other):
        admission.leave(await waiting)
    assert (admission.queue.served, admission.queue.waiting) == (0, 0)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(Priority)), max_size=60))
def test_no_request_is_displaced_by_a_key_with_more_waiting_requests(
    joined: list[tuple[str, Priority]],
) -> None:
    queue = WaitingQueue(most_waiting=6, capacity=0)
    waiting = list[Ticket]()
    for key, priority in joined:
        ticket = queue.join(key, priority)
        if ticket is None and (exchange := queue.displace(key, priority)) is not None:
            ticket, displaced = exchange
            waiting.remove(displaced)
            assert displaced.key != key
            assert priority is not LOW or displaced.priority is LOW
        if ticket is not None:
            waiting.append(ticket)
        elif priority is not LOW:
            of_keys = Counter(ticket.key for ticket in waiting if ticket.priority is not LOW)
            if priority is NORMAL:
                assert max(of_keys.values()) <= of_keys[key] + 1
    assert queue.waiting == len(waiting)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(Priority)), max_size=60))
def test_every_request_is_served_and_requests_of_a_key_and_priority_in_order(
    joined: list[tuple[str, Priority]],
) -> None:
    queue = WaitingQueue(capacity=1)
    (first,) = join(queue, "first")
    tickets = [ticket for key, priority in joined if (ticket := queue.join(key, priority))]
    order = serve_all(queue, first)
    assert sorted(map(id, order)) == sorted(map(id, tickets))
    for key in "abc":
        for priority in Priority:
            mine = [
                ticket for ticket in tickets if (ticket.key, ticket.priority) == (key, priority)
            ]
            assert [ticket for ticket in order if ticket in mine] == mine


async def serve_in_order(admission: Admission) -> list[str]:
    served: list[str] = []

    async def work(name: str, priority: Priority) -> None:
        async with admission.slot(name, priority):
            served.append(name)
            await asyncio.sleep(0)

    async with asyncio.timeout(TIMEOUT_SECONDS), asyncio.TaskGroup() as group:
        for name, priority in (("a", LOW), ("b", LOW), ("c", NORMAL), ("d", HIGH)):
            group.create_task(work(name, priority))
    return served


def test_slots_are_granted_by_priority() -> None:
    admission = Admission(WaitingQueue(capacity=1))
    assert asyncio.run(serve_in_order(admission)) == ["a", "d", "c", "b"]


def test_waiting_requests_are_listed_in_the_order_of_service() -> None:
    queue = WaitingQueue(capacity=1)
    current = queue.join("a")
    priorities = [*("low",) * 2, *("normal",) * 3, *("high",) * (MOST_PASSED_OVER + 2)]
    for number, priority in enumerate(priorities):
        queue.join("ab"[number % 2], Priority(priority), number)
    numbers = [ticket.number for ticket in queue.upcoming()]
    assert [ticket.number for ticket in queue.upcoming()] == numbers  # unchanged by the first call
    served = []
    while current is not None:
        current = next(iter(queue.leave(current)), None)
        served.append(current)
    assert [ticket.number for ticket in served if ticket is not None] == numbers
    assert sorted(numbers) == [*range(len(priorities))]
