"""Temper itself, as users run it: the command `temper serve` in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from proxy.conversation import json


@contextmanager
def running_temper(*flags: str, environment: dict[str, str] | None = None) -> Iterator[str]:
    """Run `temper serve` on a free port and yield its URL; it is ended like by `docker stop`."""
    command = [sys.executable, "-m", "proxy", "serve", "--port", "0", "--json", *flags]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, env={**os.environ, **(environment or {})}
    ) as process:
        assert process.stdout is not None
        try:
            announced = json.parse(process.stdout.readline())
            assert isinstance(announced, dict)
            yield str(announced["url"])
        finally:
            process.terminate()
            assert process.wait(20) == 0
