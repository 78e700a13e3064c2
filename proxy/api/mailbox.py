"""What one task has ready for another, handed over in whole batches.

A memory stream of anyio costs a turn of the loop and a cancel scope for each item, which is most of
what a streamed token costs at this edge.
"""

import asyncio
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Mailbox(Generic[Item]):
    """One task puts, one task takes; `room` items may wait."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._items: list[Item] = []
        self._is_closed = False
        self._waiting: asyncio.Future[None] | None = None

    async def put(self, item: Item) -> None:
        """Add an item, and wait while there is no room for another one."""
        self._items.append(item)
        self._wake()
        while len(self._items) >= self._room:
            await self._wait()

    def close(self) -> None:
        """Say that nothing more will be put."""
        self._is_closed = True
        self._wake()

    async def take(self) -> list[Item]:
        """Return everything there is, and wait while there is nothing; empty at the end."""
        while not (self._items or self._is_closed):
            await self._wait()
        taken, self._items = self._items, []
        self._wake()
        return taken

    async def _wait(self) -> None:
        # Only one of the two can have a reason to wait. Whoever was woken may run after the other
        # has begun to wait.
        own = self._waiting = asyncio.get_running_loop().create_future()
        try:
            await own
        finally:
            if self._waiting is own:
                self._waiting = None

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)
