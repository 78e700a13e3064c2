import asyncio
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import QueueFull
from proxy.serving.admission import MOST_PASSED_OVER, Admission, Priority, SlotRequest, WaitingQueue
from tests.patience import PATIENCE_SECONDS


def joined(line: WaitingQueue, *keys: str) -> list[SlotRequest]:
    places = [line.join(key) for key in keys]
    return [place for place in places if place is not None]


def test_as_many_are_served_as_there_is_capacity() -> None:
    line = WaitingQueue(capacity=2)
    places = joined(line, "a", "a", "a")
    assert [place.is_served for place in places] == [True, True, False]
    assert (line.served, line.waiting) == (2, 1)


def test_without_a_known_capacity_nobody_waits() -> None:
    assert all(place.is_served for place in joined(WaitingQueue(), *"abcabc"))


def test_keys_take_turns_and_each_keeps_its_order() -> None:
    line = WaitingQueue(capacity=1)
    first, *waiting = joined(line, "a", "a", "a", "b", "c", "b")
    a2, a3, b1, c1, b2 = waiting
    served = []
    current = first
    while following := line.leave(current):
        (current,) = following
        served.append(current)
    assert served == [a2, b1, c1, a3, b2]


def test_a_full_line_takes_nobody() -> None:
    line = WaitingQueue(most_waiting=1, capacity=1)
    assert len(joined(line, "a", "b", "c")) == 2


def test_whoever_gives_up_waiting_is_passed_over() -> None:
    line = WaitingQueue(capacity=1)
    first, second, third = joined(line, "a", "a", "b")
    assert line.leave(second) == []
    assert line.leave(first) == [third]
    assert line.leave(third) == []
    assert (line.served, line.waiting) == (0, 0)


def test_more_capacity_calls_those_who_wait_and_less_takes_no_place_away() -> None:
    line = WaitingQueue(capacity=1)
    places = joined(line, "a", "a", "b", "b")
    assert line.resize(3) == [places[1], places[2]]
    assert line.resize(1) == []
    assert line.served == 3
    assert line.leave(places[0]) == line.leave(places[1]) == []
    assert line.leave(places[2]) == [places[3]]
    assert line.resize(None) == []


@given(
    st.integers(min_value=1, max_value=4),
    st.lists(st.tuples(st.sampled_from("abcL"), st.integers(min_value=0, max_value=30))),
)
def test_nobody_is_forgotten_and_nobody_is_served_beyond_the_capacity(
    capacity: int, steps: list[tuple[str, int]]
) -> None:
    line = WaitingQueue(most_waiting=8, capacity=capacity)
    inside: list[SlotRequest] = []
    for key, number in steps:
        if key != "L":
            is_full = line.waiting == 8
            place = line.join(key)
            assert (place is None) is is_full
            inside += [place] if place is not None else []
        elif inside:
            called = line.leave(inside.pop(number % len(inside)))
            assert all(place.is_served and place in inside for place in called)
        served = [place for place in inside if place.is_served]
        assert line.served == len(served) == min(capacity, len(inside))
        assert line.waiting == len(inside) - len(served)


async def test_a_slot_is_held_while_the_block_runs_and_then_passed_on() -> None:
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


async def test_whoever_leaves_the_line_or_fails_inside_gives_the_place_back() -> None:
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
            assert admission.line.waiting == 0
            raise RuntimeError
    assert admission.line.served == 0


async def test_a_turn_that_comes_together_with_the_leaving_is_passed_on() -> None:
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
    assert admission.line.served == 0


async def test_growing_lets_those_in_who_wait() -> None:
    admission = Admission(WaitingQueue(capacity=1))
    async with admission.slot("a"):
        waiting = asyncio.create_task(admission.slot("b").__aenter__())
        await asyncio.sleep(0)
        admission.resize(2)
        await waiting


@pytest.mark.parametrize(("seconds", "advice"), [(0.0, 1), (30.0, 4), (10_000.0, 60)])
async def test_a_full_line_tells_when_there_may_be_room(seconds: float, advice: int) -> None:
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


def drained(line: WaitingQueue, first: SlotRequest) -> list[SlotRequest]:
    """Let each place end at once; returns all behind the first in their order."""
    served: list[SlotRequest] = []
    following = line.leave(first)
    while following:
        served += following
        following = line.leave(following[0])
    return served


def test_background_work_waits_behind_people_whoever_came_first() -> None:
    line = WaitingQueue(capacity=1)
    (first,) = joined(line, "a")
    came = [("b", LOW), ("c", LOW), ("d", NORMAL), ("e", HIGH), ("d", NORMAL), ("f", NORMAL)]
    places = [line.join(key, priority) for key, priority in came]
    b, c, d1, e, d2, f = places
    assert drained(line, first) == [e, d1, f, d2, b, c]


def test_who_was_passed_over_too_often_is_next() -> None:
    line = WaitingQueue(capacity=1)
    (first,) = joined(line, "a")
    low = [line.join("background", LOW) for _ in range(2)]
    people = [line.join(f"person {n}") for n in range(MOST_PASSED_OVER + 3)]
    order = drained(line, first)
    assert order == [*people[:8], low[0], *people[8:], low[1]]
    assert MOST_PASSED_OVER == 8


def test_the_lowest_of_those_that_were_passed_over_goes_first() -> None:
    line = WaitingQueue(capacity=1)
    (first,) = joined(line, "a")
    low, normal = line.join("c", LOW), line.join("b", NORMAL)
    high = [line.join(f"{n}", HIGH) for n in range(12)]
    assert drained(line, first) == [*high[:8], low, normal, *high[8:]]


def test_background_work_takes_no_place_in_the_line_from_people() -> None:
    line = WaitingQueue(most_waiting=2, capacity=1)
    joined(line, "a")
    assert [line.join("b", LOW) is None for _ in range(3)] == [False, False, True]
    assert [line.join("c", NORMAL) is None for _ in range(3)] == [False, False, True]
    assert line.join("b", LOW) is None
    assert line.waiting == 4


def displaced(
    line: WaitingQueue, key: str, priority: Priority = NORMAL
) -> tuple[SlotRequest, SlotRequest]:
    """Have a key join a full line; return its place, and the request that had to go."""
    assert line.join(key, priority) is None
    exchange = line.displace(key, priority)
    assert exchange is not None
    return exchange


def test_a_key_with_few_requests_displaces_the_newest_of_the_key_with_the_most() -> None:
    line = WaitingQueue(most_waiting=4, capacity=1)
    first, *flood = joined(line, *["flood"] * 5)
    other, gone = displaced(line, "other")
    assert gone is flood[-1]
    assert gone.is_displaced
    assert line.leave(gone) == []  # it holds nothing any more
    assert displaced(line, "other")[1] is flood[-2]
    assert line.displace("other") is None  # two of each: a third would be more than its share
    assert line.displace("flood") is None
    third, gone = displaced(line, "third")
    assert gone is flood[-3]  # of equals, the one that came first
    assert line.waiting == 4
    order = drained(line, first)
    assert order.index(other) < order.index(third)


def test_a_key_is_displaced_where_it_has_the_least_urgent_requests() -> None:
    line = WaitingQueue(most_waiting=2, capacity=1)
    joined(line, "a")
    usual = [line.join("boss", NORMAL) for _ in range(2)]
    urgent = [line.join("boss", HIGH) for _ in range(2)]
    assert displaced(line, "other", NORMAL)[1] is usual[-1]
    assert displaced(line, "other", HIGH)[1] is urgent[-1]
    assert line.waiting == 4


def test_background_work_displaces_only_background_work() -> None:
    line = WaitingQueue(most_waiting=4, capacity=1)
    joined(line, *"aaa")
    low = [line.join("batch", LOW) for _ in range(2)]
    assert displaced(line, "nightly", LOW)[1] is low[-1]
    assert line.displace("other", LOW) is None


def test_nothing_is_displaced_in_an_empty_line() -> None:
    assert WaitingQueue(most_waiting=0).displace("a") is None


async def test_whoever_is_displaced_is_told_that_the_queue_is_full() -> None:
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
        assert admission.line.waiting == 2
    admission.leave(await entering[0])
    admission.leave(await other)
    assert (admission.line.served, admission.line.waiting) == (0, 0)


async def test_a_displaced_request_that_is_canceled_at_once_gives_nothing_back() -> None:
    admission = Admission(WaitingQueue(most_waiting=2, capacity=1))
    async with admission.slot("flood"):
        entering = [asyncio.create_task(admission.enter("flood")) for _ in range(2)]
        await asyncio.sleep(0)
        other = asyncio.create_task(admission.enter("other"))
        await asyncio.sleep(0)
        entering[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering[1]
        assert admission.line.waiting == 2
    for waiting in (entering[0], other):
        admission.leave(await waiting)
    assert (admission.line.served, admission.line.waiting) == (0, 0)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(Priority)), max_size=60))
def test_no_key_is_kept_out_by_one_that_has_more(came: list[tuple[str, Priority]]) -> None:
    line = WaitingQueue(most_waiting=6, capacity=0)
    waiting = list[SlotRequest]()
    for key, priority in came:
        place = line.join(key, priority)
        if place is None and (exchange := line.displace(key, priority)) is not None:
            place, gone = exchange
            waiting.remove(gone)
            assert gone.key != key
            assert priority is not LOW or gone.priority is LOW
        if place is not None:
            waiting.append(place)
        elif priority is not LOW:
            of_keys = Counter(one.key for one in waiting if one.priority is not LOW)
            if priority is NORMAL:
                assert max(of_keys.values()) <= of_keys[key] + 1
    assert line.waiting == len(waiting)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(Priority)), max_size=60))
def test_nobody_waits_for_ever_and_each_key_keeps_its_order(
    came: list[tuple[str, Priority]],
) -> None:
    line = WaitingQueue(capacity=1)
    (first,) = joined(line, "first")
    places = [place for key, priority in came if (place := line.join(key, priority))]
    order = drained(line, first)
    assert sorted(map(id, order)) == sorted(map(id, places))
    for key in "abc":
        for priority in Priority:
            own = [one for one in places if (one.key, one.priority) == (key, priority)]
            assert [one for one in order if one in own] == own


async def serve_in_order(admission: Admission) -> list[str]:
    served: list[str] = []

    async def work(name: str, priority: Priority) -> None:
        async with admission.slot(name, priority):
            served.append(name)
            await asyncio.sleep(0)

    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as group:
        for name, priority in (("a", LOW), ("b", LOW), ("c", NORMAL), ("d", HIGH)):
            group.create_task(work(name, priority))
    return served


def test_slots_are_given_by_priority() -> None:
    admission = Admission(WaitingQueue(capacity=1))
    assert asyncio.run(serve_in_order(admission)) == ["a", "d", "c", "b"]


def test_who_waits_is_told_in_the_order_in_which_they_will_be_served() -> None:
    line = WaitingQueue(capacity=1)
    current = line.join("a")
    wished = [*("low",) * 2, *("normal",) * 3, *("high",) * (MOST_PASSED_OVER + 2)]
    for number, word in enumerate(wished):
        line.join("ab"[number % 2], Priority(word), number)
    told = [one.number for one in line.upcoming()]
    assert [one.number for one in line.upcoming()] == told  # to look changes nothing
    served = []
    while current is not None:
        current = next(iter(line.leave(current)), None)
        served.append(current)
    assert [one.number for one in served if one is not None] == told
    assert sorted(told) == [*range(len(wished))]
