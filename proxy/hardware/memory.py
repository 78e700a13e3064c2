"""The memory of a machine as numbers of bytes, wherever they came from."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator; what a `is_unified` one has is part of the host's memory."""

    name: str
    total: int
    free: int
    is_unified: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """What a machine has: the host's own memory, and that of each device a model can use."""

    total: int
    free: int
    devices: tuple[Device, ...] = ()
