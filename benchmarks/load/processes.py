"""Starts measured programs on a separate core, reads their usage from /proc, and stops them.

CPU time, memory and descriptors are sums over the process group. Systems without /proc have no
figures.
"""

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_GRACE_SECONDS = 15.0
_HAS_PROC = (_PROC / "self" / "schedstat").exists()
_CHOSEN_PORTS = range(20_000, 32_000)  # below the ephemeral ports of Linux, macOS and Windows
_GROUP_FIELD = 2  # index in /proc/PID/stat, counted from the field after the command name


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds, current and peak memory in MB, and open descriptors of a process group."""

    cpu_seconds: float
    memory_mb: float
    peak_mb: float
    descriptors: int


@contextlib.contextmanager
def pinned(core: int) -> Iterator[None]:
    """Pin this process, and the processes that it starts, to the core with this index.

    Has no effect if the system is not Linux, or if there is no core with this index.
    """
    if sys.platform != "linux":
        yield
        return
    before = os.sched_getaffinity(0)
    cores = sorted(_ALL_CORES)
    if core < len(cores):
        os.sched_setaffinity(0, {cores[core]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


# read at the import, because `pinned` reduces the affinity
_ALL_CORES = os.sched_getaffinity(0) if sys.platform == "linux" else set[int]()


@contextlib.contextmanager
def started(
    command: Sequence[str], *, folder: Path, environment: Mapping[str, str], log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a new process group with its output in `log`; stop the group on exit."""
    inherited = {name: value for name, value in os.environ.items() if not _is_dropped(name)}
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - the measured programs
            command,
            cwd=folder,
            env={**inherited, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # a new process group, so that the program's workers are also measured and stopped
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _is_dropped(name: str) -> bool:
    """Return whether a variable, such as a setting of Temper, is removed for started programs."""
    return name.startswith("TEMPER_") or name == "PYTHONDONTWRITEBYTECODE"


def usage(group: int) -> Usage | None:
    """Return the usage of a process group; None without /proc."""
    if not _HAS_PROC:
        return None
    members = [folder for folder in _PROC.glob("[0-9]*") if _is_member(folder, group)]
    used = [used_by for folder in members if (used_by := _usage_of(folder)) is not None]
    return Usage(
        sum(process.cpu_seconds for process in used),
        sum(process.memory_mb for process in used),
        sum(process.peak_mb for process in used),
        sum(process.descriptors for process in used),
    )


def usage_of(process: int) -> Usage | None:
    """Return the usage of one process; None without /proc, or if the process has ended."""
    return _usage_of(_PROC / str(process)) if _HAS_PROC else None


def _is_member(folder: Path, group: int) -> bool:
    try:
        fields = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # the process has just ended
        return False
    return int(fields.rpartition(")")[2].split()[_GROUP_FIELD]) == group


def _usage_of(folder: Path) -> Usage | None:
    try:
        # schedstat counts nanoseconds; /proc/PID/stat has only ticks of 10 ms
        threads = [(thread / "schedstat").read_text() for thread in (folder / "task").iterdir()]
        status = (folder / "status").read_text(encoding="utf-8", errors="replace")
        descriptors = sum(1 for _ in (folder / "fd").iterdir())
    except OSError:
        return None
    values = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    now, most = (int(values.get(name, "0 kB").split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    return Usage(sum(int(thread.split()[0]) for thread in threads) / 1e9, now, most, descriptors)


def free_port() -> int:
    """Return a free port outside the ephemeral ranges of operating systems."""
    while True:
        port = secrets.choice(_CHOSEN_PORTS)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
