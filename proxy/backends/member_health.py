"""What a pool knows of its members, and whom it would ask next: plain decisions, no I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from proxy.backends.affinity import ranked
from proxy.backends.breaker import Breaker
from proxy.backends.client import Backend


@dataclass(eq=False, slots=True)
class Member:
    """One server of a pool; `slots` counts what it works on at once, None where nobody knows."""

    backend: Backend
    breaker: Breaker = field(default_factory=Breaker)
    slots: int | None = None
    running: int = 0

    @property
    def has_room(self) -> bool:
        """Whether it would work on a request at once."""
        return self.slots is None or self.running < self.slots


def in_order(
    members: Sequence[Member], key: str, now: float, pinned: Member | None = None
) -> list[Member]:
    """List whom to ask for a conversation, the best first.

    Whoever is `pinned` already keeps the turn, for its cache. One that is full hands over to the
    next, and one that its breaker spares comes last: if all are spared, somebody has to be asked.
    """
    by_name = {member.backend.name: member for member in members}
    order = [by_name[name] for name in ranked(key, list(by_name))]

    def reluctance(member: Member) -> int:
        if not member.breaker.allows(now):
            return 3
        if member is pinned:
            return 0
        return 1 if member.has_room else 2

    return sorted(order, key=reluctance)
