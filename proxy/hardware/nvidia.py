"""GPUs of NVIDIA, by way of NVML, the library beside the driver that nvidia-smi asks as well.

Any error of it means that there is nothing to use. Never run on a real GPU: the tests play back
what the documentation says.
"""

import contextlib
import logging
from collections.abc import Iterator
from types import ModuleType
from typing import TypeAlias

from proxy.hardware.fit import Device, Memory

logger = logging.getLogger(__name__)

Handle: TypeAlias = object  # NVML's own


def nvidia_devices(nvml: ModuleType, host: Memory, visible: str | None) -> tuple[Device, ...]:
    """List the devices that programs may use; never raises.

    `nvml` is `pynvml`, `visible` is CUDA_VISIBLE_DEVICES. A device without memory of its own
    (Jetson, GB10) uses the host's.
    """
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as problem:
        logger.debug("no NVIDIA GPU: %s", problem)
        return ()
    try:
        handles = [_instance(nvml, handle) for handle in _visible(nvml, visible)]
        return tuple(device for one in handles for device in _devices(nvml, one, host))
    except nvml.NVMLError as problem:
        logger.debug("NVIDIA's GPUs cannot be asked: %s", problem)
        return ()
    finally:
        with contextlib.suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def _visible(nvml: ModuleType, visible: str | None) -> Iterator[Handle]:
    """Find the devices as CUDA does: the first name that is none ends the list."""
    if visible is None:
        yield from map(nvml.nvmlDeviceGetHandleByIndex, range(nvml.nvmlDeviceGetCount()))
        return
    with contextlib.suppress(nvml.NVMLError):
        for word in visible.split(","):
            name = word.strip()
            is_place = name.isdecimal()
            yield (
                nvml.nvmlDeviceGetHandleByIndex(int(name))
                if is_place
                else nvml.nvmlDeviceGetHandleByUUID(name)
            )


def _instance(nvml: ModuleType, handle: Handle) -> Handle:
    """Return the part of a partitioned device (MIG) that programs use: its first."""
    try:
        current, _pending = nvml.nvmlDeviceGetMigMode(handle)
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(handle) if current else 0
    except nvml.NVMLError:
        return handle
    for index in range(count):
        with contextlib.suppress(nvml.NVMLError):  # a place that is not taken
            found: Handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            return found
    return handle


def _devices(nvml: ModuleType, handle: Handle, host: Memory) -> Iterator[Device]:
    """Describe a device; one that is lost is passed over."""
    try:
        name = str(nvml.nvmlDeviceGetName(handle))
        total, free = _memory(nvml, handle)
    except nvml.NVMLError as problem:
        logger.debug("a GPU cannot be asked: %s", problem)
        return
    if total:
        yield Device(name, total, free)
    else:
        yield Device(name, host.total, host.free, is_unified=True)


def _memory(nvml: ModuleType, handle: Handle) -> tuple[int, int]:
    """Return total and free bytes; 0 where the device shares the host's."""
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError_NotSupported:
        return 0, 0
    return int(memory.total), int(memory.free)
