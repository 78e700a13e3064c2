"""The GPU of Apple's own processors: it shares the host's memory, up to a limit of the system.

Never run on a real one: the tests play back what its tool is documented to say.
"""

import subprocess
from collections.abc import Callable
from typing import TypeAlias

from proxy.hardware.memory import Device, Memory

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
    total = _number(told.get("hw.memsize"))
    if not total or _number(told.get("hw.optional.arm64")) != 1:
        return ()
    share = _SMALL_SHARE if total <= _SMALL else _LARGE_SHARE
    limit = _number(told.get("iogpu.wired_limit_mb")) * _MIB or int(share * total)
    name = told.get("machdep.cpu.brand_string", "Apple")
    return (Device(name, limit, min(limit, host.free), is_unified=True),)


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.strip().isdecimal() else 0
