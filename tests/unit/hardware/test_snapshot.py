import logging
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event
from types import ModuleType

import psutil
import pynvml
import pytest

from proxy.hardware.fit import Device, Memory
from proxy.hardware.snapshot import (
    add_devices,
    amd_devices,
    apple_devices,
    detect_hardware,
    host_memory,
    nvidia_devices,
    rocm_smi,
    sysctl,
)
from tests.timeouts import TIMEOUT_SECONDS

GIB = 1 << 30


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with 64 GiB of memory, of which 48 GiB are free."""
    memory = psutil.virtual_memory()._replace(total=64 * GIB, available=48 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)


def write_group(root: Path, name: str, limit: str, current: str, stat: str = "") -> None:
    folder = root / "sys/fs/cgroup" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(limit + "\n", encoding="utf-8")
    (folder / "memory.current").write_text(current + "\n", encoding="utf-8")
    (folder / "memory.stat").write_text(stat, encoding="utf-8")


def write_own_group(root: Path, name: str) -> None:
    (root / "proc/self").mkdir(parents=True)
    text = f"1:cpu:/elsewhere\n0::/{name}\n"
    (root / "proc/self/cgroup").write_text(text, encoding="utf-8")


def test_all_memory_of_the_machine_is_counted_if_the_control_group_has_no_limit(
    tmp_path: Path,
) -> None:
    assert host_memory(tmp_path) == (64 * GIB, 48 * GIB)
    write_group(tmp_path, "", "max", str(GIB))
    assert host_memory(tmp_path) == (64 * GIB, 48 * GIB)


def test_the_inactive_file_cache_of_a_control_group_is_counted_as_free(tmp_path: Path) -> None:
    stat = f"anon 5\ninactive_file {3 * GIB}\nactive_file 7\n"
    write_group(tmp_path, "", str(8 * GIB), str(5 * GIB), stat)
    assert host_memory(tmp_path) == (8 * GIB, 6 * GIB)


def test_the_smallest_limit_of_a_control_group_and_its_parents_is_used(tmp_path: Path) -> None:
    write_own_group(tmp_path, "outer/inner")
    write_group(tmp_path, "outer/inner", str(32 * GIB), str(GIB))
    write_group(tmp_path, "outer", str(16 * GIB), str(12 * GIB))
    write_group(tmp_path, "another", str(GIB), str(GIB))
    assert host_memory(tmp_path) == (16 * GIB, 4 * GIB)


def test_no_memory_is_free_if_a_control_group_uses_more_than_its_limit(tmp_path: Path) -> None:
    write_group(tmp_path, "", str(GIB), str(2 * GIB), "inactive_file none\n")
    assert host_memory(tmp_path) == (GIB, 0)


def test_a_control_group_path_that_leaves_its_folder_is_ignored(tmp_path: Path) -> None:
    write_own_group(tmp_path, "../../..")
    assert host_memory(tmp_path) == (64 * GIB, 48 * GIB)


def test_the_host_memory_is_zero_if_psutil_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise FileNotFoundError

    monkeypatch.setattr(psutil, "virtual_memory", fail)
    assert host_memory(tmp_path) == (0, 0)


AMD_HOST = Memory(64 * GIB, 40 * GIB)


def no_output() -> str:
    return ""


def write_card(root: Path, number: int, **files: object) -> None:
    folder = root / f"sys/class/drm/card{number}/device"
    folder.mkdir(parents=True)
    for name, content in {"vendor": "0x1002", "device": "0x744c", **files}.items():
        (folder / name).write_text(f"{content}\n", encoding="utf-8")


def test_the_memory_of_an_amd_gpu_is_read_from_sysfs(tmp_path: Path) -> None:
    files = {"mem_info_vram_total": 24 * GIB, "mem_info_vram_used": 2 * GIB}
    write_card(tmp_path, 0, product_name="Radeon RX 7900 XTX", **files)
    write_card(tmp_path, 1, mem_info_gtt_total=32 * GIB, **files)
    assert amd_devices(tmp_path, no_output, AMD_HOST) == (
        Device("Radeon RX 7900 XTX", 24 * GIB, 22 * GIB),
        Device("AMD 0x744c", 24 * GIB, 22 * GIB),
    )


def test_the_memory_of_an_integrated_amd_gpu_includes_host_memory(tmp_path: Path) -> None:
    write_card(
        tmp_path,
        0,
        mem_info_vram_total=GIB // 2,
        mem_info_vram_used=GIB // 4,
        mem_info_gtt_total=32 * GIB,
        mem_info_gtt_used=GIB,
    )
    (device,) = amd_devices(tmp_path, no_output, AMD_HOST)
    assert device == Device("AMD 0x744c", 32 * GIB + GIB // 2, 31 * GIB + GIB // 4, is_unified=True)
    (device,) = amd_devices(tmp_path, no_output, Memory(64 * GIB, GIB))
    assert device.free == GIB + GIB // 4


def test_cards_of_other_vendors_and_unreadable_files_are_skipped(tmp_path: Path) -> None:
    write_card(tmp_path, 0, vendor="0x10de", mem_info_vram_total=24 * GIB)
    write_card(tmp_path, 1, mem_info_vram_total="unknown")
    write_card(tmp_path, 2)
    (tmp_path / "sys/class/drm/card3/device/vendor").mkdir(parents=True)
    (tmp_path / "sys/class/drm/card0-DP-1").mkdir()
    assert amd_devices(tmp_path, no_output, AMD_HOST) == ()


def test_no_amd_gpu_is_listed_if_there_are_no_sysfs_files(tmp_path: Path) -> None:
    assert amd_devices(tmp_path, no_output, AMD_HOST) == ()


ROCM_SMI = """{
  "card0": {
    "VRAM Total Memory (B)": "21458059264",
    "VRAM Total Used Memory (B)": "27856896",
    "GTT Total Memory (B)": "33501757440",
    "GTT Total Used Memory (B)": "1048576",
    "Card Series": "Radeon RX 7900 XT",
    "Card Model": "0x744c"
  },
  "card1": {
    "VRAM Total Memory (B)": "67108864",
    "VRAM Total Used Memory (B)": "26079232",
    "GTT Total Memory (B)": "33501757440",
    "GTT Total Used Memory (B)": "1048576",
    "Card model": "0x164e"
  },
  "card2": {"VRAM Total Memory (B)": "N/A", "VRAM Total Used Memory (B)": "N/A"},
  "system": {"Driver version": "6.12.12"}
}"""


def test_the_output_of_rocm_smi_is_used_only_if_sysfs_lists_no_gpu(tmp_path: Path) -> None:
    shared = 33_501_757_440
    assert amd_devices(tmp_path, lambda: ROCM_SMI, AMD_HOST) == (
        Device("Radeon RX 7900 XT", 21_458_059_264, 21_430_202_368),
        Device(
            "AMD 0x164e",
            67_108_864 + shared,
            67_108_864 - 26_079_232 + shared - 1_048_576,
            is_unified=True,
        ),
    )
    write_card(tmp_path, 0, mem_info_vram_total=24 * GIB, mem_info_vram_used=0)
    (device,) = amd_devices(tmp_path, lambda: ROCM_SMI, AMD_HOST)
    assert device.total == 24 * GIB


@pytest.mark.parametrize("output", ["", "ERROR: no AMD driver", "[]", '{"card0": "N/A"}'])
def test_invalid_output_of_rocm_smi_is_ignored(tmp_path: Path, output: str) -> None:
    assert amd_devices(tmp_path, lambda: output, AMD_HOST) == ()


def test_rocm_smi_is_called_with_json_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "rocm-smi"
    program.write_text('#!/bin/sh\necho "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr("proxy.hardware.snapshot._TOOL_SECONDS", TIMEOUT_SECONDS)
    assert rocm_smi() == "--showproductname --showmeminfo vram gtt --json\n"


def sysctl_output(memory: int, limit: str = "0", arm: str = "1") -> str:
    return (
        f"hw.memsize: {memory}\n"
        f"hw.optional.arm64: {arm}\n"
        f"iogpu.wired_limit_mb: {limit}\n"
        "machdep.cpu.brand_string: Apple M2 Max\n"
    )


def devices(text: str, free: int = 64 * GIB) -> tuple[Device, ...]:
    return apple_devices(lambda: text, Memory(64 * GIB, free))


@pytest.mark.parametrize(
    ("memory", "limit", "total"),
    [
        (24 * GIB, "0", 16 * GIB),
        (64 * GIB, "0", 48 * GIB),
        (64 * GIB, "57344", 56 * GIB),
        (64 * GIB, "none", 48 * GIB),
    ],
)
def test_the_memory_of_an_apple_gpu_is_the_wired_limit_or_else_a_share_of_all_memory(
    memory: int, limit: str, total: int
) -> None:
    assert devices(sysctl_output(memory, limit)) == (
        Device("Apple M2 Max", total, total, is_unified=True),
    )


def test_an_apple_gpu_has_no_more_free_memory_than_its_host() -> None:
    (device,) = devices(sysctl_output(64 * GIB), 10 * GIB)
    assert (device.total, device.free) == (48 * GIB, 10 * GIB)


def test_without_a_wired_limit_an_apple_gpu_may_use_three_quarters_of_memory() -> None:
    (device,) = devices(f"hw.memsize: {64 * GIB}\nhw.optional.arm64: 1\n")
    assert (device.name, device.total) == ("Apple", 48 * GIB)


@pytest.mark.parametrize(
    "text",
    ["", "what?", sysctl_output(64 * GIB, arm="0"), f"hw.memsize: {64 * GIB}\n", sysctl_output(0)],
)
def test_no_apple_gpu_is_listed_for_invalid_sysctl_output_or_an_intel_machine(text: str) -> None:
    assert devices(text) == ()


def test_sysctl_returns_nothing_if_the_program_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.hardware.snapshot._COMMAND", ("/no/such/tool",))
    assert sysctl() == ""


def test_sysctl_returns_nothing_if_the_program_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.hardware.snapshot._COMMAND", ("sleep", "60"))
    monkeypatch.setattr("proxy.hardware.snapshot._TOOL_SECONDS", 0.01)
    assert sysctl() == ""


def test_sysctl_returns_the_output_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.hardware.snapshot._COMMAND", ("echo", "hw.memsize: 1"))
    monkeypatch.setattr("proxy.hardware.snapshot._TOOL_SECONDS", TIMEOUT_SECONDS)
    assert sysctl() == "hw.memsize: 1\n"


HOST = Memory(1000, 500)
GPU = Device("some GPU", 300, 200)


def test_detect_hardware_returns_the_memory_of_this_machine() -> None:
    memory = detect_hardware()
    assert 0 < memory.free <= memory.total


def test_the_devices_of_every_source_are_combined() -> None:
    memory = add_devices(HOST, (lambda _: (GPU,), lambda _: (), lambda host: (GPU,)), 60)
    assert memory == Memory(1000, 500, (GPU, GPU))


def test_devices_of_a_driver_that_hangs_are_omitted_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    released = Event()

    def hang(_host: Memory) -> tuple[Device, ...]:
        released.wait()
        return (GPU,)

    with caplog.at_level(logging.WARNING):
        memory = add_devices(HOST, (lambda _: (GPU,), hang), 0.05)
    released.set()
    assert memory.devices in ((), (GPU,))
    assert "GPUs may be missing" in caplog.text


NVIDIA_HOST = Memory(128 * GIB, 100 * GIB)


@dataclass
class Reading:
    total: int
    free: int


@dataclass
class FakeGpu:
    """A device as NVML reports it. If a field is an integer, reading it raises this error code."""

    name: str | int
    memory: Reading | int
    uuid: str = "GPU-1"
    partition: list[int] | int = pynvml.NVML_ERROR_NOT_SUPPORTED
    parts: "list[FakeGpu | int]" = field(default_factory=list)


def value(of: object) -> object:
    if isinstance(of, int):
        raise pynvml.NVMLError(of)
    return of


class FakeNvml(ModuleType):
    """A fake of the module pynvml, with the real error classes."""

    NVMLError = pynvml.NVMLError
    NVMLError_NotSupported = pynvml.NVMLError_NotSupported

    def __init__(self, *gpus: FakeGpu, init: int = 0, count: int = 0) -> None:
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

        def by_index(index: int) -> FakeGpu:
            return gpus[index] if index < len(gpus) else missing()

        def by_name(name: str) -> FakeGpu:
            everything = [*gpus, *(part for gpu in gpus for part in gpu.parts)]
            named = (gpu for gpu in everything if isinstance(gpu, FakeGpu) and gpu.uuid == name)
            return next(named, None) or missing()

        functions: dict[str, object] = {
            "nvmlInit": open_it,
            "nvmlShutdown": close_it,
            "nvmlDeviceGetCount": count_them,
            "nvmlDeviceGetHandleByIndex": by_index,
            "nvmlDeviceGetHandleByUUID": by_name,
            "nvmlDeviceGetName": lambda gpu: value(gpu.name),
            "nvmlDeviceGetMemoryInfo": lambda gpu: value(gpu.memory),
            "nvmlDeviceGetMigMode": lambda gpu: value(gpu.partition),
            "nvmlDeviceGetMaxMigDeviceCount": lambda gpu: len(gpu.parts),
            "nvmlDeviceGetMigDeviceHandleByIndex": lambda gpu, index: value(gpu.parts[index]),
        }
        vars(self).update(functions)


def missing() -> FakeGpu:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)


LARGE = FakeGpu("NVIDIA H100 80GB HBM3", Reading(80 * GIB, 70 * GIB))
SMALL = FakeGpu("NVIDIA GeForce RTX 3060", Reading(12 * GIB, 3 * GIB), "GPU-2")


def names(driver: FakeNvml, visible: str | None = None) -> list[str]:
    names_ = [device.name for device in nvidia_devices(driver, NVIDIA_HOST, visible)]
    assert not driver.is_open
    return names_


def test_every_nvidia_gpu_is_listed_with_its_memory() -> None:
    assert nvidia_devices(FakeNvml(LARGE, SMALL), NVIDIA_HOST, None) == (
        Device("NVIDIA H100 80GB HBM3", 80 * GIB, 70 * GIB),
        Device("NVIDIA GeForce RTX 3060", 12 * GIB, 3 * GIB),
    )


@pytest.mark.parametrize("memory", [pynvml.NVML_ERROR_NOT_SUPPORTED, Reading(0, 0)])
def test_an_nvidia_gpu_that_reports_no_memory_uses_host_memory(memory: Reading | int) -> None:
    devices = nvidia_devices(FakeNvml(FakeGpu("NVIDIA GB10", memory)), NVIDIA_HOST, None)
    assert devices == (Device("NVIDIA GB10", 128 * GIB, 100 * GIB, is_unified=True),)


def test_an_nvidia_gpu_that_cannot_be_queried_is_skipped() -> None:
    lost = FakeGpu("NVIDIA A100", pynvml.NVML_ERROR_GPU_IS_LOST)
    nameless = FakeGpu(pynvml.NVML_ERROR_UNKNOWN, Reading(GIB, GIB))
    assert names(FakeNvml(lost, SMALL, nameless)) == [SMALL.name]


def test_the_first_instance_of_an_nvidia_gpu_with_mig_is_listed() -> None:
    part = FakeGpu("NVIDIA H100 MIG 1g.10gb", Reading(10 * GIB, 9 * GIB), "MIG-1")
    parts: list[FakeGpu | int] = [pynvml.NVML_ERROR_NOT_FOUND, part, SMALL]
    device = FakeGpu("NVIDIA H100", Reading(80 * GIB, 0), "GPU-3", [1, 1], parts)
    assert names(FakeNvml(device)) == [part.name]
    assert names(FakeNvml(device), "MIG-1") == [part.name]
    device = FakeGpu("NVIDIA H100", Reading(80 * GIB, 0), "GPU-3", [0, 1], parts)
    assert names(FakeNvml(device)) == [device.name]
    device = FakeGpu("NVIDIA H100", Reading(80 * GIB, 0), "GPU-3", [1, 1])
    assert names(FakeNvml(device)) == [device.name]


@pytest.mark.parametrize(
    ("visible", "devices"),
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
def test_only_gpus_in_cuda_visible_devices_are_listed(
    visible: str | None, devices: list[FakeGpu]
) -> None:
    assert names(FakeNvml(LARGE, SMALL), visible) == [gpu.name for gpu in devices]


@pytest.mark.parametrize("error", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_UNKNOWN])
def test_without_an_nvidia_driver_no_gpu_is_listed(error: int) -> None:
    assert names(FakeNvml(LARGE, init=error)) == []
    assert names(FakeNvml(LARGE, count=error)) == []


def test_the_real_pynvml_has_every_function_of_the_fake() -> None:
    assert all(hasattr(pynvml, name) for name in vars(FakeNvml()) if name.startswith("nvml"))
