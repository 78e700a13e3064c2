"""Sends events to a `SwapPlanner`, and checks its orders.

receive("a1 asks").expect("start a")     request 1 for model a joins the queue
"""

import re
from dataclasses import dataclass, field

from proxy.processes.swapping import Budget, LoadableModel, Orders, QueueTicket, SwapPlanner


@dataclass
class SwapBook:
    """A planner for some models; `memory` has the bytes of each model."""

    swapping: SwapPlanner
    now: float = 0.0
    tickets: dict[str, QueueTicket] = field(default_factory=dict)
    ordered: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, memory: dict[str, int], budget: Budget, *, ttl: float | None = None) -> "SwapBook":
        models = [LoadableModel(name, size, ttl) for name, size in memory.items()]
        return cls(SwapPlanner(models, budget, failure_seconds=10))

    def receive(self, event: str) -> "SwapBook":
        """Send an event; raises AssertionError if a previous order was not expected."""
        assert self.ordered == [], f"not expected before {event!r}"
        subject, _, verb = event.partition(" ")
        self.now += 1
        match verb:
            case "asks":
                name = re.sub(r"\d+$", "", subject)
                ticket, orders = self.swapping.ask(name, self.now)
                self.tickets[subject] = ticket
            case "leaves":
                orders = self.swapping.leave(self.tickets.pop(subject), self.now)
            case "loaded":
                orders = self.swapping.note_loaded(subject, self.now)
            case "failed":
                orders = self.swapping.note_failed(subject, self.now)
            case "stopped":
                orders = self.swapping.note_stopped(subject, self.now)
            case _:
                assert verb == "seconds later"
                self.now += float(subject) - 1
                orders = self.swapping.stop_expired(self.now)
        self.ordered = self._describe(orders)
        return self

    def expect(self, *orders: str) -> "SwapBook":
        """Check that these are the next orders."""
        count = len(orders)
        assert self.ordered[:count] == list(orders)
        del self.ordered[:count]
        return self

    def load(self, name: str) -> "SwapBook":
        """Load a model that fits into memory, by one request that ends immediately."""
        self.receive(f"{name}0 asks").expect(f"start {name}")
        self.receive(f"{name} loaded").expect(f"serve {name}0")
        return self.receive(f"{name}0 leaves")

    def end(self) -> None:
        """Check that no orders remain."""
        assert self.ordered == []

    def ahead(self, request: str) -> int:
        """Return the number of requests queued before this one."""
        return self.swapping.ahead(self.tickets[request])

    def _describe(self, orders: Orders) -> list[str]:
        names = {id(ticket): request for request, ticket in self.tickets.items()}
        return [
            *(f"serve {names[id(ticket)]}" for ticket in orders.served),
            *(f"refuse {names[id(ticket)]}" for ticket in orders.refused),
            *(f"stop {name}" for name in orders.stop),
            *(f"start {name}" for name in orders.start),
        ]
