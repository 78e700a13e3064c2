"""Signal handling outside of an event loop: Ctrl-C and SIGTERM end the process at once.

Outside of an event loop, no task or child process needs cleanup. `proxy.__main__` imports this
module first, so it imports only small modules.
"""

# Python's default handler raises KeyboardInterrupt at an arbitrary line. If that line is in an
# import, a traceback is printed. If it is in a destructor, in the callback of a weak reference or
# in a block with a broad `except`, the exception is lost.

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
    """Return the signals to handle, without SIGINT if a shell started Temper in the background."""
    return tuple(number for number in ENDING if signal.getsignal(number) is not signal.SIG_IGN)


def exit_when_signalled() -> None:
    """Install handlers that end this process at once."""
    for number in ending_signals():
        signal.signal(number, _exit)


@contextmanager
def keep_handlers() -> Iterator[None]:
    """Restore the handlers after the block: an event loop resets them to Python's defaults."""
    before = {number: signal.getsignal(number) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_process(exit_code: int) -> NoReturn:
    """Exit at once. Python would first wait for all threads, also for those of abandoned tools."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def _exit(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
