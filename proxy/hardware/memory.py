"""The memory of a machine as numbers of bytes, wherever they came from."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator; what a `is_unified` one has is part of the host's memory."""

    name: str
    total: int
    free: int
    is_unified: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """What a machine has: the host's own memory, and that of each device a model can use.

    The `unused` ones are there as well, but the program that runs the model knows nothing of them.
    """

    total: int
    free: int
    devices: tuple[Device, ...] = ()
    unused: tuple[Device, ...] = ()

    def without_devices(self) -> "Memory":
        """Return what a program has that cannot use them."""
        return replace(self, devices=(), unused=self.devices)
