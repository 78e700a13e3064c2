"""The fallback of a model: the name of another model, and how often it may be used per hour."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

_HOUR = 3600.0  # seconds


@dataclass(eq=False, slots=True)
class Fallback:
    """A `model` that gets at most `per_hour` attempts in any 60 minutes; 0 means no limit.

    Each process counts separately, and starts at zero.
    """

    model: str
    per_hour: int = 0
    clock: Callable[[], float] = time.monotonic
    _begun: deque[float] = field(default_factory=deque)

    def take(self) -> bool:
        """Count an attempt; return False if the budget is used up."""
        if not self.per_hour:
            return True
        now = self.clock()
        while self._begun and self._begun[0] <= now - _HOUR:
            self._begun.popleft()
        if len(self._begun) >= self.per_hour:
            return False
        self._begun.append(now)
        return True
