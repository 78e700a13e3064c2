"""An event loop with a clock that stops while the machine has no CPU time for it.

A test, Temper and its backend usually share a loop. On a busy machine all of them pause, so no
deadline should pass during the pause. An iteration of the loop therefore counts as at most one time
slice, and no wait is longer than a slice.
"""

import asyncio
import selectors
import time
from collections.abc import Callable

SLICE_SECONDS = 0.01


class _Sliced(selectors.DefaultSelector):
    """Returns from every wait within a time slice, with or without events."""

    def __init__(self, on_return: Callable[[], None]) -> None:
        super().__init__()
        self._on_return = on_return

    def select(  # type: ignore[explicit-any] # the data of a key
        self, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(None if timeout is None else min(timeout, SLICE_SECONDS))
        self._on_return()
        return ready


class SteadyLoop(asyncio.SelectorEventLoop):
    """A loop whose clock counts a wait and the work after it as at most one time slice.

    Without load, the clock shows real time.
    """

    def __init__(self) -> None:
        self._now = self._looked = time.monotonic()
        self._latest = self._now + SLICE_SECONDS
        super().__init__(_Sliced(self._begin_iteration))

    def time(self) -> float:
        looked = time.monotonic()
        # the limit applies to an iteration, however often it reads the clock
        self._now = min(self._now + looked - self._looked, self._latest)
        self._looked = looked
        return self._now

    def _begin_iteration(self) -> None:
        self._latest = self._now + SLICE_SECONDS
        self._latest = self.time() + SLICE_SECONDS


class SteadyPolicy(asyncio.DefaultEventLoopPolicy):
    """Creates steady loops for tests that do not request another one."""

    def new_event_loop(self) -> SteadyLoop:
        return SteadyLoop()
