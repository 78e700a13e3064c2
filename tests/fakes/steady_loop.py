"""An event loop whose clock stands still while the machine does.

A test, Temper and the backend behind it mostly share a loop. When the machine has no time for
them, all of them rest: no deadline of one may then pass for the others. So an iteration of the
loop is never counted as more than a slice of time, and no wait lasts longer than one.
"""

import asyncio
import selectors
import time
from collections.abc import Callable

SLICE_SECONDS = 0.01


class _Sliced(selectors.DefaultSelector):
    """Comes back from every wait within a slice of time, with or without something to do."""

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
    """Counts a wait, and the work behind it, as a slice at most; unhurried, it keeps real time."""

    def __init__(self) -> None:
        self._now = self._looked = time.monotonic()
        self._latest = self._now + SLICE_SECONDS
        super().__init__(_Sliced(self._begin_iteration))

    def time(self) -> float:
        looked = time.monotonic()
        # however often the work of an iteration asks for the time
        self._now = min(self._now + looked - self._looked, self._latest)
        self._looked = looked
        return self._now

    def _begin_iteration(self) -> None:
        self._latest = self._now + SLICE_SECONDS
        self._latest = self.time() + SLICE_SECONDS


class SteadyPolicy(asyncio.DefaultEventLoopPolicy):
    """Makes steady loops wherever a test asks for none in particular."""

    def new_event_loop(self) -> SteadyLoop:
        return SteadyLoop()
