"""Splits a stream of NDJSON into lines; the segments of the stream may end anywhere.

    {"message":{"content":"Hi"},"done":false}
    {"message":{"content":"!"},"done":true}

Ollama streams its replies in this format.
"""

from proxy import bounds


class LineDecoder:
    """Splits a byte stream into non-empty lines; `feed` raises ValueError above `limit` bytes."""

    def __init__(self, limit: int = bounds.EVENT_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._line: list[bytes] = []  # the parts of the incomplete line

    def feed(self, data: bytes) -> list[bytes]:
        *line_ends, incomplete = data.split(b"\n")
        lines: list[bytes] = []
        for line_end in line_ends:
            self._append(line_end)
            lines.append(self._end_line())
        self._append(incomplete)
        return [line for line in lines if line]

    def finish(self) -> list[bytes]:
        """Return the last line, if the stream ended without a line end."""
        last = self._end_line()
        return [last] if last else []

    def _append(self, part: bytes) -> None:
        self._line.append(part)
        self._size += len(part)
        if self._size > self._limit:
            raise ValueError(f"a line is longer than {self._limit} bytes")

    def _end_line(self) -> bytes:
        line = b"".join(self._line).strip()
        self._line.clear()
        self._size = 0
        return line
