"""The mixture: the same for client and backend, complete, and each request finds its own."""

import pytest

from benchmarks.faults.material import Fault, Material, number_in
from benchmarks.faults.mixture import FAULTS, ONE_OF_EACH, draw
from proxy.conversation import json

NAMES = [fault.name for fault in FAULTS]


def test_the_same_seed_and_number_always_give_the_same() -> None:
    for number in range(200):
        (once, first), (again, second) = draw(7, number), draw(7, number)
        assert once is again
        assert (first.asked, first.demand, first.manner) == (
            second.asked,
            second.demand,
            second.manner,
        )


def test_another_seed_draws_other_faults() -> None:
    numbers = range(ONE_OF_EACH, ONE_OF_EACH + 50)
    once, again = ([draw(seed, number)[0] for number in numbers] for seed in (1, 2))
    assert once != again


def test_a_run_begins_with_each_fault_streamed_and_not() -> None:
    first = [draw(1, number) for number in range(ONE_OF_EACH)]
    assert [fault.name for fault, _ in first[::2]] == NAMES
    assert [fault.name for fault, _ in first[1::2]] == NAMES
    place = 2 * NAMES.index("good: text")
    streamed, whole = (plan.asked.body for _, plan in first[place : place + 2])
    assert b'"stream":true' in streamed
    assert b'"stream":false' in whole


def test_every_fault_is_drawn_later_as_well() -> None:
    drawn = range(ONE_OF_EACH, ONE_OF_EACH + 10_000)
    assert {draw(1, number)[0].name for number in drawn} == set(NAMES)
    assert len(set(NAMES)) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=NAMES)
def test_what_a_plan_asks_plays_and_demands_agrees(fault: Fault) -> None:
    for number in range(20):
        plan = fault.make(Material(1, number))
        if not plan.demand.questions:
            assert plan.plays == ()
            continue
        assert plan.plays
        assert number_in(plan.asked.body) == number
        request = json.parse(plan.asked.body)
        assert isinstance(request, dict)
        has_tools = any(wanted.calls for wanted in plan.demand.answers)
        assert "tools" in request or not has_tools
