"""Measures the free and total memory of this machine: of the host and of each device.

The NVIDIA code was tested on an H200. The AMD and Apple code has never run on real hardware. Its
tests use files in the format that the kernel documents, and the documented outputs of `sysctl` and
`rocm-smi`.
"""

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import TypeAlias

import psutil
import pynvml

from proxy.dialects.lenient_json import parse_object
from proxy.hardware.fit import Device, Memory

logger = logging.getLogger(__name__)


def host_memory(root: Path = Path("/")) -> tuple[int, int]:
    """Return total and available bytes; both are 0 if the system does not report them."""
    try:
        memory = psutil.virtual_memory()
    except (OSError, RuntimeError, ValueError):
        return 0, 0
    total, free = int(memory.total), int(memory.available)
    for limit, used in _limits(root):
        total, free = min(total, limit), min(free, max(0, limit - used))
    return total, free


def _limits(root: Path) -> Iterator[tuple[int, int]]:
    """Yield the limit and the usage of each control group (version 2) of this process."""
    top = root / "sys/fs/cgroup"
    lines = _text(root / "proc/self/cgroup").splitlines()
    line_v2 = next((line for line in lines if line[:3] == "0::"), "0::/")
    group = top / line_v2[3:].strip("/")
    # the limits of all parent groups apply, too; in a container, the container's group is `top`
    for folder in (group, *group.parents):
        if not folder.is_relative_to(top):
            return
        limit, current = _text(folder / "memory.max"), _text(folder / "memory.current")
        if limit.isdecimal() and current.isdecimal():  # "max" means no limit
            yield int(limit), max(0, int(current) - _reclaimable(folder))


def _reclaimable(folder: Path) -> int:
    lines = _text(folder / "memory.stat").splitlines()
    # the inactive page cache counts as used memory, but the kernel frees it on demand
    return _number(dict(line.partition(" ")[::2] for line in lines).get("inactive_file"))


Tool: TypeAlias = Callable[[], str]  # runs a program, and returns its output

_AMD = "0x1002"  # PCI vendor id
# The GPU of a processor has at most this much reserved memory (VRAM), and also uses the host's
# memory (GTT). A device with more reserved memory is a graphics card.
_MOST_RESERVED = 2 << 30


def amd_devices(root: Path, query: Tool, host: Memory) -> tuple[Device, ...]:
    """List the devices in sysfs, or else in the output of `query` (rocm-smi); never raises.

    A container may have rocm-smi without the files in sysfs. Windows has neither of them.
    """
    cards = sorted((root / "sys/class/drm").glob("card[0-9]*/device"))
    devices = tuple(device for card in cards for device in _devices(card, host))
    return devices or tuple(_rocm_devices(query(), host))


def _rocm_devices(output: str, host: Memory) -> Iterator[Device]:
    """Read the output of `rocm-smi --showproductname --showmeminfo vram gtt --json`.

    {"card0": {"VRAM Total Memory (B)": "21458059264", "VRAM Total Used Memory (B)": "27856896",
               "Card Series": "Radeon RX 7900 XT", "Card Model": "0x744c"}}
    """
    cards = parse_object(output) or {}
    for name, card in cards.items():
        if name.startswith("card") and isinstance(card, dict):
            # in lower case, because ROCm 5 writes "Card series", and later versions "Card Series"
            values = {key.lower(): f"{value}" for key, value in card.items()}
            sizes = {
                kind: (
                    _number(values.get(f"{kind} total memory (b)")),
                    _number(values.get(f"{kind} total used memory (b)")),
                )
                for kind in ("vram", "gtt")
            }
            title = values.get("card series") or f"AMD {values.get('card model', name)}"
            yield from _amd_device(title, sizes["vram"], sizes["gtt"], host)


def _devices(card: Path, host: Memory) -> Iterator[Device]:
    if _text(card / "vendor") != _AMD:
        return
    total, used = (_number(_text(card / f"mem_info_vram_{word}")) for word in ("total", "used"))
    name = _text(card / "product_name") or f"AMD {_text(card / 'device')}".strip()
    gtt = tuple(_number(_text(card / f"mem_info_gtt_{word}")) for word in ("total", "used"))
    yield from _amd_device(name, (total, used), (gtt[0], gtt[1]), host)


def _amd_device(
    name: str, reserved: tuple[int, int], shared: tuple[int, int], host: Memory
) -> Iterator[Device]:
    """Describe a device; `reserved` and `shared` are the total and used bytes of VRAM and GTT."""
    total, used = reserved
    if total > _MOST_RESERVED:
        yield Device(name, total, max(0, total - used))
    elif total:
        free = total - used + min(shared[0] - shared[1], host.free)
        yield Device(name, total + shared[0], max(0, free), is_unified=True)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""


_NAMES = ("hw.memsize", "hw.optional.arm64", "iogpu.wired_limit_mb", "machdep.cpu.brand_string")
_COMMAND = ("/usr/sbin/sysctl", *_NAMES)
_TOOL_SECONDS = 3.0  # rocm-smi is a Python program
_MIB = 1 << 20
_SMALL = 36 << 30
# Metal's recommended working set, as observed: two thirds of the memory of a machine with at most
# 36 GiB, three quarters of the memory of a larger machine.
_SMALL_SHARE, _LARGE_SHARE = 2 / 3, 3 / 4


def sysctl() -> str:
    """Return the output of sysctl, which omits unknown names; "" if it fails."""
    return _output(_COMMAND)


def rocm_smi() -> str:
    """Return the JSON of rocm-smi; "" if it is missing or fails."""
    program = shutil.which("rocm-smi") or "/opt/rocm/bin/rocm-smi"
    return _output((program, "--showproductname", "--showmeminfo", "vram", "gtt", "--json"))


def _output(command: Sequence[str]) -> str:
    try:
        result = subprocess.run(  # noqa: S603 - a fixed command
            command, capture_output=True, timeout=_TOOL_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return result.stdout.decode(errors="replace")


def apple_devices(query: Tool, host: Memory) -> tuple[Device, ...]:
    """Return the GPU of an Apple processor, from the output of `query` (sysctl); never raises."""
    values = dict(line.partition(": ")[::2] for line in query().splitlines())
    total = _number(values.get("hw.memsize"))
    if not total or _number(values.get("hw.optional.arm64")) != 1:
        return ()
    share = _SMALL_SHARE if total <= _SMALL else _LARGE_SHARE
    limit = _number(values.get("iogpu.wired_limit_mb")) * _MIB or int(share * total)
    name = values.get("machdep.cpu.brand_string", "Apple")
    return (Device(name, limit, min(limit, host.free), is_unified=True),)


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.strip().isdecimal() else 0


Handle: TypeAlias = object  # an opaque handle of NVML


def nvidia_devices(nvml: ModuleType, host: Memory, visible: str | None) -> tuple[Device, ...]:
    """List the NVIDIA devices that programs may use; never raises.

    `nvml` is `pynvml`, `visible` is CUDA_VISIBLE_DEVICES. A device without separate memory
    (Jetson, GB10) uses the host's memory. After an error of NVML, the list is empty.
    """
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as problem:
        logger.debug("no NVIDIA GPU: %s", problem)
        return ()
    try:
        handles = [_instance(nvml, handle) for handle in _visible(nvml, visible)]
        return tuple(device for item in handles for device in _nvidia_device(nvml, item, host))
    except nvml.NVMLError as problem:
        logger.debug("cannot query NVIDIA GPUs: %s", problem)
        return ()
    finally:
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _visible(nvml: ModuleType, visible: str | None) -> Iterator[Handle]:
    """Yield the devices that CUDA would use; like CUDA, stop at the first invalid name."""
    if visible is None:
        yield from map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        return
    with suppress(nvml.NVMLError):
        for word in visible.split(","):
            name = word.strip()
            if name.isdecimal():
                yield nvml.nvmlDeviceGetHandleByIndex(int(name))
            else:
                yield nvml.nvmlDeviceGetHandleByUUID(name)


def _instance(nvml: ModuleType, handle: Handle) -> Handle:
    """Return the first instance of a partitioned device (MIG), the only one that programs use.

    Returns the device itself if it is not partitioned.
    """
    try:
        current, _pending = nvml.nvmlDeviceGetMigMode(handle)
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(handle) if current else 0
    except nvml.NVMLError:
        return handle
    for index in range(count):
        with suppress(nvml.NVMLError):  # raised for an unused index
            instance: Handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            return instance
    return handle


def _nvidia_device(nvml: ModuleType, handle: Handle, host: Memory) -> Iterator[Device]:
    """Describe a device; yields nothing if NVML cannot query it."""
    try:
        name = str(nvml.nvmlDeviceGetName(handle))
        total, free = _memory(nvml, handle)
    except nvml.NVMLError as problem:
        logger.debug("cannot query a GPU: %s", problem)
        return
    if total:
        yield Device(name, total, free)
    else:
        yield Device(name, host.total, host.free, is_unified=True)


def _memory(nvml: ModuleType, handle: Handle) -> tuple[int, int]:
    """Return total and free bytes; both are 0 if the device shares the host's memory."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError_NotSupported:
        return 0, 0
    return int(memory.total), int(memory.free)


Source: TypeAlias = Callable[[Memory], tuple[Device, ...]]

# a query usually takes milliseconds; a driver that has to wake several GPUs takes seconds
_QUERY_SECONDS = 5.0


def detect_hardware() -> Memory:
    """Measure the memory of this machine and its GPUs, in bytes.

    Never raises. If a driver hangs, its devices are missing. Without a GPU, `devices` is empty. If
    the system does not report its memory, `total` is 0.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    sources: list[Source] = [lambda host: nvidia_devices(pynvml, host, visible)]
    if sys.platform == "darwin":
        sources.append(partial(apple_devices, sysctl))
    sources.append(partial(amd_devices, Path("/"), rocm_smi))
    return add_devices(Memory(*host_memory()), sources, _QUERY_SECONDS)


def add_devices(host: Memory, sources: Sequence[Source], seconds: float) -> Memory:
    """Add the devices that the sources find within `seconds`."""
    devices: list[Device] = []  # append-only, so it can be read while the thread runs

    def query_all() -> None:
        for source in sources:
            devices.extend(source(host))

    # a daemon thread, because a driver may hang in an uninterruptible call
    thread = Thread(target=query_all, daemon=True, name="hardware")
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        logger.warning("querying the hardware took more than %g s; GPUs may be missing", seconds)
    return replace(host, devices=tuple(devices))
