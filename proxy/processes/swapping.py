"""Decides which models are loaded and which requests wait, if not all models fit into memory.

No I/O: the time in seconds is a parameter, and the models to start and to stop are returned.
"""

# STOPPED --start--> LOADING --loaded--> LOADED
#    ^                  |                  |
#    +--- stopped --- STOPPING <---stop----+      failed leads to STOPPING as well
#
# Requests wait in one queue, oldest first. A request for a loaded model is served at once, unless
# an older request needs that model's memory. Without this exception, a model in constant use would
# never be unloaded. When a model has been loaded, all its waiting requests are served, even if
# older requests wait for other models. Later requests join the end of the queue, so every request
# is served at some time.
#
# Of the requests whose models must be loaded, memory is freed only for the oldest. The models to
# stop are chosen in this order: idle models first, then models in use, and in each group the least
# recently used model first. The chosen models are stopped only when all of them are idle: a model
# in use is never stopped.

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

# The state of a model; all but "stopped" occupy memory.
Presence: TypeAlias = Literal["stopped", "loading", "loaded", "stopping"]

# state -> the states that may follow
_MOVES = {
    "stopped": {"loading"},
    "loading": {"loaded", "stopping"},
    "loaded": {"stopping"},
    "stopping": {"stopped"},
}


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits for all loaded models: total `memory` in bytes, and number; None: no limit."""

    memory: int | None = None
    models: int | None = None


@dataclass(frozen=True, slots=True)
class LoadableModel:
    """A model; `memory` is in bytes. After `ttl` idle seconds the model is stopped; None: never."""

    name: str
    memory: int = 0
    ttl: float | None = None


@dataclass(eq=False, slots=True)
class QueueTicket:
    """A request in the queue; once `is_served` is True, it uses the model until `leave`."""

    model: str
    is_served: bool = False


@dataclass(slots=True)
class Orders:
    """The models to start and to stop, and the tickets that no longer wait.

    The `served` requests may use their model. The `refused` requests fail, because their model
    could not be loaded.
    """

    start: list[str] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)
    served: list[QueueTicket] = field(default_factory=list)
    refused: list[QueueTicket] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class _ModelState:
    """The state of one model.

    `used` is the time of its last use, and `failed` is the time of its last failure.
    `requested_ttl` is the idle time in seconds that the latest client requested; if it is None, the
    configured `ttl` applies, and if it is negative, the model never expires.
    """

    model: LoadableModel
    presence: Presence = "stopped"
    users: int = 0
    used: float = 0.0
    failed: float | None = None
    requested_ttl: float | None = None

    @property
    def ttl(self) -> float | None:
        if self.requested_ttl is None:
            return self.model.ttl
        return self.requested_ttl if self.requested_ttl >= 0 else None

    def move(self, presence: Presence) -> None:
        assert presence in _MOVES[self.presence], (self.presence, presence)  # noqa: S101 - illegal
        self.presence = presence


class SwapPlanner:
    """Decides for all models together; each event method returns the orders to carry out.

    The caller reports the result of each order: `note_loaded` or `note_failed` after a start,
    `note_stopped` after a stop. A failed model is not loaded again for `failure_seconds`, because
    each attempt may unload other models.
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
        """Stop a model after `seconds` without requests.

        A negative number means never, and None means the configured time.
        """
        self._members[name].requested_ttl = seconds

    def has_failed(self, name: str, now: float) -> bool:
        """Return whether a model failed less than `failure_seconds` ago."""
        failed = self._members[name].failed
        return failed is not None and now < failed + self._failure_seconds

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def ahead(self, ticket: QueueTicket) -> int:
        return self._queue.index(ticket) if ticket in self._queue else 0

    def can_start_now(self, name: str, now: float) -> bool:
        """Return True if a request for a model would not wait for requests to other models."""
        presence = self._members[name].presence
        if presence == "loading":
            return True
        # a queued request that waits for memory blocks younger requests, even if their models fit
        is_blocked = any(
            self._members[ticket.model].presence != "loading" for ticket in self._queue
        )
        if presence == "stopping" or is_blocked or self.has_failed(name, now):
            return False
        return not self.busy_blockers(name)

    def busy_blockers(self, name: str) -> tuple[str, ...]:
        """Return the models in use that must become idle before a model can be loaded."""
        newcomer = self._members[name]
        if newcomer.presence != "stopped" or self._fits(newcomer):
            return ()
        blockers = self._blockers(newcomer)
        return tuple(member.model.name for member in blockers if not self._is_idle(member))

    def ask(self, name: str, now: float) -> tuple[QueueTicket, Orders]:
        ticket = QueueTicket(name)
        if self.has_failed(name, now):
            return ticket, Orders(refused=[ticket])
        self._queue.append(ticket)
        return ticket, self._decide(Orders(), now)

    def leave(self, ticket: QueueTicket, now: float) -> Orders:
        """Take back a ticket: its request has ended, or was canceled in the queue."""
        if ticket.is_served:
            member = self._members[ticket.model]
            member.users -= 1
            member.used = now
        elif ticket in self._queue:
            self._queue.remove(ticket)
        return self._decide(Orders(), now)

    def note_loaded(self, name: str, now: float) -> Orders:
        """Report that a model is loaded; serve all requests that wait for it."""
        orders = Orders()
        member = self._members[name]
        member.move("loaded")
        member.used, member.failed = now, None
        for ticket in self._waiting_for(name):
            self._serve(ticket, orders)
        return self._decide(orders, now)

    def note_failed(self, name: str, now: float) -> Orders:
        """Report that loading a model failed, or that its server is down.

        The requests that wait for the model are refused.
        """
        member = self._members[name]
        member.failed = now
        orders = Orders(refused=self._waiting_for(name))
        self._queue = [ticket for ticket in self._queue if ticket.model != name]
        self._stop(member, orders)
        return self._decide(orders, now)

    def note_stopped(self, name: str, now: float) -> Orders:
        self._members[name].move("stopped")
        return self._decide(Orders(), now)

    def stop_expired(self, now: float) -> Orders:
        """Stop the models that have been idle for too long."""
        orders = Orders()
        for member in self._members.values():
            expiry = self._expiry(member)
            if expiry is not None and expiry <= now:
                self._stop(member, orders)
        return self._decide(orders, now)

    def next_expiry(self) -> float | None:
        """Return the time at which `stop_expired` is due, None if no model expires."""
        expiries = map(self._expiry, self._members.values())
        return min((moment for moment in expiries if moment is not None), default=None)

    def _decide(self, orders: Orders, now: float) -> Orders:
        """Serve or start the model of each request in the queue, oldest first, where possible."""
        claimed: set[str] = set()  # loaded models that must stop for an older request
        is_blocked = False  # an older request waits for memory, so younger requests load nothing
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
        """Start a model if it fits; otherwise stop other models, once all of these are idle.

        Returns the names of the models that have to stop.
        """
        if self._fits(newcomer):
            self._start(newcomer, orders, now)
            return set()
        blockers = self._blockers(newcomer)
        if all(map(self._is_idle, blockers)):
            for member in blockers:
                self._stop(member, orders)
        return {member.model.name for member in blockers}

    def _blockers(self, newcomer: _ModelState) -> list[_ModelState]:
        """Choose the models to stop for a new model.

        The memory of models that are already stopping counts as free.
        """
        present = ("loading", "loaded")
        candidates = [member for member in self._members.values() if member.presence in present]
        candidates.sort(key=lambda member: (not self._is_idle(member), member.used))
        stopping = [member for member in self._members.values() if member.presence == "stopping"]
        blockers: list[_ModelState] = []
        while candidates and not self._fits(newcomer, (*stopping, *blockers)):
            blockers.append(candidates.pop(0))
        for member in blockers[::-1]:  # keep a model if the other blockers free enough memory
            others = [other for other in blockers if other is not member]
            if self._fits(newcomer, (*stopping, *others)):
                blockers = others
        return blockers

    def _fits(self, newcomer: _ModelState, without: Sequence[_ModelState] = ()) -> bool:
        """Return whether a model would fit after the models in `without` have stopped.

        A model that is larger than the whole budget fits if no other model is loaded.
        """
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
        """Return whether no request uses a model or waits for it to load."""
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
