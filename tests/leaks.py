"""Finds sockets that a test has left open, while it is still known whose they are.

Left to the garbage collector they would be complained about in whichever test runs then, and
amid anything that it does.
"""

import asyncio
import gc
import os
import stat
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TypeAlias

OpenSocket: TypeAlias = tuple[int, int]
"""A descriptor, and the number of its socket: descriptors are used again."""

_DESCRIPTORS = Path("/dev/fd")


def open_sockets() -> frozenset[OpenSocket]:
    """Return the sockets that this process has open; none where that cannot be told."""
    found: set[OpenSocket] = set()
    for name in os.listdir(_DESCRIPTORS) if _DESCRIPTORS.is_dir() else ():  # noqa: PTH208 - faster
        try:
            about = os.fstat(int(name))
        except OSError:  # the folder itself was one of them
            continue
        if stat.S_ISSOCK(about.st_mode):
            found.add((int(name), about.st_ino))
    return frozenset(found)


def left_open(suspects: AbstractSet[OpenSocket]) -> list[str]:
    """Describe those transports among the suspects that nobody can close: their loop is over.

    What is left belongs to an event loop that still runs, or to no event loop: to a client that
    several tests share, for example.
    """
    descriptors = {descriptor for descriptor, _ in suspects}
    return [
        f"{one!r} from {one.get_extra_info('sockname')} to {one.get_extra_info('peername')}"
        for one in gc.get_objects()
        if issubclass(type(one), asyncio.Transport)  # a proxy of what is gone answers nothing
        and one.get_extra_info("socket") is not None
        and one.get_extra_info("socket").fileno() in descriptors
        and one._loop.is_closed()  # noqa: SLF001 - nobody else tells
    ]
