import asyncio
from collections.abc import Coroutine
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.errors import QueueFull
from proxy.serving.admission import Admission, SlotRequest, WaitingLine
from tests.patience import PATIENCE_SECONDS


def joined(line: WaitingLine, *keys: str) -> list[SlotRequest]:
    places = [line.join(key) for key in keys]
    return [place for place in places if place is not None]


def test_as_many_are_served_as_there_is_capacity() -> None:
    line = WaitingLine(capacity=2)
    places = joined(line, "a", "a", "a")
    assert [place.is_served for place in places] == [True, True, False]
    assert (line.served, line.waiting) == (2, 1)


def test_without_a_known_capacity_nobody_waits() -> None:
    assert all(place.is_served for place in joined(WaitingLine(), *"abcabc"))


def test_keys_take_turns_and_each_keeps_its_order() -> None:
    line = WaitingLine(capacity=1)
    first, *waiting = joined(line, "a", "a", "a", "b", "c", "b")
    a2, a3, b1, c1, b2 = waiting
    served = []
    current = first
    while following := line.leave(current):
        (current,) = following
        served.append(current)
    assert served == [a2, b1, c1, a3, b2]


def test_a_full_line_takes_nobody() -> None:
    line = WaitingLine(most_waiting=1, capacity=1)
    assert len(joined(line, "a", "b", "c")) == 2


def test_whoever_gives_up_waiting_is_passed_over() -> None:
    line = WaitingLine(capacity=1)
    first, second, third = joined(line, "a", "a", "b")
    assert line.leave(second) == []
    assert line.leave(first) == [third]
    assert line.leave(third) == []
    assert (line.served, line.waiting) == (0, 0)


def test_more_capacity_calls_those_who_wait_and_less_takes_no_place_away() -> None:
    line = WaitingLine(capacity=1)
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
    line = WaitingLine(most_waiting=8, capacity=capacity)
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


def run(work: Coroutine[None, None, None]) -> None:
    async def within() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await work

    asyncio.run(within())


def test_a_slot_is_held_while_the_block_runs_and_then_passed_on() -> None:
    async def scene() -> None:
        admission = Admission(WaitingLine(capacity=1))
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

    run(scene())


def test_whoever_leaves_the_line_or_fails_inside_gives_the_place_back() -> None:
    async def scene() -> None:
        admission = Admission(WaitingLine(capacity=1))

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

    run(scene())


def test_a_turn_that_comes_together_with_the_leaving_is_passed_on() -> None:
    async def scene() -> None:
        admission = Admission(WaitingLine(capacity=1))
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

    run(scene())


def test_growing_lets_those_in_who_wait() -> None:
    async def scene() -> None:
        admission = Admission(WaitingLine(capacity=1))
        async with admission.slot("a"):
            waiting = asyncio.create_task(admission.slot("b").__aenter__())
            await asyncio.sleep(0)
            admission.resize(2)
            await waiting

    run(scene())


@pytest.mark.parametrize(("seconds", "advice"), [(0.0, 1), (30.0, 4), (10_000.0, 60)])
def test_a_full_line_tells_when_there_may_be_room(seconds: float, advice: int) -> None:
    now = [0.0]

    async def scene() -> None:
        admission = Admission(WaitingLine(most_waiting=1, capacity=1), clock=lambda: now[0])
        async with admission.slot("a"):
            now[0] += seconds
        async with admission.slot("a"):
            waiting = asyncio.create_task(admission.slot("b").__aenter__())
            await asyncio.sleep(0)
            with pytest.raises(QueueFull) as raised:
                await admission.slot("c").__aenter__()
            assert (raised.value.waiting, raised.value.retry_after) == (1, advice)
            waiting.cancel()

    run(scene())
