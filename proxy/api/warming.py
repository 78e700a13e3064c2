"""Prepares, in a thread, what the first replies would otherwise wait for."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from proxy.guardrails.announcements.recognition import prepare

_DELAY_SECONDS = 0.5  # the first request comes first
_SWITCH_SECONDS = 0.0005  # else the event loop would wait ten times as long for the GIL
GENTLE_WORK = threading.Lock()  # is held meanwhile: two would take each other's for the usual


@contextmanager
def warm_up(
    work: Callable[[], None] = prepare, delay: float = _DELAY_SECONDS
) -> Iterator[threading.Timer]:
    """Do some work in a thread while the block runs, or not at all if the block ends first."""
    timer = threading.Timer(delay, _run_low_priority, (work,))
    timer.daemon = True
    timer.start()
    try:
        yield timer
    finally:
        timer.cancel()


def _run_low_priority(work: Callable[[], None]) -> None:
    """Do work while other threads get the GIL soon."""
    with GENTLE_WORK:
        before = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_SECONDS)
        try:
            work()
        finally:
            sys.setswitchinterval(before)
