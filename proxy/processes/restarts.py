"""Decides when a failed server is restarted, and when it stays down.

This module reads no clock: callers pass the time in seconds, and a random number from 0 to 1.
"""

from collections import deque
from dataclasses import dataclass
from enum import Enum


class RestartState(Enum):
    """The state of a server."""

    STOPPED = "stopped"
    STARTING = "starting"
    READY = "ready"
    WAITING = "waiting"
    DOWN = "down"


# `fail` leads to DOWN if a restart would fail in the same way, or after too many failures
_MOVES = {
    RestartState.STOPPED: {RestartState.STARTING},
    RestartState.STARTING: {*RestartState} - {RestartState.STARTING},
    RestartState.READY: {RestartState.WAITING, RestartState.DOWN, RestartState.STOPPED},
    RestartState.WAITING: {RestartState.STARTING, RestartState.STOPPED},
    RestartState.DOWN: {RestartState.STOPPED},
}


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The number of restarts and their delays, in seconds.

    The first delay is `first_delay`; the delay doubles with every failure, up to `longest_delay`.
    Each delay is shortened at random, by at most half; otherwise, servers that failed together
    would restart together. After `most_failures` failures within `window`
    seconds, the server stays down; only the time in which the server was ready counts.
    """

    first_delay: float = 0.5
    longest_delay: float = 15.0
    most_failures: int = 5
    window: float = 60.0


class Restarts:
    """The state of one server, from the first request for it to its stop.

    Only the time in which the server is ready counts for the policy's `window`. Otherwise a model
    that takes a minute to load and crashes at its first request would be restarted forever.
    """

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        self.state = RestartState.STOPPED
        self._ready_since: float | None = None
        self._served = 0.0
        self._failures: deque[float] = deque(maxlen=policy.most_failures)

    def begin(self) -> None:
        self._move(RestartState.STARTING)

    def become_ready(self, now: float) -> None:
        self._move(RestartState.READY)
        self._ready_since = now

    def fail(self, now: float, chance: float, *, is_lasting: bool = False) -> float | None:
        """Record a failure; return the seconds until the next start, None if the server stays down.

        `is_lasting` is True if the next start would fail in the same way, for example because of an
        invalid model file; the server then stays down.
        """
        if self._ready_since is not None:
            self._served += now - self._ready_since
            self._ready_since = None
        while self._failures and self._failures[0] <= self._served - self._policy.window:
            self._failures.popleft()
        self._failures.append(self._served)
        if is_lasting or len(self._failures) == self._policy.most_failures:
            self._move(RestartState.DOWN)
            return None
        self._move(RestartState.WAITING)
        doubled = self._policy.first_delay * 2.0 ** (len(self._failures) - 1)
        return min(self._policy.longest_delay, doubled) * (1 - chance / 2)

    def stop(self) -> None:
        """Record that the server was stopped, and reset the failures."""
        if self.state is not RestartState.STOPPED:
            self._move(RestartState.STOPPED)
        self._failures.clear()
        self._ready_since = None

    def _move(self, state: RestartState) -> None:
        assert state in _MOVES[self.state], (self.state, state)  # noqa: S101 - an illegal move
        self.state = state
