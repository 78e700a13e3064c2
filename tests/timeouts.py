"""A time limit for events that should happen at once, so that no test hangs.

The limit is so long that even on a busy machine, an event that has not happened within it never
happens. Tests that measure a time use their own clock, or the order of events.
"""

import asyncio
import functools
import time
from collections.abc import Callable, Coroutine
from typing import ParamSpec

P = ParamSpec("P")

TIMEOUT_SECONDS = 300.0
BUSY_LOOKS = 500  # after so many checks, `until` waits for another process or for a thread


def with_timeout(
    test: Callable[P, Coroutine[None, None, None]],
) -> Callable[P, Coroutine[None, None, None]]:
    """Fail a test that waits for an event that never happens."""

    @functools.wraps(test)
    async def end_in_time(*args: P.args, **kwargs: P.kwargs) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await test(*args, **kwargs)

    return end_in_time


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait for another process or thread, and leave it the CPU between two checks."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


async def until(is_so: Callable[[], bool]) -> None:
    """Let other tasks and processes work until a condition is true."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        looks = 0
        while not is_so():  # there is no event to wait for
            looks += 1
            # at first only other tasks run; later, the pause also leaves other processes the CPU
            await asyncio.sleep(0 if looks < BUSY_LOOKS else 0.002)
