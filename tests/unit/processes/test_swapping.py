from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.processes.swapping import Budget, LoadableModel, Orders, QueueTicket, SwapPlanner
from tests.fakes.swaps import SwapBook

ONE_AT_A_TIME = Budget(models=1)


def book_of(models: str, budget: Budget = ONE_AT_A_TIME, ttl: float | None = None) -> SwapBook:
    return SwapBook.of(dict.fromkeys(models, 1), budget, ttl=ttl)


SCENARIOS: dict[str, tuple[Callable[[], SwapBook], str]] = {
    "the first request starts a model, which serves all waiting requests": (
        lambda: book_of("a"),
        "a1 asks: start a; a2 asks; a loaded: serve a1, serve a2; a3 asks: serve a3",
    ),
    "models that fit together are loaded at the same time": (
        lambda: SwapBook.of({"a": 4, "b": 4}, Budget(memory=8)),
        "load a; b1 asks: start b; a1 asks: serve a1",
    ),
    "without a budget all models fit": (
        lambda: SwapBook.of({"a": 10**12, "b": 10**12}, Budget()),
        "load a; load b",
    ),
    "an idle model is stopped before the new model is started": (
        lambda: book_of("ab"),
        "load a; b1 asks: stop a; a stopped: start b; b loaded: serve b1",
    ),
    "the least recently used model is stopped first": (
        lambda: book_of("abc", Budget(models=2)),
        "load a; load b; a1 asks: serve a1; a1 leaves; c1 asks: stop b",
    ),
    "a model is not stopped if stopping another model is enough": (
        lambda: SwapBook.of({"small": 1, "large": 6, "new": 6}, Budget(memory=8)),
        "load small; load large; new1 asks: stop large; large stopped: start new",
    ),
    "several models are stopped if stopping one model is not enough": (
        lambda: SwapBook.of({"a": 3, "b": 3, "c": 2, "new": 6}, Budget(memory=8)),
        "load a; load b; load c; new1 asks: stop a, stop b; b stopped; a stopped: start new",
    ),
    "a model larger than the budget is loaded alone": (
        lambda: SwapBook.of({"a": 3, "huge": 99}, Budget(memory=8)),
        "load a; huge1 asks: stop a; a stopped: start huge",
    ),
    "a model in use is not stopped": (
        lambda: book_of("ab"),
        "a1 asks: start a; a loaded: serve a1; b1 asks; a1 leaves: stop a",
    ),
    "models are stopped only when all models that have to be stopped are idle": (
        lambda: SwapBook.of({"a": 4, "b": 4, "new": 8}, Budget(memory=8)),
        "load a; b1 asks: start b; b loaded: serve b1; new1 asks; b1 leaves: stop a, stop b",
    ),
    "an idle model is stopped before a less recently used model in use": (
        lambda: book_of("abc", Budget(models=2)),
        "a1 asks: start a; a loaded: serve a1; load b; c1 asks: stop b",
    ),
    "a loaded model serves all waiting requests before it is stopped for another model": (
        lambda: book_of("ab"),
        "a1 asks: start a; b1 asks; a2 asks; a loaded: serve a1, serve a2; a3 asks; a1 "
        "leaves; a2 leaves: stop a",
    ),
    "a model that need not be stopped continues to serve requests": (
        lambda: SwapBook.of({"a": 2, "b": 6, "c": 6}, Budget(memory=8)),
        "load a; b1 asks: start b; b loaded: serve b1; c1 asks; a1 asks: serve a1; b2 asks",
    ),
    "memory is freed for the oldest request first": (
        lambda: book_of("abc"),
        "a1 asks: start a; a loaded: serve a1; b1 asks; c1 asks; a1 leaves: stop a; a "
        "stopped: start b; b loaded: serve b1; b1 leaves: stop b; b stopped: start c",
    ),
    "a model that is requested while it stops is loaded in the order of the queue": (
        lambda: book_of("abc"),
        "load a; b1 asks: stop a; a1 asks; b1 leaves; c1 asks; a stopped: start a",
    ),
    "a request that leaves the queue no longer blocks younger requests": (
        lambda: book_of("ab"),
        "a1 asks: start a; a loaded: serve a1; b1 asks; a2 asks; b1 leaves: serve a2",
    ),
    "a loading model without requests is stopped for another model": (
        lambda: book_of("ab"),
        "a1 asks: start a; a1 leaves; b1 asks: stop a; a stopped: start b",
    ),
    "a loading model with a waiting request is not stopped": (
        lambda: book_of("ab"),
        "a1 asks: start a; b1 asks",
    ),
    "requests for a model that cannot be loaded are refused": (
        lambda: book_of("ab"),
        "a1 asks: start a; b1 asks; a failed: refuse a1, stop a; a1 leaves; a stopped: start b",
    ),
    "a loaded model that fails is stopped while a request still uses it": (
        lambda: book_of("a"),
        "a1 asks: start a; a loaded: serve a1; a failed: stop a; a stopped; a1 leaves",
    ),
    "an idle model with a waiting request is not stopped after its ttl": (
        lambda: SwapBook.of({"a": 4, "b": 4, "new": 8}, Budget(memory=8), ttl=60),
        "load a; b1 asks: start b; b loaded: serve b1; new1 asks; a1 asks; 600 seconds later",
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_after_each_event_of_a_scenario_the_planner_gives_the_expected_orders(name: str) -> None:
    """Play a scenario of steps `event: expected orders`, e.g. `a1 asks: stop b`."""
    start, scenario = SCENARIOS[name]
    book = start()
    for step in scenario.split("; "):
        event, _, orders = step.partition(": ")
        if event.startswith("load "):
            book.load(event.removeprefix("load "))
        else:
            book.receive(event).expect(*filter(None, orders.split(", ")))
    book.end()


def test_a_request_for_another_model_is_served_before_younger_requests() -> None:
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


def test_a_failed_model_is_not_retried_for_ten_seconds() -> None:
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


def test_an_idle_model_is_stopped_after_its_ttl() -> None:
    book = book_of("ab", Budget(), ttl=60)
    assert book.swapping.next_expiry() is None
    book.load("a")
    assert book.swapping.next_expiry() == book.now + 60
    book.receive("59 seconds later")
    book.receive("1 seconds later").expect("stop a")
    assert book.swapping.next_expiry() is None
    book.end()


def test_the_ttl_starts_when_the_last_request_has_ended() -> None:
    book = book_of("a", ttl=60).load("a")
    book.receive("a1 asks").expect("serve a1")
    assert book.swapping.next_expiry() is None
    book.receive("600 seconds later")
    book.receive("a1 leaves")
    book.receive("59 seconds later")
    book.receive("1 seconds later").expect("stop a")
    book.end()


def test_the_method_keep_overrides_the_configured_ttl() -> None:
    planner = SwapPlanner([LoadableModel("a", ttl=60)])
    ticket, _ = planner.ask("a", 0.0)
    planner.note_loaded("a", 0.0)
    planner.leave(ticket, 10.0)
    assert planner.next_expiry() == 70.0
    planner.keep("a", 5)
    assert planner.next_expiry() == 15.0
    planner.keep("a", -1)
    assert planner.next_expiry() is None
    planner.keep("a", None)
    assert planner.next_expiry() == 70.0
    planner.keep("a", 0)
    assert planner.stop_expired(10.0).stop == ["a"]


def test_an_idle_model_without_a_ttl_is_not_stopped() -> None:
    book = book_of("a").load("a")
    assert book.swapping.next_expiry() is None
    book.receive("1000000 seconds later")
    book.end()


@pytest.mark.parametrize("event", ["a loaded", "a failed", "a stopped"])
def test_an_event_that_follows_no_order_raises_assertion_error(
    event: str,
) -> None:
    with pytest.raises(AssertionError):
        book_of("a").receive(event)


MEMORY = {"a": 1, "b": 3, "c": 4, "d": 9}
BUDGET = Budget(memory=6, models=2)


class Simulation:
    """The requests and servers of a planner; a number selects the next action."""

    def __init__(self) -> None:
        self.swapping = SwapPlanner(
            [LoadableModel(name, size, 5.0) for name, size in MEMORY.items()], BUDGET
        )
        self.now = 0.0
        self.starting: list[str] = []
        self.stopping: list[str] = []
        self.tickets: list[QueueTicket] = []

    def obey(self, orders: Orders) -> None:
        for name in orders.stop:
            assert not [
                ticket for ticket in self.tickets if ticket.model == name and ticket.is_served
            ]
            if name in self.starting:
                self.starting.remove(name)
        self.stopping += orders.stop
        self.starting += orders.start
        present = [item for item in MEMORY if self.swapping.presence(item) != "stopped"]
        assert len(present) == 1 or sum(MEMORY[name] for name in present) <= 6
        assert len(present) <= 2

    def do(self, choice: int) -> None:
        """Perform the possible action that `choice` selects."""
        actions = list(self.possible())
        kind, index = actions[choice % len(actions)]
        self.now += 0.5
        match kind:
            case "ask":
                ticket, orders = self.swapping.ask("abcd"[index], self.now)
                self.tickets.append(ticket)
                self.obey(orders)
            case "leave":
                self.obey(self.swapping.leave(self.tickets.pop(index), self.now))
            case "loaded":
                self.obey(self.swapping.note_loaded(self.starting.pop(index), self.now))
            case "stopped":
                self.obey(self.swapping.note_stopped(self.stopping.pop(index), self.now))
            case _:
                self.obey(self.swapping.stop_expired(self.now))

    def possible(self) -> Iterator[tuple[str, int]]:
        yield from (("ask", index) for index in range(4))
        yield from (("leave", index) for index in range(len(self.tickets)))
        yield from (("loaded", index) for index in range(len(self.starting)))
        yield from (("stopped", index) for index in range(len(self.stopping)))
        yield "look", 0


@given(st.lists(st.integers(0, 10_000), max_size=60))
def test_in_any_order_of_events_the_budget_is_kept_and_every_request_is_served(
    choices: list[int],
) -> None:
    simulation = Simulation()
    for choice in choices:
        simulation.do(choice)
    for _ in range(1000):  # no new requests arrive, and every served request ends
        if not simulation.tickets:
            break
        if simulation.starting:
            simulation.obey(
                simulation.swapping.note_loaded(simulation.starting.pop(0), simulation.now)
            )
        elif simulation.stopping:
            simulation.obey(
                simulation.swapping.note_stopped(simulation.stopping.pop(0), simulation.now)
            )
        else:
            served = next(ticket for ticket in simulation.tickets if ticket.is_served)
            simulation.tickets.remove(served)
            simulation.obey(simulation.swapping.leave(served, simulation.now))
    assert simulation.tickets == []
    assert simulation.swapping.waiting == 0


def test_busy_blockers_are_the_models_in_use_that_must_stop_before_this_model_starts() -> None:
    swapping = SwapPlanner(
        [LoadableModel("a"), LoadableModel("b"), LoadableModel("c")], Budget(models=1)
    )
    assert swapping.busy_blockers("b") == ()
    ticket, _ = swapping.ask("a", 0.0)
    assert swapping.busy_blockers("a") == ()
    assert swapping.busy_blockers("b") == ("a",)
    swapping.note_loaded("a", 1.0)
    assert swapping.busy_blockers("b") == ("a",)
    swapping.leave(ticket, 2.0)
    assert swapping.busy_blockers("b") == ()


def test_can_start_now_is_true_for_models_that_need_not_wait_for_memory() -> None:
    book = SwapBook.of({"a": 4, "b": 4, "c": 4}, Budget(memory=8))

    def startable_models() -> str:
        return "".join(name for name in "abc" if book.swapping.can_start_now(name, book.now))

    assert startable_models() == "abc"
    book.receive("a1 asks").expect("start a")
    assert startable_models() == "abc"
    book.receive("a loaded").expect("serve a1")
    book.load("b")
    assert startable_models() == "abc"  # b is idle
    book.receive("b1 asks").expect("serve b1")
    assert startable_models() == "ab"
    book.receive("c1 asks")
    # the request for c waits for memory, so no younger request starts a model
    assert startable_models() == ""
    book.receive("b1 leaves").expect("stop b")
    assert startable_models() == ""
    book.receive("b stopped").expect("start c")
    book.receive("c failed").expect("refuse c1", "stop c")
    book.receive("c stopped")
    assert startable_models() == "ab"
    book.receive("10 seconds later")
    assert startable_models() == "abc"
