"""Signal handling outside of an event loop: Ctrl-C and SIGTERM end the process at once.

At that time nothing runs that would have to be stopped. This module is imported first, so it
imports almost nothing.
"""

# By default, Ctrl-C raises KeyboardInterrupt at an arbitrary place. During an import it prints a
# traceback; in a destructor, a weak reference callback or a broad `except` it is lost.

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130  # exit code after Ctrl-C, as in shells
ENDING = (signal.SIGINT, signal.SIGTERM)


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the handled signals; shells ignore SIGINT for background processes."""
    return tuple(number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN)


def exit_when_signalled() -> None:
    """Install handlers that end this process at once."""
    for number in ending_signals():
        signal.signal(number, _leave)


@contextmanager
def keep_handlers() -> Iterator[None]:
    """Restore the handlers after the block: an event loop leaves Python's defaults."""
    before = {number: signal.getsignal(number) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_process(exit_code: int) -> NoReturn:
    """Exit without joining threads: Python would wait even for those of abandoned tools."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
