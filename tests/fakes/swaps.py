"""Drives model swapping by hand: feed it events, and check its orders.

A request is named by its model and a number: "a1 asks" is a request for model a.
"""

import re
from dataclasses import dataclass, field

from proxy.processes.swapping import Budget, LoadableModel, Orders, QueueTicket, SwapPlanner


@dataclass
class SwapBook:
    """Some models, driven by hand; they take a byte each, or as `memory` specifies."""

    swapping: SwapPlanner
    now: float = 0.0
    places: dict[str, QueueTicket] = field(default_factory=dict)
    ordered: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, memory: dict[str, int], budget: Budget, *, ttl: float | None = None) -> "SwapBook":
        models = [LoadableModel(name, size, ttl) for name, size in memory.items()]
        return cls(SwapPlanner(models, budget, failure_seconds=10))

    def receive(self, event: str) -> "SwapBook":
        """Feed an event; all previous orders must have been expected."""
        assert self.ordered == [], f"not expected before {event!r}"
        subject, _, verb = event.partition(" ")
        self.now += 1
        match verb:
            case "asks":
                name = re.sub(r"\d+$", "", subject)
                ticket, orders = self.swapping.ask(name, self.now)
                self.places[subject] = ticket
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
        """Require exactly these orders next."""
        count = len(orders)
        assert self.ordered[:count] == list(orders)
        del self.ordered[:count]
        return self

    def load(self, name: str) -> "SwapBook":
        """Load a model that has room and no users."""
        self.receive(f"{name}0 asks").expect(f"start {name}")
        self.receive(f"{name} loaded").expect(f"serve {name}0")
        return self.receive(f"{name}0 leaves")

    def end(self) -> None:
        """Require that all orders have been expected."""
        assert self.ordered == []

    def ahead(self, request: str) -> int:
        """Return the number of requests queued before this one."""
        return self.swapping.ahead(self.places[request])

    def _told(self, orders: Orders) -> list[str]:
        called = {id(ticket): request for request, ticket in self.places.items()}
        return [
            *(f"serve {called[id(ticket)]}" for ticket in orders.served),
            *(f"refuse {called[id(ticket)]}" for ticket in orders.refused),
            *(f"stop {name}" for name in orders.stop),
            *(f"start {name}" for name in orders.start),
        ]
