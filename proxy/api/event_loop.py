"""How the process runs: its event loop and its garbage collector. Imports nothing heavy."""

import asyncio
import gc
from collections.abc import Callable


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Choose the faster event loop where there is one; it does not exist for Windows."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop


def hurry() -> None:
    """Spare the collector the time of the start, in which nearly everything that is made stays."""
    gc.set_threshold(500_000)


def settle() -> None:
    """Spare the collector what was imported and lives for ever: a sixth more requests a second."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
