"""Decides when a server that ended is restarted, and when it stays down.

Pure: the clock, in seconds, and chance, from 0 to 1, are passed in.
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


# `fail` leads to DOWN when no restart would help, or when the server failed too often
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

    The delay begins with `first_delay` and doubles with every failure, up to `longest_delay`. Up to
    half of it is random, so that servers that failed together do not restart together. After
    `most_failures` within `window` seconds the server stays down.
    """

    first_delay: float = 0.5
    longest_delay: float = 15.0
    most_failures: int = 5
    window: float = 60.0


class Restarts:
    """The state of one server, from the first request for it to its stop.

    Only the time in which it is ready counts for the policy's window: a large model that takes a
    minute to load and crashes at the first request is a crash loop all the same.
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
        """Note that it ended; return the seconds until the next start, None if it stays down.

        A failure `is_lasting` if the next start would fail in the same way, as for an invalid file.
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
        """Note that it was stopped, and reset the failures."""
        if self.state is not RestartState.STOPPED:
            self._move(RestartState.STOPPED)
        self._failures.clear()
        self._ready_since = None

    def _move(self, state: RestartState) -> None:
        assert state in _MOVES[self.state], (self.state, state)  # noqa: S101 - an illegal move
        self.state = state
