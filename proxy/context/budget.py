"""How many tokens a prompt may have: the window less what the answer needs.

The window is that of one slot as the backend reports it, never assumed; a mode may narrow it.
"""

from dataclasses import dataclass
from enum import Enum

NUDGES = 288  # what three attempts may append

_ANSWER_SHARE = 0.25
_MOST_RESERVED = 0.5


class BudgetMode(Enum):
    """Who decides on the window: the backend, the operator, or the hardware."""

    BACKEND = "backend"
    MANUAL = "manual"
    FULL = "full"
    FAST = "fast"


@dataclass(frozen=True, slots=True)
class Budget:
    """A window and what is kept free of it, both in tokens."""

    window: int
    reserve: int

    @property
    def room(self) -> int:
        """What is left for the prompt."""
        return max(0, self.window - self.reserve)


@dataclass(frozen=True, slots=True)
class Window:
    """The window of one `slot`, in tokens, and how much of it is used.

    `limit` goes with the mode: the operator's number for `MANUAL`, the largest window that fits
    the hardware for `FULL` and `FAST`. Without one, the slot decides.
    """

    slot: int
    mode: BudgetMode = BudgetMode.BACKEND
    limit: int | None = None

    @property
    def size(self) -> int:
        """The window that is used; never more than the slot has."""
        if self.limit is None or self.mode is BudgetMode.BACKEND:
            return self.slot
        wanted = self.limit // 2 if self.mode is BudgetMode.FAST else self.limit
        return min(self.slot, wanted)

    def budget(self, max_tokens: int | None) -> Budget:
        """Keep room for an answer of `max_tokens`, at most half of the window, and for nudges."""
        answer = max_tokens or int(_ANSWER_SHARE * self.size)
        return Budget(self.size, min(answer, int(_MOST_RESERVED * self.size)) + NUDGES)
