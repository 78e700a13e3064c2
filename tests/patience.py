"""How long tests wait for what should come at once, so that none hangs for ever.

Nothing is measured by it: however busy a machine is, what has not come by then never will. What
is measured goes by a clock of the test's own, or by the order in which things happen.
"""

import asyncio
from collections.abc import Callable

PATIENCE_SECONDS = 300.0


async def until(is_so: Callable[[], bool]) -> None:
    """Let others work until something is so."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_so():  # noqa: ASYNC110 - what comes about has nobody who would say so
            await asyncio.sleep(0)
