"""What memory there is at this moment: the host's and that of every device, asked once."""

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import TypeAlias

import pynvml

from proxy.hardware.amd import amd_devices
from proxy.hardware.apple import apple_devices, sysctl
from proxy.hardware.host import host_memory
from proxy.hardware.memory import Device, Memory
from proxy.hardware.nvidia import nvidia_devices

logger = logging.getLogger(__name__)

Source: TypeAlias = Callable[[Memory], tuple[Device, ...]]

# usually milliseconds; a driver that has to wake several GPUs takes seconds
_PATIENCE_SECONDS = 5.0


def snapshot() -> Memory:
    """Measure the memory of this machine; never raises, and gives up on a driver that hangs."""
    return measured(Memory(*host_memory()), (_nvidia, _apple, _amd), _PATIENCE_SECONDS)


def measured(host: Memory, sources: tuple[Source, ...], patience: float) -> Memory:
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
