"""The last lines that a child process wrote, kept within bounds and safe to show on a terminal."""

import re
from collections import deque

MOST_LINES = 200
LONGEST_LINE = 1000
_PERCENTAGE = re.compile(r"\d{1,3}%(\\x1b\[K)?$")  # what a progress bar ends with


class LogTail:
    """Cuts what a child writes into lines and keeps the last of them."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._unfinished = b""

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines, oldest first."""
        return tuple(self._lines)

    @property
    def dots(self) -> str:
        """The line that is not complete yet, if it is a row of dots."""
        dots = self._unfinished.strip(b".") == b""
        return self._unfinished.decode() if dots else ""

    def feed(self, output: bytes) -> list[str]:
        """Take more output; return the lines that it completes."""
        *complete, rest = (self._unfinished + output).replace(b"\r", b"\n").split(b"\n")
        # a line without an end must not grow for ever: what exceeds the bound is dropped
        self._unfinished = rest[: LONGEST_LINE * 4]
        return self._keep(complete)

    def finish(self) -> list[str]:
        """Return the last line if it had no end."""
        rest, self._unfinished = self._unfinished, b""
        return self._keep([rest])

    def _keep(self, raw_lines: list[bytes]) -> list[str]:
        lines = [_printable(raw) for raw in raw_lines if raw.strip()]
        for line in lines:
            # of a progress bar the latest state is enough: else there would be nothing but bars
            if self._lines and _PERCENTAGE.search(line) and _PERCENTAGE.search(self._lines[-1]):
                self._lines.pop()
            self._lines.append(line)
        return lines


def _printable(raw: bytes) -> str:
    text = raw.decode("utf-8", "replace")[:LONGEST_LINE].rstrip().replace("\t", " ")
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
