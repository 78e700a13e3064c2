"""Drives the swapping of models by hand: it receives what happens, and is to order something.

A request is called by its model and a number: "a1 asks" is one to model a.
"""

import re
from dataclasses import dataclass, field

from proxy.processes.swapping import Budget, LoadableModel, Orders, QueueTicket, SwapPlanner


@dataclass
class SwapBook:
    """Some models, driven by hand; they take a byte each, or what `memory` says."""

    swapping: SwapPlanner
    now: float = 0.0
    places: dict[str, QueueTicket] = field(default_factory=dict)
    ordered: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, memory: dict[str, int], budget: Budget, *, ttl: float | None = None) -> "SwapBook":
        models = [LoadableModel(name, size, ttl) for name, size in memory.items()]
        return cls(SwapPlanner(models, budget, failure_seconds=10))

    def receive(self, event: str) -> "SwapBook":
        """Let something happen; everything that was ordered before must have been expected."""
        assert self.ordered == [], f"not expected before {event!r}"
        subject, _, verb = event.partition(" ")
        self.now += 1
        match verb:
            case "asks":
                name = re.sub(r"\d+$", "", subject)
                place, orders = self.swapping.ask(name, self.now)
                self.places[subject] = place
            case "leaves":
                orders = self.swapping.leave(self.places.pop(subject), self.now)
            case "loaded":
                orders = self.swapping.note_loaded(subject, self.now)
            case "failed":
                orders = self.swapping.note_failed(subject, self.now)
            case "stopped":
                orders = self.swapping.note_stopped(subject, self.now)
            case _:
                assert verb == "seconds later"
                self.now += float(subject) - 1
                orders = self.swapping.look(self.now)
        self.ordered = list(self._told(orders))
        return self

    def expect(self, *orders: str) -> "SwapBook":
        """The next orders must be these."""
        count = len(orders)
        assert self.ordered[:count] == list(orders)
        del self.ordered[:count]
        return self

    def load(self, name: str) -> "SwapBook":
        """Load a model that has room and is used by nobody."""
        self.receive(f"{name}0 asks").expect(f"start {name}")
        self.receive(f"{name} loaded").expect(f"serve {name}0")
        return self.receive(f"{name}0 leaves")

    def end(self) -> None:
        """Everything that was ordered must have been expected."""
        assert self.ordered == []

    def ahead(self, request: str) -> int:
        """Tell how many others a request has before it."""
        return self.swapping.ahead(self.places[request])

    def _told(self, orders: Orders) -> list[str]:
        called = {id(place): request for request, place in self.places.items()}
        return [
            *(f"serve {called[id(place)]}" for place in orders.served),
            *(f"refuse {called[id(place)]}" for place in orders.refused),
            *(f"stop {name}" for name in orders.stop),
            *(f"start {name}" for name in orders.start),
        ]
