"""An event loop whose clock stands still while the machine does.

A test, Temper and the backend behind it mostly share a loop. When the machine has no time for
them, all of them rest: no deadline of one may then pass for the others. So an iteration of the
loop is never counted as more than a slice of time, and no wait lasts longer than one.
"""

import asyncio
import selectors
import time

SLICE_SECONDS = 0.01


class _Sliced(selectors.DefaultSelector):
    """Comes back from every wait within a slice of time, with or without something to do."""

    def select(  # type: ignore[explicit-any] # the data of a key
        self, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(None if timeout is None else min(timeout, SLICE_SECONDS))


class SteadyLoop(asyncio.SelectorEventLoop):
    """Counts each look at the clock as a slice at most; unhurried, it keeps real time."""

    def __init__(self) -> None:
        self._now = self._looked = time.monotonic()
        super().__init__(_Sliced())

    def time(self) -> float:
        looked = time.monotonic()
        self._now += min(looked - self._looked, SLICE_SECONDS)
        self._looked = looked
        return self._now


class SteadyPolicy(asyncio.DefaultEventLoopPolicy):
    """Makes steady loops wherever a test asks for none in particular."""

    def new_event_loop(self) -> SteadyLoop:
        return SteadyLoop()
