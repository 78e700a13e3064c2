"""Measures the cost of an input: CPU time, and peak memory beyond the input itself.

The Linux kernel counts the peak of a process and can reset it. On other systems memory is not
measured.
"""

import contextlib
import faulthandler
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

MEGABYTE = 2**20
MOST_SECONDS = 1.0  # CPU time per input
MOST_BYTES = 64 * MEGABYTE  # bytes of memory beyond those in use before the input
COPIES = 8  # permitted copies of an input in memory at once, including decoded ones
_HOPELESS = 10  # an input is stopped at this multiple of MOST_SECONDS
_IDLE_SECONDS = 60.0  # seconds of wall time after which a waiting input is stopped
_FROZEN_SECONDS = 600.0  # seconds of wall time after which the process is killed

_STANDARD_ERROR = 2
_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
_SIZES = re.compile(r"Vm(HWM|RSS):\s+(\d+) kB")


class Stalled(AssertionError):
    """An input used too much processor time, or waited without end."""


class Swelled(AssertionError):
    """An input took too much memory."""


@dataclass
class Cost:
    """The highest costs of an input so far: seconds of CPU time, and bytes."""

    seconds: float = 0.0
    bytes: int = 0

    def add(self, other: "Cost") -> None:
        self.seconds = max(self.seconds, other.seconds)
        self.bytes = max(self.bytes, other.bytes)


@contextlib.contextmanager
def watching(cost: Cost, size: int, *, slowness: float = 1.0) -> Iterator[None]:
    """Measure the block; raises `Stalled` or `Swelled` at its limits.

    `size` is the size of the input; `slowness` is how many times slower the code runs than usual.
    """
    most = MOST_SECONDS * slowness
    before, began = _begin_peak(), time.process_time()
    try:
        with _given_up_after(most * _HOPELESS), _given_up_when_idle(_IDLE_SECONDS * slowness):
            yield
    finally:
        cost.seconds = time.process_time() - began
        cost.bytes = max(0, _sizes().get("HWM", 0) - before)
    if cost.seconds > most:
        raise Stalled(f"took {cost.seconds:.2f} s of processor time, more than {most:g}")
    if cost.bytes > MOST_BYTES + COPIES * size:
        raise Swelled(f"took {cost.bytes / MEGABYTE:.0f} MB more than its input of {size} bytes")


@contextlib.contextmanager
def _given_up_after(seconds: float) -> Iterator[None]:
    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise Stalled(f"was stopped after {seconds:g} s of processor time")

    previous = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    faulthandler.dump_traceback_later(_FROZEN_SECONDS, exit=True, file=_STANDARD_ERROR)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)


@contextlib.contextmanager
def _given_up_when_idle(seconds: float) -> Iterator[None]:
    def give_up(_number: int, _frame: FrameType | None) -> None:
        raise Stalled(f"waited for more than {seconds:g} s")

    if signal.getsignal(signal.SIGALRM) is None:  # Atheris has its own handler
        yield
        return
    previous = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _begin_peak() -> int:
    """Reset the peak; returns the memory that is in use now."""
    with contextlib.suppress(OSError):
        _RESET.write_text(_RESET_PEAK)
    return _sizes().get("RSS", 0)


def _sizes() -> dict[str, int]:
    """Return the process's current and peak memory in bytes; empty where it is unavailable."""
    try:
        sizes = _SIZES.findall(_STATUS.read_text())
    except OSError:
        return {}
    return {name: int(kilobytes) * 1024 for name, kilobytes in sizes}
