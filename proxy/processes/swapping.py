"""Decides which models are loaded and which requests wait, if not all models fit at once.

Pure: times in seconds are passed in, and the models to start and stop are returned.
"""

# STOPPED --start--> LOADING --loaded--> LOADED
#    ^                  |                  |
#    +--- stopped --- STOPPING <---stop----+      failed leads to STOPPING as well
#
# Requests wait in one queue, oldest first. A request whose model is loaded is served at once, with
# one exception: an older request waits for that model's memory. So a model in steady use cannot
# block another one. When a model has been loaded, all its waiting requests are served, also the
# younger ones: they share the cost of the swap, and later requests queue after the others, so no
# request waits forever.
#
# Only the oldest request whose model has to be loaded may free memory. It chooses the models to
# stop, idle ones first, then the least recently used, and none is stopped until all of them are
# idle: a model in use is never stopped.

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

# The state of a model; all but "stopped" occupy memory.
Presence: TypeAlias = Literal["stopped", "loading", "loaded", "stopping"]

_MOVES = {
    "stopped": {"loading"},
    "loading": {"loaded", "stopping"},
    "loaded": {"stopping"},
    "stopping": {"stopped"},
}


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of all loaded models: memory in bytes, and their number; None: no limit."""

    memory: int | None = None
    models: int | None = None


@dataclass(frozen=True, slots=True)
class LoadableModel:
    """A model with its memory in bytes; it is stopped after `ttl` idle seconds."""

    name: str
    memory: int = 0
    ttl: float | None = None


@dataclass(eq=False, slots=True)
class QueueTicket:
    """A request's ticket in the queue, and for using the model."""

    model: str
    is_served: bool = False


@dataclass(slots=True)
class Orders:
    """The models to start and to stop, and the tickets whose wait is over.

    Those `served` may use their model; those `refused` cannot, because loading it failed.
    """

    start: list[str] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)
    served: list[QueueTicket] = field(default_factory=list)
    refused: list[QueueTicket] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _ModelState:
    """The state of one model; `failed` is the time of its last failure.

    `kept` is the idle time in seconds that its latest client requested, None if none did.
    """

    model: LoadableModel
    presence: Presence = "stopped"
    users: int = 0
    used: float = 0.0
    failed: float | None = None
    kept: float | None = None

    @property
    def ttl(self) -> float | None:
        if self.kept is None:
            return self.model.ttl
        return self.kept if self.kept >= 0 else None

    def move(self, presence: Presence) -> None:
        assert presence in _MOVES[self.presence], (self.presence, presence)  # noqa: S101 - illegal
        self.presence = presence


class SwapPlanner:
    """Decides for all models together; every event returns the orders to carry out.

    Each order has to be reported: `note_loaded` or `note_failed` after a start, `note_stopped`
    after a stop. A failed model is not tried again for `failure_seconds`, so that it cannot evict
    others with every request.
    """

    def __init__(
        self,
        models: Sequence[LoadableModel],
        budget: Budget = Budget(),
        *,
        failure_seconds: float = 10.0,
    ) -> None:
        self._members = {model.name: _ModelState(model) for model in models}
        self._budget = budget
        self._failure_seconds = failure_seconds
        self._queue: list[QueueTicket] = []

    def presence(self, name: str) -> Presence:
        return self._members[name].presence

    def keep(self, name: str, seconds: float | None) -> None:
        """Stop a model after so many idle seconds; never if negative, as configured if None."""
        self._members[name].kept = seconds

    def has_failed(self, name: str, now: float) -> bool:
        """Return whether a model failed so recently that it is not tried again yet."""
        failed = self._members[name].failed
        return failed is not None and now < failed + self._failure_seconds

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def ahead(self, ticket: QueueTicket) -> int:
        return self._queue.index(ticket) if ticket in self._queue else 0

    def in_the_way_of(self, name: str) -> tuple[str, ...]:
        """Return the models in use that have to become idle before a model can be loaded."""
        newcomer = self._members[name]
        if newcomer.presence != "stopped" or self._fits(newcomer):
            return ()
        going = self._in_the_way_of(newcomer)
        return tuple(member.model.name for member in going if not self._is_idle(member))

    def ask(self, name: str, now: float) -> tuple[QueueTicket, Orders]:
        ticket = QueueTicket(name)
        if self.has_failed(name, now):
            return ticket, Orders(refused=[ticket])
        self._queue.append(ticket)
        return ticket, self._decide(Orders(), now)

    def leave(self, ticket: QueueTicket, now: float) -> Orders:
        """Return a ticket, served or not; a refused one is not in the queue."""
        if ticket.is_served:
            member = self._members[ticket.model]
            member.users -= 1
            member.used = now
        elif ticket in self._queue:
            self._queue.remove(ticket)
        return self._decide(Orders(), now)

    def note_loaded(self, name: str, now: float) -> Orders:
        """Note that a model is loaded; all its waiting requests are served."""
        orders = Orders()
        member = self._members[name]
        member.move("loaded")
        member.used, member.failed = now, None
        for ticket in self._waiting_for(name):
            self._serve(ticket, orders)
        return self._decide(orders, now)

    def note_failed(self, name: str, now: float) -> Orders:
        """Note that loading a model failed, or that it is down; refuse its waiting requests."""
        member = self._members[name]
        member.failed = now
        orders = Orders(refused=self._waiting_for(name))
        self._queue = [ticket for ticket in self._queue if ticket.model != name]
        self._stop(member, orders)
        return self._decide(orders, now)

    def note_stopped(self, name: str, now: float) -> Orders:
        self._members[name].move("stopped")
        return self._decide(Orders(), now)

    def look(self, now: float) -> Orders:
        """Stop the models that have been idle for too long."""
        orders = Orders()
        for member in self._members.values():
            expiry = self._expiry(member)
            if expiry is not None and expiry <= now:
                self._stop(member, orders)
        return self._decide(orders, now)

    def next_look(self) -> float | None:
        """Return the time at which the next model will have been idle for too long."""
        expiries = map(self._expiry, self._members.values())
        return min((moment for moment in expiries if moment is not None), default=None)

    def _decide(self, orders: Orders, now: float) -> Orders:
        """Go through the queue once, oldest first."""
        claimed: set[str] = set()  # loaded models that an older request needs to be stopped
        is_blocked = False  # an older request waits for memory, so no younger one may take it
        for ticket in tuple(self._queue):
            member = self._members[ticket.model]
            if member.presence == "loaded":
                if ticket.model not in claimed:
                    self._serve(ticket, orders)
            elif member.presence == "stopping":
                is_blocked = True
            elif member.presence == "stopped" and not is_blocked:
                claimed = self._bring_in(member, orders, now)
                is_blocked = member.presence == "stopped"
        return orders

    def _bring_in(self, newcomer: _ModelState, orders: Orders, now: float) -> set[str]:
        """Start a model if it fits, otherwise free memory; return the models that have to stop."""
        if self._fits(newcomer):
            self._start(newcomer, orders, now)
            return set()
        going = self._in_the_way_of(newcomer)
        if all(map(self._is_idle, going)):
            for member in going:
                self._stop(member, orders)
        return {member.model.name for member in going}

    def _in_the_way_of(self, newcomer: _ModelState) -> list[_ModelState]:
        """Choose the models to stop for a new one; models that are stopping count as gone."""
        present = ("loading", "loaded")
        others = [member for member in self._members.values() if member.presence in present]
        others.sort(key=lambda member: (not self._is_idle(member), member.used))
        leaving = [member for member in self._members.values() if member.presence == "stopping"]
        going: list[_ModelState] = []
        while others and not self._fits(newcomer, (*leaving, *going)):
            going.append(others.pop(0))
        for member in going[::-1]:  # drop small models if a large one, chosen later, frees enough
            rest = [other for other in going if other is not member]
            if self._fits(newcomer, (*leaving, *rest)):
                going = rest
        return going

    def _fits(self, newcomer: _ModelState, without: Sequence[_ModelState] = ()) -> bool:
        """Return whether a model fits; one that exceeds the whole budget fits when it is alone."""
        staying = [
            member
            for member in self._members.values()
            if member.presence != "stopped" and member not in without
        ]
        if not staying:
            return True
        memory = newcomer.model.memory + sum(member.model.memory for member in staying)
        budget = self._budget
        return (budget.memory is None or memory <= budget.memory) and (
            budget.models is None or len(staying) < budget.models
        )

    def _is_idle(self, member: _ModelState) -> bool:
        """Return whether no request uses a model, or waits for it to load."""
        is_awaited = member.presence == "loading" and self._waiting_for(member.model.name)
        return not (member.users or is_awaited)

    def _expiry(self, member: _ModelState) -> float | None:
        ttl = member.ttl
        if ttl is None or member.presence != "loaded" or member.users:
            return None
        return None if self._waiting_for(member.model.name) else member.used + ttl

    def _waiting_for(self, name: str) -> list[QueueTicket]:
        return [ticket for ticket in self._queue if ticket.model == name]

    def _serve(self, ticket: QueueTicket, orders: Orders) -> None:
        self._queue.remove(ticket)
        ticket.is_served = True
        self._members[ticket.model].users += 1
        orders.served.append(ticket)

    def _start(self, member: _ModelState, orders: Orders, now: float) -> None:
        member.move("loading")
        member.used = now
        orders.start.append(member.model.name)

    def _stop(self, member: _ModelState, orders: Orders) -> None:
        member.move("stopping")
        orders.stop.append(member.model.name)
