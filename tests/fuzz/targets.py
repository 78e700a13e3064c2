"""Fuzz targets: each gives random input to one part of Temper that reads foreign input.

Every input is bytes. So it can be stored in a file, made by a strategy, and changed by a
coverage-guided fuzzer.
"""

import asyncio
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from hypothesis import strategies as st

Result = TypeVar("Result")


@dataclass(frozen=True)
class Target:
    """A part of Temper that reads input; `judge` raises if the part reacts wrongly to an input.

    `is_guided` is true if randomly changed bytes often remain valid input (see `guidance`).
    """

    name: str
    inputs: st.SearchStrategy[bytes]
    judge: Callable[[bytes], object]
    is_guided: bool = True


@cache
def _runner() -> asyncio.Runner:
    return asyncio.Runner(loop_factory=asyncio.new_event_loop)


def run(work: Coroutine[object, object, Result]) -> Result:
    """Run a coroutine on the event loop that all targets share."""
    return _runner().run(work)


def close() -> None:
    """Close the loop; the next run gets a new one."""
    if _runner.cache_info().currsize:
        _runner().close()
        _runner.cache_clear()


@cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(prefix="fuzz-", ignore_cleanup_errors=True)


def in_file(name: str, data: bytes) -> Path:
    """Write an input to a file of that name, which replaces the previous one."""
    path = Path(_folder().name, name)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path
