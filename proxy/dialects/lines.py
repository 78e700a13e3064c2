"""NDJSON lines: decoding of a byte stream at any chunking.

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
        self._pieces: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        *ended, rest = data.split(b"\n")
        lines: list[bytes] = []
        for piece in ended:
            self._keep(piece)
            lines.append(self._take())
        self._keep(rest)
        return [line for line in lines if line]

    def finish(self) -> list[bytes]:
        """Return the line that the end of the stream completes, if any."""
        last = self._take()
        return [last] if last else []

    def _keep(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            raise ValueError(f"a line is longer than {self._limit} bytes")

    def _take(self) -> bytes:
        line = b"".join(self._pieces).strip()
        self._pieces.clear()
        self._size = 0
        return line
