"""What Ctrl-C and SIGTERM do while no event loop runs: they end the process at once.

Nothing has been started then that would have to be stopped. Imports next to nothing, because it
is the first of all.
"""

# Python's own answer to Ctrl-C is an exception wherever the program happens to be. Amid an import
# that leaves a traceback, and in a destructor, a callback of a weak reference or whatever catches
# everything, it is lost. Ending needs no such luck.

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130  # what a shell reports for Ctrl-C
ENDING = (signal.SIGINT, signal.SIGTERM)


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals that mean the end: in the background, shells have SIGINT ignored."""
    return tuple(one for one in ENDING if signal.getsignal(one) is not signal.SIG_IGN)


def leave_when_signalled() -> None:
    """Let a signal end this process at once, from now on."""
    for number in ending_signals():
        signal.signal(number, _leave)


@contextmanager
def keep_handlers() -> Iterator[None]:
    """Put back what answered signals before the block: an event loop leaves Python's own."""
    before = {number: signal.getsignal(number) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_process(exit_code: int) -> NoReturn:
    """End without waiting for threads: Python joins even those of tools that were given up."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
