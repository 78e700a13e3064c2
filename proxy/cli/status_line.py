"""A line at the end of the terminal output with the current activity and its duration.

The event loop redraws the line, so no lock is needed. Call `clear` before printing other output;
the line reappears after a pause. The line is erased up to the end of its row, because the terminal
may have echoed keys such as ^C after the line.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO, TypeAlias

from proxy.cli.live_lines import cut_to_cells
from proxy.observability.sentences import escape

# A string, to which the duration is appended; or a function that returns the complete text and is
# called for each redraw.
Activity: TypeAlias = str | Callable[[], str]

_TICK_SECONDS = 0.25  # between two redraws
_QUIET_SECONDS = 1.0  # pause after other output, so that the line does not flicker between tokens
_LEAST_CELLS = 16  # free columns needed to draw; a shorter line is not useful
_USUAL_COLUMNS = 80  # for a terminal that does not report its width


class StatusLine:
    """Draws on `stream`; without a stream, all methods do nothing. `clock` returns seconds."""

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._clock = stream, clock
        self._activity: Activity = ""
        self._began = self._printed = clock() - _QUIET_SECONDS
        self._column = 0  # columns that the last line of other output occupies
        self._drawn = ""
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> "StatusLine":
        return self

    def __exit__(self, *_raised: object) -> None:
        self.end()

    def begin(self, activity: Activity) -> None:
        """Show a new activity, and start counting its seconds."""
        self._activity, self._began = activity, self._clock()
        if self._stream is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_TICK_SECONDS, self._tick)

    def update(self, activity: str) -> None:
        """Change the description of the current activity without resetting its time."""
        self._activity = activity

    def clear(self) -> None:
        """Erase the line before other output."""
        if self._stream is None:
            return
        self._erase()
        self._stream.flush()
        self._printed = self._clock()

    def follow(self, text: str) -> None:
        """Note that `text` was printed; the line is drawn after it if the row has space."""
        if self._stream is None:
            return
        from rich.cells import cell_len  # imported late: rich takes 2 MB

        *complete_lines, last = text.split("\n")
        self._column = 0 if complete_lines else self._column
        columns = self._columns
        for character in last:
            width = cell_len(character) if character != "\t" else 8 - self._column % 8
            is_full = self._column + width > columns
            self._column = width if is_full else self._column + width

    def end(self) -> None:
        """Erase the line until the next `begin`."""
        self._activity = ""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.clear()

    def draw(self) -> None:
        """Draw the line, unless other output was printed a moment ago."""
        if self._stream is None or self._clock() - self._printed < _QUIET_SECONDS:
            return
        text = self._text()
        if text == self._drawn:
            return
        self._erase()
        if text:
            self._stream.write(f"\x1b[2m{text}\x1b[0m")
        self._drawn = text
        self._stream.flush()

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_TICK_SECONDS, self._tick)
        self.draw()

    def _text(self) -> str:
        """Return the line, cut to the free space; the last column stays empty."""
        activity = self._activity
        if isinstance(activity, str):
            text = f"{activity} ({format_seconds(self._clock() - self._began)})"
        else:
            text = activity()
        text = f"{'  ' if self._column else ''}{escape(text)}"
        room = self._columns - self._column - 1
        if room < min(_LEAST_CELLS, self._columns - 1):
            return ""
        return cut_to_cells(text, room)

    def _erase(self) -> None:
        if self._drawn and self._stream is not None:
            self._stream.write(f"\x1b[{self._column + 1}G\x1b[K")
        self._drawn = ""

    @property
    def _columns(self) -> int:
        with suppress(OSError, ValueError):  # not a terminal, or closed
            if self._stream is not None:
                return os.get_terminal_size(self._stream.fileno()).columns or _USUAL_COLUMNS
        return _USUAL_COLUMNS


def open_status_line(*, is_wanted: bool = True) -> StatusLine:
    """Return a status line on standard error; it does nothing if that is not a terminal."""
    can_draw = is_wanted and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return StatusLine(sys.stderr if can_draw else None)


def format_seconds(seconds: float) -> str:
    """Write a duration, such as `12 s` or `3 min 20 s`; a negative duration is `0 s`."""
    total = max(0, int(seconds))
    return f"{total} s" if total < 120 else f"{total // 60} min {total % 60} s"
