"""A standard error that never blocks its writers.

Theory of operation: a write blocks while a terminal is paused (Ctrl-S), while the reader of a pipe
does not read, and while the disk of a file is blocked. In the event loop, such a write would block
all requests; at the end of the process, it would delay the exit. So a thread writes. While too much
text waits for this thread, further text is dropped, and a later log line reports how many texts
were dropped.
"""

import atexit
import contextlib
import io
import logging
import sys
import threading
import time
from queue import SimpleQueue

logger = logging.getLogger(__name__)

MOST_WAITING = 10_000  # writes, usually lines of less than 1 kB
_LAST_WAIT_SECONDS = 1.0
_RETRY_SECONDS = 0.02


class BackgroundStream(io.TextIOBase):
    """Writes text to a file in a thread.

    `raw` is unbuffered: at exit, the interpreter would flush a buffer and wait for its lock.
    """

    def __init__(self, raw: io.RawIOBase, encoding: str) -> None:
        super().__init__()
        self._raw, self._encoding = raw, encoding
        self._waiting: SimpleQueue[bytes | threading.Event] = SimpleQueue()
        self._dropped = 0
        self._lock = threading.Lock()
        threading.Thread(target=self._run, name="standard-error", daemon=True).start()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # typeshed has a variable
        return self._encoding

    def write(self, text: str) -> int:
        """Enqueue a text.

        Like every text stream, it raises an error for bytes; click recognizes text streams by this.
        """
        data = text.encode(self._encoding, "backslashreplace")
        if self._waiting.qsize() < MOST_WAITING:
            self._waiting.put(data)
        else:
            with self._lock:
                self._dropped += 1
        return len(text)

    def flush(self) -> None:
        """Return at once: callers flush every line, and waiting would not speed up the thread."""

    def drain(self) -> None:
        """Wait until earlier texts are written, at most one second."""
        is_written = threading.Event()
        self._waiting.put(is_written)
        is_written.wait(_LAST_WAIT_SECONDS)

    def isatty(self) -> bool:
        return self._raw.isatty()

    def fileno(self) -> int:
        return self._raw.fileno()

    def _run(self) -> None:
        while True:
            waiting = self._waiting.get()
            if isinstance(waiting, bytes):
                self._write(waiting)
            if self._dropped and self._waiting.empty():
                with self._lock:
                    dropped, self._dropped = self._dropped, 0
                logger.warning("standard error was blocked: %d log lines were dropped", dropped)
            if isinstance(waiting, threading.Event):
                waiting.set()

    def _write(self, text: bytes) -> None:
        data = memoryview(text)
        with contextlib.suppress(OSError, ValueError):  # the terminal is closed, or the disk full
            while data:
                length = self._raw.write(data)
                if length is None:  # another process has made the shared terminal non-blocking
                    time.sleep(_RETRY_SECONDS)
                data = data[length or 0 :]


def unblock_standard_error() -> None:
    """If `sys.stderr` writes to a file, replace it for the rest of the process."""
    stream = sys.stderr
    if not isinstance(stream, io.TextIOWrapper):  # it is None without a console
        return
    stream.flush()
    raw = stream.buffer.raw if isinstance(stream.buffer, io.BufferedWriter) else stream.buffer
    if isinstance(raw, io.RawIOBase):
        sys.stderr = background = BackgroundStream(raw, stream.encoding)
        atexit.register(background.drain)
