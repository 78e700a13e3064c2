"""Lines below the output of a terminal, such as one for each running request.

Theory of operation: after drawing the lines, the cursor returns to the first column of the first
line. Erasing from the cursor to the end of the screen then removes the lines, even if the terminal
was resized and has wrapped them. `LiveLines` replaces `sys.stderr`: it erases the lines, writes the
log line, and draws the lines again, so that log lines scroll above them.
"""

import asyncio
import contextlib
import io
import os
import re
import select
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import TextIO, cast

_TICK_SECONDS = 0.25  # between two redraws while a request is running
_IDLE_SECONDS = 0.5  # between two checks while no request is running
_ERASE = "\r\x1b[J"
# disables wrapping, so that a character that is wider than `cell_len` computed adds no line
_BEGIN, _END = "\x1b[?7l\x1b[2m", "\x1b[0m\x1b[?7h\r"
# ANSI escape sequences: they print no characters, so they neither begin nor end a line
_CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_USUAL_SIZE = os.terminal_size((80, 24))


class LiveLines(io.TextIOBase):
    """A terminal `stream` whose last lines are replaced by each call of `show`."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._lines: tuple[str, ...] = ()
        self._is_drawn = False
        self._is_in_line = False  # True if the last output did not end with a line break
        self._lock = threading.Lock()  # other threads also write log lines

    def show(self, lines: Iterable[str]) -> None:
        """Replace the lines, cut to the width. A paused terminal (Ctrl-S) keeps the old lines."""
        cut = tuple(cut_to_cells(line, self.size.columns - 1) for line in lines)
        with self._lock, contextlib.suppress(OSError, ValueError):  # the terminal is closed
            if (cut == self._lines and self._is_drawn == bool(cut)) or self._is_paused:
                return
            erased = _ERASE if self._is_drawn else ""
            self._lines = cut
            self._stream.write(f"{erased}{self._draw()}")
            self._stream.flush()

    def write(self, text: str) -> int:
        """Write other output above the lines."""
        with self._lock:
            erased = _ERASE if self._is_drawn else ""
            if printed := _CODES.sub("", text):
                self._is_in_line = not printed.endswith("\n")
            self._stream.write(f"{erased}{text}{self._draw()}")
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def size(self) -> os.terminal_size:
        with contextlib.suppress(OSError, ValueError):  # not a terminal, or closed
            size = os.get_terminal_size(self.fileno())
            if size.columns and size.lines:
                return size
        return _USUAL_SIZE

    @property
    def _is_paused(self) -> bool:
        """True after Ctrl-S: further drawings would only fill the queue of `standard_error`."""
        try:
            return not select.select([], [self.fileno()], [], 0)[1]
        except (OSError, ValueError):  # on Windows, `select` supports only sockets
            return False

    def _draw(self) -> str:
        self._is_drawn = bool(self._lines) and not self._is_in_line
        if not self._is_drawn:
            return ""
        up = len(self._lines) - 1
        return "".join((_BEGIN, "\n".join(self._lines), _END, f"\x1b[{up}A" if up else ""))


def cut_to_cells(text: str, room: int) -> str:
    """Cut a text to `room` columns of a terminal; a wide character takes two columns."""
    from rich.cells import cell_len, set_cell_size  # imported late: rich takes 2 MB

    return text if cell_len(text) <= room else set_cell_size(text, room).rstrip()


@contextmanager
def open_live_lines(*, is_wanted: bool) -> Generator[LiveLines | None]:
    """Put live lines below standard error during the block, if that is a terminal."""
    can_draw = is_wanted and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    if not can_draw:
        yield None
        return
    lines = LiveLines(sys.stderr)
    with contextlib.redirect_stderr(cast("TextIO", lines)):
        try:
            yield lines
        finally:
            lines.show(())


async def keep_drawing(
    lines: LiveLines, compose: Callable[[int], Sequence[str]], is_idle: Callable[[], bool]
) -> None:
    """Draw the lines of `compose` a few times per second.

    The argument of `compose` is the maximum number of lines.
    """
    while True:
        # half of the screen remains for log lines
        lines.show(() if is_idle() else compose(max(1, lines.size.lines // 2)))
        await asyncio.sleep(_IDLE_SECONDS if is_idle() else _TICK_SECONDS)
