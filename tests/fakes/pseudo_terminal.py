"""Runs a command on a pseudo terminal of a given width."""

import codecs
import fcntl
import os
import re
import select
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.fakes.quick_start import COMMAND, Program
from tests.timeouts import TIMEOUT_SECONDS

CODES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_MOVES = re.compile(r"(\x1b\[[0-9;?]*[a-zA-Z]|\r)|([^\x1b\r]+)")


def visible_line(raw: str) -> str:
    """Return a line as a terminal displays it, without erased and overwritten columns."""
    shown, column = "", 0
    for code, text in _MOVES.findall(raw):
        if code.endswith("G"):
            column = int(code[2:-1]) - 1
        elif code.endswith("K"):
            shown = shown[:column]
        elif code == "\r":
            column = 0
        shown = shown[:column].ljust(column) + text + shown[column + len(text) :] if text else shown
        column += len(text)
    return shown


class WatchedCommand:
    """A command with a recorded terminal."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process = process
        self.raw = ""
        self._terminal = terminal
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    @property
    def shown(self) -> str:
        """The whole output, without control sequences."""
        return CODES.sub("", self.raw)

    @property
    def visible(self) -> str:
        """The output without erased text."""
        return "\n".join(map(visible_line, self.raw.split("\n")))

    def type(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def read_until(self, pattern: str) -> re.Match[str]:
        """Read until the output matches, and return the match."""
        while (match := re.search(pattern, self.shown)) is None:
            assert self._read(), f"ended without {pattern!r}: {self.shown}"
        return match

    def read_to_the_end(self) -> str:
        """Read until the command has ended."""
        while self._read():
            pass
        return self.shown

    def _read(self) -> bool:
        readable, _, _ = select.select([self._terminal], [], [], TIMEOUT_SECONDS)
        try:
            piece = os.read(self._terminal, 65536) if readable else b""
        except OSError:  # the command has closed the terminal
            piece = b""
        self.raw += self._decoder.decode(piece)
        return bool(piece)


@contextmanager
def on_terminal(
    columns: int, *arguments: str, environment: dict[str, str] | None = None
) -> Iterator[WatchedCommand]:
    """Run `temper` on a pseudo-terminal; it is killed when the block ends."""
    terminal, child = os.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    surroundings = {**os.environ, "TERM": "xterm-256color", **(environment or {})}
    if "NO_COLOR" not in (environment or {}):
        surroundings.pop("NO_COLOR", None)
    surroundings.pop("COLUMNS", None)
    with Program[bytes](
        [*COMMAND, *arguments],
        stdin=child,
        stdout=child,
        stderr=child,
        env=surroundings,
        start_new_session=True,
    ) as process:
        os.close(child)
        watchdog = threading.Timer(TIMEOUT_SECONDS, process.kill)
        watchdog.start()
        try:
            yield WatchedCommand(process, terminal)
        finally:
            watchdog.cancel()
            process.kill()
            os.close(terminal)
