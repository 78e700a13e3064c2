"""Connects to the first address of a server that answers (RFC 8305).

An address that drops packets delays the next by a quarter of a second only. Neither uvloop nor
every asyncio does that by itself.
"""

import asyncio
import ipaddress
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

Connected = TypeVar("Connected")
Connect: TypeAlias = Callable[[str], Awaitable[Connected]]

_HEAD_START = 0.25  # seconds before the next address is tried in parallel


async def addresses_of(host: str, port: int) -> list[str]:
    """Look up the addresses of a name, an address being its own; raises OSError."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(one[4][0]) for one in found))
    return [host]


async def first_connected(
    addresses: list[str], connect: Connect[Connected], drop: Callable[[Connected], None]
) -> Connected:
    """Connect to the first address that accepts; `drop` gets surplus connections.

    Raises the OSError of the first if all refuse.
    """
    if len(addresses) == 1:
        return await connect(addresses[0])
    rest, failures = deque(addresses), list[BaseException]()
    running: set[asyncio.Task[Connected]] = set()
    try:
        while rest or running:
            if rest:
                running.add(asyncio.ensure_future(_attempt(connect, rest.popleft())))
            patience = _HEAD_START if rest else None
            done, running = await asyncio.wait(
                running, timeout=patience, return_when=asyncio.FIRST_COMPLETED
            )
            good = [task for task in done if task.exception() is None]
            for task in good[1:]:
                drop(task.result())
            if good:
                return good[0].result()
            failures += [failure for task in done if (failure := task.exception())]
    finally:
        for task in running:
            _give_up(task, drop)
    raise failures[0]


async def _attempt(connect: Connect[Connected], address: str) -> Connected:
    return await connect(address)


def _give_up(task: asyncio.Task[Connected], drop: Callable[[Connected], None]) -> None:
    """Stop an attempt; it may have been successful just now."""

    def drop_unused(ended: asyncio.Task[Connected]) -> None:
        if not ended.cancelled() and ended.exception() is None:
            drop(ended.result())

    task.add_done_callback(drop_unused)
    task.cancel()
