from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.processes.swapping import Budget, LoadableModel, Orders, QueueTicket, SwapPlanner
from tests.fakes.swaps import SwapBook

ONE_AT_A_TIME = Budget(models=1)


def book_of(models: str, budget: Budget = ONE_AT_A_TIME, ttl: float | None = None) -> SwapBook:
    return SwapBook.of(dict.fromkeys(models, 1), budget, ttl=ttl)


def test_a_model_is_started_by_the_first_request_and_serves_all_that_wait_for_it() -> None:
    book = book_of("a")
    book.receive("a1 asks").expect("start a")
    book.receive("a2 asks")
    book.receive("a loaded").expect("serve a1", "serve a2")
    book.receive("a3 asks").expect("serve a3")
    book.end()


def test_models_that_fit_together_stay_together() -> None:
    book = SwapBook.of({"a": 4, "b": 4}, Budget(memory=8))
    book.load("a")
    book.receive("b1 asks").expect("start b")
    book.receive("a1 asks").expect("serve a1")
    book.end()


def test_without_a_budget_everything_fits() -> None:
    book = SwapBook.of({"a": 10**12, "b": 10**12}, Budget())
    book.load("a").load("b").end()


def test_an_idle_model_makes_room_and_the_newcomer_waits_until_it_has_gone() -> None:
    book = book_of("ab").load("a")
    book.receive("b1 asks").expect("stop a")
    book.receive("a stopped").expect("start b")
    book.receive("b loaded").expect("serve b1")
    book.end()


def test_the_model_that_was_not_used_for_longest_goes_first() -> None:
    book = book_of("abc", Budget(models=2)).load("a").load("b")
    book.receive("a1 asks").expect("serve a1")
    book.receive("a1 leaves")
    book.receive("c1 asks").expect("stop b")
    book.end()


def test_no_more_goes_than_has_to() -> None:
    book = SwapBook.of({"small": 1, "large": 6, "new": 6}, Budget(memory=8))
    book.load("small").load("large")
    book.receive("new1 asks").expect("stop large")
    book.receive("large stopped").expect("start new")
    book.end()


def test_several_go_where_one_is_not_enough() -> None:
    book = SwapBook.of({"a": 3, "b": 3, "c": 2, "new": 6}, Budget(memory=8))
    book.load("a").load("b").load("c")
    book.receive("new1 asks").expect("stop a", "stop b")
    book.receive("b stopped")
    book.receive("a stopped").expect("start new")
    book.end()


def test_a_model_larger_than_the_budget_runs_alone() -> None:
    book = SwapBook.of({"a": 3, "huge": 99}, Budget(memory=8)).load("a")
    book.receive("huge1 asks").expect("stop a")
    book.receive("a stopped").expect("start huge")
    book.end()


def test_what_a_request_uses_is_never_taken_away() -> None:
    book = book_of("ab")
    book.receive("a1 asks").expect("start a")
    book.receive("a loaded").expect("serve a1")
    book.receive("b1 asks")
    book.receive("a1 leaves").expect("stop a")
    book.end()


def test_nothing_is_stopped_until_all_that_has_to_go_is_idle() -> None:
    book = SwapBook.of({"a": 4, "b": 4, "new": 8}, Budget(memory=8)).load("a")
    book.receive("b1 asks").expect("start b")
    book.receive("b loaded").expect("serve b1")
    book.receive("new1 asks")
    book.receive("b1 leaves").expect("stop a", "stop b")
    book.end()


def test_an_idle_model_goes_before_a_busy_one_that_was_used_earlier() -> None:
    book = book_of("abc", Budget(models=2))
    book.receive("a1 asks").expect("start a")
    book.receive("a loaded").expect("serve a1")
    book.load("b")
    book.receive("c1 asks").expect("stop b")
    book.end()


def test_a_model_in_steady_use_cannot_keep_another_one_out() -> None:
    book = book_of("ab")
    book.receive("a1 asks").expect("start a")
    book.receive("a loaded").expect("serve a1")
    book.receive("b1 asks")
    book.receive("a2 asks")
    assert (book.ahead("b1"), book.ahead("a2"), book.ahead("a1")) == (0, 1, 0)
    book.receive("a1 leaves").expect("stop a")
    book.receive("a stopped").expect("start b")
    book.receive("b loaded").expect("serve b1")
    book.receive("b1 leaves").expect("stop b")
    book.receive("b stopped").expect("start a")
    book.receive("a loaded").expect("serve a2")
    book.end()


def test_a_swap_is_paid_once_for_all_who_wait_for_it() -> None:
    book = book_of("ab")
    book.receive("a1 asks").expect("start a")
    book.receive("b1 asks")
    book.receive("a2 asks")
    book.receive("a loaded").expect("serve a1", "serve a2")
    book.receive("a3 asks")
    book.receive("a1 leaves")
    book.receive("a2 leaves").expect("stop a")
    book.end()


def test_a_model_that_is_not_in_the_way_serves_on() -> None:
    book = SwapBook.of({"a": 2, "b": 6, "c": 6}, Budget(memory=8)).load("a")
    book.receive("b1 asks").expect("start b")
    book.receive("b loaded").expect("serve b1")
    book.receive("c1 asks")
    book.receive("a1 asks").expect("serve a1")
    book.receive("b2 asks")
    book.end()


def test_only_the_oldest_may_make_room() -> None:
    book = book_of("abc")
    book.receive("a1 asks").expect("start a")
    book.receive("a loaded").expect("serve a1")
    book.receive("b1 asks")
    book.receive("c1 asks")
    book.receive("a1 leaves").expect("stop a")
    book.receive("a stopped").expect("start b")
    book.receive("b loaded").expect("serve b1")
    book.receive("b1 leaves").expect("stop b")
    book.receive("b stopped").expect("start c")
    book.end()


def test_a_model_that_is_asked_for_while_it_stops_comes_back_in_its_turn() -> None:
    book = book_of("abc").load("a")
    book.receive("b1 asks").expect("stop a")
    book.receive("a1 asks")
    book.receive("b1 leaves")
    book.receive("c1 asks")
    book.receive("a stopped").expect("start a")
    book.end()


def test_whoever_leaves_the_line_makes_room_for_others() -> None:
    book = book_of("ab")
    book.receive("a1 asks").expect("start a")
    book.receive("a loaded").expect("serve a1")
    book.receive("b1 asks")
    book.receive("a2 asks")
    book.receive("b1 leaves").expect("serve a2")
    book.end()


def test_a_load_that_nobody_waits_for_any_more_gives_way() -> None:
    book = book_of("ab")
    book.receive("a1 asks").expect("start a")
    book.receive("a1 leaves")
    book.receive("b1 asks").expect("stop a")
    book.receive("a stopped").expect("start b")
    book.end()


def test_a_load_that_others_wait_for_does_not() -> None:
    book = book_of("ab")
    book.receive("a1 asks").expect("start a")
    book.receive("b1 asks")
    book.end()


def test_who_waits_for_a_model_that_cannot_be_loaded_is_refused() -> None:
    book = book_of("ab")
    book.receive("a1 asks").expect("start a")
    book.receive("b1 asks")
    book.receive("a failed").expect("refuse a1", "stop a")
    book.receive("a1 leaves")
    book.receive("a stopped").expect("start b")
    book.end()


def test_a_failure_is_not_repeated_at_once_and_evicts_nobody() -> None:
    book = book_of("ab")
    book.receive("a1 asks").expect("start a")
    book.receive("a failed").expect("refuse a1", "stop a")
    book.receive("a stopped")
    book.load("b")
    assert book.swapping.has_failed("a", book.now)
    book.receive("a2 asks").expect("refuse a2")
    book.receive("10 seconds later")
    assert not book.swapping.has_failed("a", book.now)
    book.receive("a3 asks").expect("stop b")
    book.receive("b stopped").expect("start a")
    book.receive("a loaded").expect("serve a3")
    book.end()


def test_a_model_that_is_gone_for_good_is_stopped_and_its_users_leave_as_they_come() -> None:
    book = book_of("a")
    book.receive("a1 asks").expect("start a")
    book.receive("a loaded").expect("serve a1")
    book.receive("a failed").expect("stop a")
    book.receive("a stopped")
    book.receive("a1 leaves")
    book.end()


def test_an_idle_model_stops_after_its_ttl() -> None:
    book = book_of("ab", Budget(), ttl=60)
    assert book.swapping.next_look() is None
    book.load("a")
    assert book.swapping.next_look() == book.now + 60
    book.receive("59 seconds later")
    book.receive("1 seconds later").expect("stop a")
    assert book.swapping.next_look() is None
    book.end()


def test_a_model_in_use_does_not_stop_and_its_time_begins_when_it_is_left() -> None:
    book = book_of("a", ttl=60).load("a")
    book.receive("a1 asks").expect("serve a1")
    assert book.swapping.next_look() is None
    book.receive("600 seconds later")
    book.receive("a1 leaves")
    book.receive("59 seconds later")
    book.receive("1 seconds later").expect("stop a")
    book.end()


def test_the_latest_client_says_how_long_a_model_stays() -> None:
    planner = SwapPlanner([LoadableModel("a", ttl=60)])
    place, _ = planner.ask("a", 0.0)
    planner.note_loaded("a", 0.0)
    planner.leave(place, 10.0)
    assert planner.next_look() == 70.0
    planner.keep("a", 5)
    assert planner.next_look() == 15.0
    planner.keep("a", -1)
    assert planner.next_look() is None
    planner.keep("a", None)
    assert planner.next_look() == 70.0
    planner.keep("a", 0)
    assert planner.look(10.0).stop == ["a"]


def test_a_model_without_a_ttl_stays() -> None:
    book = book_of("a").load("a")
    assert book.swapping.next_look() is None
    book.receive("1000000 seconds later")
    book.end()


def test_a_model_that_others_wait_for_does_not_stop_for_its_age() -> None:
    book = SwapBook.of({"a": 4, "b": 4, "new": 8}, Budget(memory=8), ttl=60).load("a")
    book.receive("b1 asks").expect("start b")
    book.receive("b loaded").expect("serve b1")
    book.receive("new1 asks")
    book.receive("a1 asks")
    book.receive("600 seconds later")
    book.end()


@pytest.mark.parametrize("event", ["a loaded", "a failed", "a stopped"])
def test_what_was_not_ordered_cannot_be_reported(event: str) -> None:
    with pytest.raises(AssertionError):
        book_of("a").receive(event)


MEMORY = {"a": 1, "b": 3, "c": 4, "d": 9}
BUDGET = Budget(memory=6, models=2)


class World:
    """Everybody around the policy, doing things in any order that chance likes."""

    def __init__(self) -> None:
        self.swapping = SwapPlanner(
            [LoadableModel(name, size, 5.0) for name, size in MEMORY.items()], BUDGET
        )
        self.now = 0.0
        self.starting: list[str] = []
        self.stopping: list[str] = []
        self.places: list[QueueTicket] = []

    def obey(self, orders: Orders) -> None:
        for name in orders.stop:
            assert not [one for one in self.places if one.model == name and one.is_served]
            if name in self.starting:
                self.starting.remove(name)
        self.stopping += orders.stop
        self.starting += orders.start
        present = [one for one in MEMORY if self.swapping.presence(one) != "stopped"]
        assert len(present) == 1 or sum(MEMORY[one] for one in present) <= 6
        assert len(present) <= 2

    def do(self, choice: int) -> None:
        """Do one of all the things that can happen now."""
        things = list(self.possible())
        kind, which = things[choice % len(things)]
        self.now += 0.5
        match kind:
            case "ask":
                place, orders = self.swapping.ask("abcd"[which], self.now)
                self.places.append(place)
                self.obey(orders)
            case "leave":
                self.obey(self.swapping.leave(self.places.pop(which), self.now))
            case "loaded":
                self.obey(self.swapping.note_loaded(self.starting.pop(which), self.now))
            case "stopped":
                self.obey(self.swapping.note_stopped(self.stopping.pop(which), self.now))
            case _:
                self.obey(self.swapping.look(self.now))

    def possible(self) -> Iterator[tuple[str, int]]:
        yield from (("ask", which) for which in range(4))
        yield from (("leave", which) for which in range(len(self.places)))
        yield from (("loaded", which) for which in range(len(self.starting)))
        yield from (("stopped", which) for which in range(len(self.stopping)))
        yield "look", 0


@given(st.lists(st.integers(0, 10_000), max_size=60))
def test_whatever_happens_the_budget_is_kept_and_everybody_is_served(choices: list[int]) -> None:
    world = World()
    for choice in choices:
        world.do(choice)
    for _ in range(1000):  # nobody asks any more, and every request takes its time
        if not world.places:
            break
        if world.starting:
            world.obey(world.swapping.note_loaded(world.starting.pop(0), world.now))
        elif world.stopping:
            world.obey(world.swapping.note_stopped(world.stopping.pop(0), world.now))
        else:
            served = next(one for one in world.places if one.is_served)
            world.places.remove(served)
            world.obey(world.swapping.leave(served, world.now))
    assert world.places == []
    assert world.swapping.waiting == 0


def test_a_model_that_waits_knows_whose_requests_are_in_its_way() -> None:
    swapping = SwapPlanner(
        [LoadableModel("a"), LoadableModel("b"), LoadableModel("c")], Budget(models=1)
    )
    assert swapping.in_the_way_of("b") == ()
    used, _ = swapping.ask("a", 0.0)
    assert swapping.in_the_way_of("a") == ()
    assert swapping.in_the_way_of("b") == ("a",)
    swapping.note_loaded("a", 1.0)
    assert swapping.in_the_way_of("b") == ("a",)
    swapping.leave(used, 2.0)
    assert swapping.in_the_way_of("b") == ()
