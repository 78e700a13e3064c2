"""A line at the end of a terminal's output that says what a command waits for, and for how long.

The running event loop redraws it, so no lock is needed: `clear` it before anything else is printed.
It returns after a quiet moment. It is erased from the column where it begins, as a terminal may
have echoed keys behind it, such as ^C.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO, TypeAlias

from proxy.observability.sentences import escape

# A function writes the whole line, times included; it is called whenever the line is drawn.
Activity: TypeAlias = str | Callable[[], str]

_TICK_SECONDS = 0.25
_QUIET_SECONDS = 1.0  # since the last output: between two tokens the line would only flicker
_LEAST_CELLS = 16  # of free room; a line cut shorter says nothing
_USUAL_COLUMNS = 80


class StatusLine:
    """Draws on `stream`; without one, every method does nothing. `clock` counts seconds."""

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream, self._clock = stream, clock
        self._activity: Activity = ""
        self._began = self._printed = clock() - _QUIET_SECONDS
        self._column = 0  # cells of the last line of other output
        self._drawn = ""
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> "StatusLine":
        return self

    def __exit__(self, *_raised: object) -> None:
        self.end()

    def begin(self, activity: Activity) -> None:
        """Show that an activity begins; counts its seconds from now on."""
        self._activity, self._began = activity, self._clock()
        if self._stream is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_TICK_SECONDS, self._tick)

    def update(self, activity: str) -> None:
        """Describe the current activity differently; its seconds go on counting."""
        self._activity = activity

    def clear(self) -> None:
        """Erase the line, as other output follows."""
        if self._stream is None:
            return
        self._erase()
        self._stream.flush()
        self._printed = self._clock()

    def follow(self, text: str) -> None:
        """Note the `text` that was printed: the line is drawn after it where there is room."""
        if self._stream is None:
            return
        from rich.cells import cell_len  # rich takes 2 MB

        *ended, last = text.split("\n")
        self._column = 0 if ended else self._column
        columns = self._columns
        for character in last:
            width = cell_len(character) if character != "\t" else 8 - self._column % 8
            is_full = self._column + width > columns
            self._column = width if is_full else self._column + width

    def end(self) -> None:
        """Erase the line for good, until the next `begin`."""
        self._activity = ""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self.clear()

    def draw(self) -> None:
        """Draw the line as it is now, unless something was printed a moment ago."""
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
        """Return the line, cut to the room there is; the last column stays free."""
        from rich.cells import cell_len

        activity = self._activity
        if isinstance(activity, str):
            text = f"{activity} ({format_seconds(self._clock() - self._began)})"
        else:
            text = activity()
        text = f"{'  ' if self._column else ''}{escape(text)}"
        room = self._columns - self._column - 1
        if room < min(_LEAST_CELLS, self._columns - 1):
            return ""
        while cell_len(text) > room:
            text = text[:-1]
        return text

    def _erase(self) -> None:
        if self._drawn and self._stream is not None:
            self._stream.write(f"\x1b[{self._column + 1}G\x1b[K")
        self._drawn = ""

    @property
    def _columns(self) -> int:
        with suppress(OSError, ValueError):  # it is no terminal, or is closed
            if self._stream is not None:
                return os.get_terminal_size(self._stream.fileno()).columns or _USUAL_COLUMNS
        return _USUAL_COLUMNS


def open_status_line(*, is_wanted: bool = True) -> StatusLine:
    """Return a status line on standard error; one that does nothing where that is no terminal."""
    can_draw = is_wanted and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    return StatusLine(sys.stderr if can_draw else None)


def format_seconds(seconds: float) -> str:
    """Write a duration of at least 0 seconds, such as `12 s` or `3 min 20 s`."""
    whole = max(0, int(seconds))
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60} s"
