"""When a server that failed is asked again: a circuit breaker, without clocks or tasks.

Theory of operation
-------------------
    CLOSED     it is asked; `threshold` failures in a row open it
    OPEN       it is not asked until it has cooled down
    HALF_OPEN  one request may try it: a success closes, a failure opens it for twice as long

Time comes in from outside, in seconds; a trial that ends without a result lets the next one try.
"""

from dataclasses import dataclass
from enum import Enum


class BreakerState(Enum):
    """What a breaker lets through: everything, nothing, or one request."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


@dataclass(slots=True)
class Breaker:
    """The breaker of one server; it stays open `cooldown` at first and `longest` at most."""

    threshold: int = 2
    cooldown: float = 2.0
    longest: float = 30.0
    _failures: int = 0
    _open_for: float = 0.0
    _open_until: float = 0.0
    _is_tried: bool = False

    def state(self, now: float) -> BreakerState:
        """Tell where it stands."""
        if not self._open_for:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self._open_until else BreakerState.HALF_OPEN

    def allows(self, now: float) -> bool:
        """Return whether a request may be put."""
        match self.state(now):
            case BreakerState.CLOSED:
                return True
            case BreakerState.OPEN:
                return False
            case BreakerState.HALF_OPEN:
                return not self._is_tried

    def begin(self, now: float) -> None:
        """Note that a request is put; exactly one of the three below has to follow."""
        self._is_tried = self.state(now) is BreakerState.HALF_OPEN

    def record_success(self) -> None:
        """Note that the server answered."""
        self._failures, self._open_for, self._is_tried = 0, 0.0, False

    def record_failure(self, now: float) -> None:
        """Note that the server failed."""
        self._is_tried = False
        if self.state(now) is BreakerState.OPEN:
            return  # requests from before fail late and prove nothing new
        self._failures += 1
        if self._failures >= self.threshold:
            self._open_for = min(self.longest, self._open_for * 2 or self.cooldown)
            self._open_until = now + self._open_for

    def record_abandoned(self) -> None:
        """Note that nobody waited for the answer."""
        self._is_tried = False
