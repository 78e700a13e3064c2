"""The command `temper` in a process of its own, watched so that no test waits for ever."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE_SECONDS = 60.0


@contextmanager
def temper(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run `temper`; it is killed when the block ends, and after a while in any case."""
    with subprocess.Popen(
        [sys.executable, "-m", "proxy", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
    ) as process:
        watchdog = threading.Timer(PATIENCE_SECONDS, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()


def processes_with(argument: str) -> list[str]:
    """Return the command lines that contain `argument`; on Linux only, elsewhere none."""
    found: list[str] = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = file.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:  # it has just ended
            continue
        if argument in command:
            found.append(command)
    return found
