"""Which models are loaded and which requests wait, where not all of them fit at once.

Pure: moments in seconds are passed in, and what has to be started or stopped is returned.
"""

# STOPPED --start--> LOADING --loaded--> LOADED
#    ^                  |                  |
#    +--- stopped --- STOPPING <---stop----+      failed leads to STOPPING as well
#
# Requests wait in one line, oldest first. A request whose model is loaded is served at once, but
# for one case: an older request waits for that model's room. So a model in steady use cannot keep
# another one out. Whoever waits when a model has been loaded is served, however young: a swap is
# paid once for all of them, and as the others come behind, nobody waits for ever.
#
# Only the oldest request whose model has to be loaded may make room. It chooses what has to go,
# idle models first, then those that were not used for longest, and nothing is stopped until all
# of it is idle: what a request is using is never taken away.

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

# How far a model is from answering; all but STOPPED take their memory.
Presence: TypeAlias = Literal["stopped", "loading", "loaded", "stopping"]

_MOVES = {
    "stopped": {"loading"},
    "loading": {"loaded", "stopping"},
    "loaded": {"stopping"},
    "stopping": {"stopped"},
}


@dataclass(frozen=True, slots=True)
class Budget:
    """What loaded models may take together: memory in bytes, and their number; None: no limit."""

    memory: int | None = None
    models: int | None = None


@dataclass(frozen=True, slots=True)
class LoadableModel:
    """A model that can be loaded: its memory in bytes; it stops after `ttl` idle seconds."""

    name: str
    memory: int = 0
    ttl: float | None = None


@dataclass(eq=False, slots=True)
class QueueTicket:
    """A request that waits for a model or uses it."""

    model: str
    is_served: bool = False


@dataclass(slots=True)
class Orders:
    """What has to be done now: models to start and to stop, and places to tell of their fate.

    Those `served` may use their model; those `refused` will not get it, as it cannot be loaded.
    """

    start: list[str] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)
    served: list[QueueTicket] = field(default_factory=list)
    refused: list[QueueTicket] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _ModelState:
    """A model as it is now; `failed` is the moment of its last failure.

    It is `kept` for so many idle seconds, where its latest client said so.
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
    """Decides for all models together; every event returns what has to be done about it.

    What is ordered has to be reported: `loaded` or `failed` after a start, `stopped` after a stop.
    A model that failed is not tried again for `failure_seconds`, so that it cannot evict others
    with every request.
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
        """Name the models in use whose requests have to end before another one can be loaded."""
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
        """Give a place back, served or not; one that was refused has none."""
        if ticket.is_served:
            member = self._members[ticket.model]
            member.users -= 1
            member.used = now
        elif ticket in self._queue:
            self._queue.remove(ticket)
        return self._decide(Orders(), now)

    def note_loaded(self, name: str, now: float) -> Orders:
        """Note that a model can be used: whoever waits for it gets it."""
        orders = Orders()
        member = self._members[name]
        member.move("loaded")
        member.used, member.failed = now, None
        for ticket in self._waiting_for(name):
            self._serve(ticket, orders)
        return self._decide(orders, now)

    def note_failed(self, name: str, now: float) -> Orders:
        """Note that a model cannot be loaded, or is gone for good: whoever waits is refused."""
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
        """Stop what has been idle for too long."""
        orders = Orders()
        for member in self._members.values():
            expiry = self._expiry(member)
            if expiry is not None and expiry <= now:
                self._stop(member, orders)
        return self._decide(orders, now)

    def next_look(self) -> float | None:
        """Return when the next model that nobody uses will have been idle for too long."""
        expiries = map(self._expiry, self._members.values())
        return min((moment for moment in expiries if moment is not None), default=None)

    def _decide(self, orders: Orders, now: float) -> Orders:
        """Go through the line once, oldest first."""
        claimed: set[str] = set()
        is_blocked = False
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
        """Start a model if there is room, else make some; returns the names of what has to go."""
        if self._fits(newcomer):
            self._start(newcomer, orders, now)
            return set()
        going = self._in_the_way_of(newcomer)
        if all(map(self._is_idle, going)):
            for member in going:
                self._stop(member, orders)
        return {member.model.name for member in going}

    def _in_the_way_of(self, newcomer: _ModelState) -> list[_ModelState]:
        """Choose what has to go for a model; what is being stopped goes anyway."""
        present = ("loading", "loaded")
        others = [member for member in self._members.values() if member.presence in present]
        others.sort(key=lambda member: (not self._is_idle(member), member.used))
        leaving = [member for member in self._members.values() if member.presence == "stopping"]
        going: list[_ModelState] = []
        while others and not self._fits(newcomer, (*leaving, *going)):
            going.append(others.pop(0))
        for member in going[::-1]:  # a small one may have been chosen before a large one that does
            rest = [other for other in going if other is not member]
            if self._fits(newcomer, (*leaving, *rest)):
                going = rest
        return going

    def _fits(self, newcomer: _ModelState, without: Sequence[_ModelState] = ()) -> bool:
        """Return whether there is room; a model larger than all of it has it when it is alone."""
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
        """Return whether nobody uses a model, nor waits for its load to end."""
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
