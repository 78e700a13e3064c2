"""The host's own memory, and the share of it that a container is allowed."""

from collections.abc import Iterator
from pathlib import Path

import psutil

_UNLIMITED = "max"
_RECLAIMABLE = "inactive_file"  # cached files, given back as soon as somebody needs memory


def host_memory(root: Path = Path("/")) -> tuple[int, int]:
    """Return total and available bytes; both are 0 where the system does not tell."""
    try:
        found = psutil.virtual_memory()
    except (OSError, RuntimeError, ValueError):
        return 0, 0
    total, free = int(found.total), int(found.available)
    for limit, used in _limits(root):
        total, free = min(total, limit), min(free, max(0, limit - used))
    return total, free


def _limits(root: Path) -> Iterator[tuple[int, int]]:
    """Find what control groups (version 2) allow us, and how much of it is taken."""
    top = root / "sys/fs/cgroup"
    named = next((line for line in _lines(root / "proc/self/cgroup") if line[:3] == "0::"), "0::/")
    group = top / named[3:].strip("/")
    # every group around ours has a say; in a container we are at the top of what can be seen
    for folder in (group, *group.parents):
        if not folder.is_relative_to(top):
            return
        limit = next(iter(_lines(folder / "memory.max")), _UNLIMITED)
        current = next(iter(_lines(folder / "memory.current")), "")
        if limit.isdecimal() and current.isdecimal():
            yield int(limit), max(0, int(current) - _reclaimable(folder))


def _reclaimable(folder: Path) -> int:
    for line in _lines(folder / "memory.stat"):
        name, _, value = line.partition(" ")
        if name == _RECLAIMABLE and value.isdecimal():
            return int(value)
    return 0


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []
