"""Finds sockets that a test leaves open, before the next test starts.

The garbage collector would report them later, during another test.
"""

import asyncio
import gc
import os
import stat
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TypeAlias

OpenSocket: TypeAlias = tuple[int, int]
"""A descriptor, and the inode of its socket, because the system reuses descriptors."""

_DESCRIPTORS = Path("/dev/fd")


def open_sockets() -> frozenset[OpenSocket]:
    """Return the open sockets of this process; empty where the system cannot list them."""
    sockets: set[OpenSocket] = set()
    for name in os.listdir(_DESCRIPTORS) if _DESCRIPTORS.is_dir() else ():  # noqa: PTH208 - faster
        try:
            about = os.fstat(int(name))
        except OSError:  # the descriptor of the folder itself
            continue
        if stat.S_ISSOCK(about.st_mode):
            sockets.add((int(name), about.st_ino))
    return frozenset(sockets)


def left_open(suspects: AbstractSet[OpenSocket]) -> list[str]:
    """Describe the suspects that nothing can close any more, because their event loop is closed.

    The other suspects belong to an event loop that still runs, or to no event loop, such as the
    sockets of a client that several tests share.
    """
    descriptors = {descriptor for descriptor, _ in suspects}
    return [
        f"{item!r} from {item.get_extra_info('sockname')} to {item.get_extra_info('peername')}"
        for item in gc.get_objects()
        # not `isinstance`: it raises ReferenceError for a weak proxy whose object is gone
        if issubclass(type(item), asyncio.Transport)
        and item.get_extra_info("socket") is not None
        and item.get_extra_info("socket").fileno() in descriptors
        and item._loop.is_closed()  # noqa: SLF001 - transports have no public attribute for it
    ]
