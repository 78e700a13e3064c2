from dataclasses import dataclass, field
from types import ModuleType

import pynvml
import pytest

from proxy.hardware.fit import Device, Memory
from proxy.hardware.nvidia import nvidia_devices

GIB = 1 << 30
HOST = Memory(128 * GIB, 100 * GIB)


@dataclass
class Reading:
    total: int
    free: int


@dataclass
class Gpu:
    """A device as NVML shows it; a number instead of a value is the error that comes back."""

    name: str | int
    memory: Reading | int
    uuid: str = "GPU-1"
    partition: list[int] | int = pynvml.NVML_ERROR_NOT_SUPPORTED
    parts: "list[Gpu | int]" = field(default_factory=list)


def value(of: object) -> object:
    if isinstance(of, int):
        raise pynvml.NVMLError(of)
    return of


class Driver(ModuleType):
    """NVML as far as it is used: the real binding's errors, no library."""

    NVMLError = pynvml.NVMLError
    NVMLError_NotSupported = pynvml.NVMLError_NotSupported

    def __init__(self, *gpus: Gpu, init: int = 0, count: int = 0) -> None:
        super().__init__("driver")
        self.is_open = False

        def open_it() -> None:
            value(init or None)
            self.is_open = True

        def close_it() -> None:
            self.is_open = False
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)

        def count_them() -> int:
            value(count or None)
            return len(gpus)

        def by_place(place: int) -> Gpu:
            return gpus[place] if place < len(gpus) else missing()

        def by_name(name: str) -> Gpu:
            everything = [*gpus, *(part for gpu in gpus for part in gpu.parts)]
            named = (gpu for gpu in everything if isinstance(gpu, Gpu) and gpu.uuid == name)
            return next(named, None) or missing()

        functions: dict[str, object] = {
            "nvmlInit": open_it,
            "nvmlShutdown": close_it,
            "nvmlDeviceGetCount": count_them,
            "nvmlDeviceGetHandleByIndex": by_place,
            "nvmlDeviceGetHandleByUUID": by_name,
            "nvmlDeviceGetName": lambda gpu: value(gpu.name),
            "nvmlDeviceGetMemoryInfo": lambda gpu: value(gpu.memory),
            "nvmlDeviceGetMigMode": lambda gpu: value(gpu.partition),
            "nvmlDeviceGetMaxMigDeviceCount": lambda gpu: len(gpu.parts),
            "nvmlDeviceGetMigDeviceHandleByIndex": lambda gpu, place: value(gpu.parts[place]),
        }
        vars(self).update(functions)


def missing() -> Gpu:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)


LARGE = Gpu("NVIDIA H100 80GB HBM3", Reading(80 * GIB, 70 * GIB))
SMALL = Gpu("NVIDIA GeForce RTX 3060", Reading(12 * GIB, 3 * GIB), "GPU-2")


def names(driver: Driver, visible: str | None = None) -> list[str]:
    found = [device.name for device in nvidia_devices(driver, HOST, visible)]
    assert not driver.is_open
    return found


def test_every_device_is_listed_with_its_memory() -> None:
    assert nvidia_devices(Driver(LARGE, SMALL), HOST, None) == (
        Device("NVIDIA H100 80GB HBM3", 80 * GIB, 70 * GIB),
        Device("NVIDIA GeForce RTX 3060", 12 * GIB, 3 * GIB),
    )


@pytest.mark.parametrize("memory", [pynvml.NVML_ERROR_NOT_SUPPORTED, Reading(0, 0)])
def test_a_device_without_memory_of_its_own_has_the_hosts(memory: Reading | int) -> None:
    devices = nvidia_devices(Driver(Gpu("NVIDIA GB10", memory)), HOST, None)
    assert devices == (Device("NVIDIA GB10", 128 * GIB, 100 * GIB, is_unified=True),)


def test_a_device_that_is_lost_is_passed_over() -> None:
    lost = Gpu("NVIDIA A100", pynvml.NVML_ERROR_GPU_IS_LOST)
    nameless = Gpu(pynvml.NVML_ERROR_UNKNOWN, Reading(GIB, GIB))
    assert names(Driver(lost, SMALL, nameless)) == [SMALL.name]


def test_of_a_partitioned_device_the_first_part_is_used() -> None:
    part = Gpu("NVIDIA H100 MIG 1g.10gb", Reading(10 * GIB, 9 * GIB), "MIG-1")
    parts: list[Gpu | int] = [pynvml.NVML_ERROR_NOT_FOUND, part, SMALL]
    whole = Gpu("NVIDIA H100", Reading(80 * GIB, 0), "GPU-3", [1, 1], parts)
    assert names(Driver(whole)) == [part.name]
    assert names(Driver(whole), "MIG-1") == [part.name]
    whole = Gpu("NVIDIA H100", Reading(80 * GIB, 0), "GPU-3", [0, 1], parts)
    assert names(Driver(whole)) == [whole.name]
    whole = Gpu("NVIDIA H100", Reading(80 * GIB, 0), "GPU-3", [1, 1])
    assert names(Driver(whole)) == [whole.name]


@pytest.mark.parametrize(
    ("visible", "found"),
    [
        (None, [LARGE, SMALL]),
        ("0,1", [LARGE, SMALL]),
        ("1, 0", [SMALL, LARGE]),
        ("GPU-2", [SMALL]),
        ("0,7,1", [LARGE]),
        ("-1", []),
        ("", []),
    ],
)
def test_only_what_programs_may_see_is_listed(visible: str | None, found: list[Gpu]) -> None:
    assert names(Driver(LARGE, SMALL), visible) == [gpu.name for gpu in found]


@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_UNKNOWN])
def test_without_a_driver_there_is_nothing(error: int) -> None:
    assert names(Driver(LARGE, init=error)) == []
    assert names(Driver(LARGE, count=error)) == []


def test_the_real_binding_has_what_is_used() -> None:
    assert all(hasattr(pynvml, name) for name in vars(Driver()) if name.startswith("nvml"))
