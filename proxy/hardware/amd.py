"""GPUs of AMD, as the kernel's driver shows them in files; no tool of AMD's is needed.

Linux only, and never run on a real one: the tests write the files as the kernel documents them.
"""

from collections.abc import Iterator
from pathlib import Path

from proxy.hardware.memory import Device, Memory

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
