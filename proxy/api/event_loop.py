"""Chooses the event loop, tunes the garbage collector, and speeds up the first imports.

This module imports only the standard library, because it is used before all other modules.
"""

import asyncio
import gc
import sys
from collections.abc import Callable
from types import ModuleType
from typing import cast

_COMMAND_LINE_OF_HTTPX = "httpx._main"


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Choose uvloop if it is installed; it does not exist for Windows."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop


def delay_collection() -> None:
    """Collect garbage rarely during startup, because nearly all objects of the startup survive."""
    gc.set_threshold(500_000)


def import_libraries() -> None:
    """Import httpx and FastAPI without unused parts; this saves a tenth of the start time.

    httpx has a command line that Temper does not need. If rich is installed, httpx would import it,
    and pygments as well. Pydantic compiles FastAPI's models of OpenAPI only when they are used.
    """
    from pydantic import BaseModel

    if "httpx" not in sys.modules:
        # with None, the import of the command line fails, as if its dependencies were missing
        sys.modules[_COMMAND_LINE_OF_HTTPX] = cast("ModuleType", None)
    original = BaseModel.model_config
    BaseModel.model_config = {**original, "defer_build": True}
    try:
        import fastapi
        import httpx

        del fastapi, httpx
    finally:
        BaseModel.model_config = original
        if sys.modules.get(_COMMAND_LINE_OF_HTTPX, sys) is None:
            del sys.modules[_COMMAND_LINE_OF_HTTPX]


def freeze_objects() -> None:
    """Exclude the imported objects from garbage collection; this raises throughput by a sixth.

    New objects are also collected rarely, because a request leaves few reference cycles.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
