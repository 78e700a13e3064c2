"""What memory there is at this moment: the host's and that of every device, asked once.

The code for AMD and Apple has never run on a real one: the tests write the files that the kernel
documents, and play back what `sysctl` is documented to say.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import TypeAlias

import psutil
import pynvml

from proxy.hardware.fit import Device, Memory
from proxy.hardware.nvidia import nvidia_devices

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
    named = next(
        (line for line in _file_lines(root / "proc/self/cgroup") if line[:3] == "0::"), "0::/"
    )
    group = top / named[3:].strip("/")
    # every group around ours has a say; in a container we are at the top of what can be seen
    for folder in (group, *group.parents):
        if not folder.is_relative_to(top):
            return
        limit = next(iter(_file_lines(folder / "memory.max")), _UNLIMITED)
        current = next(iter(_file_lines(folder / "memory.current")), "")
        if limit.isdecimal() and current.isdecimal():
            yield int(limit), max(0, int(current) - _reclaimable(folder))


def _reclaimable(folder: Path) -> int:
    for line in _file_lines(folder / "memory.stat"):
        name, _, value = line.partition(" ")
        if name == _RECLAIMABLE and value.isdecimal():
            return int(value)
    return 0


def _file_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []


_VENDOR = "0x1002"
# what a processor's own GPU sets aside; what it uses beyond that is the host's memory
_MOST_SET_ASIDE = 2 << 30


def amd_devices(root: Path, host: Memory) -> tuple[Device, ...]:
    """List the devices; never raises."""
    cards = sorted((root / "sys/class/drm").glob("card[0-9]*/device"))
    return tuple(device for card in cards for device in _devices(card, host))


def _devices(card: Path, host: Memory) -> Iterator[Device]:
    if _text(card / "vendor") != _VENDOR:
        return
    total, used = (_number(card / f"mem_info_vram_{word}") for word in ("total", "used"))
    if not total:
        return
    name = _text(card / "product_name") or f"AMD {_text(card / 'device')}".strip()
    if total > _MOST_SET_ASIDE:
        yield Device(name, total, max(0, total - used))
        return
    shared, taken = (_number(card / f"mem_info_gtt_{word}") for word in ("total", "used"))
    free = total - used + min(shared - taken, host.free)
    yield Device(name, total + shared, max(0, free), is_unified=True)


def _number(path: Path) -> int:
    text = _text(path)
    return int(text) if text.isdecimal() else 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


Tool: TypeAlias = Callable[[], str]

_NAMES = ("hw.memsize", "hw.optional.arm64", "iogpu.wired_limit_mb", "machdep.cpu.brand_string")
_COMMAND = ("/usr/sbin/sysctl", *_NAMES)
_TOOL_SECONDS = 1.0
_MIB = 1 << 20
_SMALL = 36 << 30
# what Metal recommends as its working set, as observed: two thirds of a small machine's memory
# and three quarters of a larger one's
_SMALL_SHARE, _LARGE_SHARE = 2 / 3, 3 / 4


def sysctl() -> str:
    """Ask the system; "" where it does not answer. Names that it does not know are left out."""
    try:
        result = subprocess.run(  # noqa: S603 - a fixed command
            _COMMAND, capture_output=True, timeout=_TOOL_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.decode(errors="replace")


def apple_devices(ask: Tool, host: Memory) -> tuple[Device, ...]:
    """Return the GPU if the processor has one; never raises."""
    told = dict(line.partition(": ")[::2] for line in ask().splitlines())
    total = _setting_number(told.get("hw.memsize"))
    if not total or _setting_number(told.get("hw.optional.arm64")) != 1:
        return ()
    share = _SMALL_SHARE if total <= _SMALL else _LARGE_SHARE
    limit = _setting_number(told.get("iogpu.wired_limit_mb")) * _MIB or int(share * total)
    name = told.get("machdep.cpu.brand_string", "Apple")
    return (Device(name, limit, min(limit, host.free), is_unified=True),)


def _setting_number(text: str | None) -> int:
    return int(text) if text is not None and text.strip().isdecimal() else 0


logger = logging.getLogger(__name__)

Source: TypeAlias = Callable[[Memory], tuple[Device, ...]]

# usually milliseconds; a driver that has to wake several GPUs takes seconds
_PATIENCE_SECONDS = 5.0


def snapshot() -> Memory:
    """Measure the memory of this machine; never raises, and gives up on a driver that hangs."""
    return add_devices(Memory(*host_memory()), (_nvidia, _apple, _amd), _PATIENCE_SECONDS)


def add_devices(host: Memory, sources: tuple[Source, ...], patience: float) -> Memory:
    """Add the devices that the sources find within so many seconds."""
    found: list[Device] = []  # only ever grows, so it can be read while the thread still looks

    def look() -> None:
        for source in sources:
            found.extend(source(host))

    # a driver may hang in a call that nothing interrupts, so a thread that can be left behind
    looking = Thread(target=look, daemon=True, name="hardware")
    looking.start()
    looking.join(patience)
    if looking.is_alive():
        logger.warning("the hardware did not answer within %g s; GPUs may be missing", patience)
    return replace(host, devices=tuple(found))


def _nvidia(host: Memory) -> tuple[Device, ...]:
    return nvidia_devices(pynvml, host, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _apple(host: Memory) -> tuple[Device, ...]:
    return apple_devices(sysctl, host) if sys.platform == "darwin" else ()


def _amd(host: Memory) -> tuple[Device, ...]:
    return amd_devices(Path("/"), host)
