"""Peers (other proxies) as processes: each is imported once and forked for every test."""

import atexit
import functools
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.load.candidates import Launch
from proxy.conversation import json
from proxy.conversation.json import JsonObject

_FORKING = Path(__file__).with_name("forking.py")


@contextmanager
def forked(launch: Launch, log: Path, *others: str) -> Iterator[int]:
    """Run a peer that starts with `python -m module ...`, and yield its process id.

    `others` are further arguments. At the end the peer is killed, because some peers would wait
    for every pending response.
    """
    python, dash, module, *arguments = launch.command
    assert dash == "-m", "only a module can be forked"
    loaded = _loaded(python, module)
    process = _order(loaded, {"run": [*arguments, *others], "log": str(log)})
    try:
        yield process
    finally:
        _order(loaded, {"end": process})


@functools.cache
def _loaded(python: str, module: str) -> subprocess.Popen[bytes]:
    command = (python, str(_FORKING), module)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(process.communicate)
    return process


def _order(loaded: subprocess.Popen[bytes], order: JsonObject) -> int:
    assert loaded.stdin is not None
    assert loaded.stdout is not None
    loaded.stdin.write(json.dump(order) + b"\n")
    loaded.stdin.flush()
    return int(loaded.stdout.readline())
