"""How long tests wait for what should come at once, so that none hangs for ever.

Nothing is measured by it: however busy a machine is, what has not come by then never will. What
is measured goes by a clock of the test's own, or by the order in which things happen.
"""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import ParamSpec

P = ParamSpec("P")

PATIENCE_SECONDS = 300.0


def patient(
    test: Callable[P, Coroutine[None, None, None]],
) -> Callable[P, Coroutine[None, None, None]]:
    """End a test that waits for what never comes."""

    @functools.wraps(test)
    async def end_in_time(*args: P.args, **kwargs: P.kwargs) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await test(*args, **kwargs)

    return end_in_time


async def until(is_so: Callable[[], bool]) -> None:
    """Let others work until something is so."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_so():  # noqa: ASYNC110 - what comes about has nobody who would say so
            await asyncio.sleep(0)
