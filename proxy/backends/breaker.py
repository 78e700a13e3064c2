"""A circuit breaker: it blocks requests to a server that has failed repeatedly.

Theory of operation
-------------------
    CLOSED     requests pass; `threshold` failures in a row open the breaker
    OPEN       no request passes until the cooldown is over
    HALF_OPEN  one request passes as a trial: success closes the breaker, and failure opens it again
               with a doubled cooldown

The breaker reads no clock: callers pass the time in seconds. If the trial ends without a result,
because its client disconnected, the next request becomes the trial.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

# "closed": all requests pass; "open": no request passes; "half-open": one request passes.
BreakerState: TypeAlias = Literal["closed", "open", "half-open"]


@dataclass(slots=True)
class Breaker:
    """The breaker of one server: it opens for `cooldown` seconds, later for up to `longest`."""

    threshold: int = 2
    cooldown: float = 2.0
    longest: float = 30.0
    _failures: int = 0
    _open_for: float = 0.0
    _open_until: float = 0.0
    _has_trial: bool = False

    def state(self, now: float) -> BreakerState:
        if not self._open_for:
            return "closed"
        return "open" if now < self._open_until else "half-open"

    def allows(self, now: float) -> bool:
        state = self.state(now)
        return state == "closed" or (state == "half-open" and not self._has_trial)

    def begin(self, now: float) -> None:
        """Record that a request is sent; when it ends, the caller calls a `record_...` method."""
        self._has_trial = self.state(now) == "half-open"

    def record_success(self) -> None:
        self._failures, self._open_for, self._has_trial = 0, 0.0, False

    def record_failure(self, now: float) -> None:
        self._has_trial = False
        if self.state(now) == "open":
            return  # the request was sent before the breaker opened
        self._failures += 1
        if self._failures >= self.threshold:
            self._open_for = min(self.longest, self._open_for * 2 or self.cooldown)
            self._open_until = now + self._open_for

    def record_abandoned(self) -> None:
        """Record that the request ended without success or failure: its client disconnected."""
        self._has_trial = False
