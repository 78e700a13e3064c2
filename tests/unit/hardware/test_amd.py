from pathlib import Path

from proxy.hardware.amd import amd_devices
from proxy.hardware.memory import Device, Memory

GIB = 1 << 30
HOST = Memory(64 * GIB, 40 * GIB)


def card(root: Path, number: int, **files: object) -> None:
    folder = root / f"sys/class/drm/card{number}/device"
    folder.mkdir(parents=True)
    for name, content in {"vendor": "0x1002", "device": "0x744c", **files}.items():
        (folder / name).write_text(f"{content}\n", encoding="utf-8")


def test_a_card_tells_its_memory(tmp_path: Path) -> None:
    own = {"mem_info_vram_total": 24 * GIB, "mem_info_vram_used": 2 * GIB}
    card(tmp_path, 0, product_name="Radeon RX 7900 XTX", **own)
    card(tmp_path, 1, mem_info_gtt_total=32 * GIB, **own)
    assert amd_devices(tmp_path, HOST) == (
        Device("Radeon RX 7900 XTX", 24 * GIB, 22 * GIB),
        Device("AMD 0x744c", 24 * GIB, 22 * GIB),
    )


def test_a_processors_own_gpu_uses_the_hosts_memory_besides(tmp_path: Path) -> None:
    card(
        tmp_path,
        0,
        mem_info_vram_total=GIB // 2,
        mem_info_vram_used=GIB // 4,
        mem_info_gtt_total=32 * GIB,
        mem_info_gtt_used=GIB,
    )
    (device,) = amd_devices(tmp_path, HOST)
    assert device == Device("AMD 0x744c", 32 * GIB + GIB // 2, 31 * GIB + GIB // 4, is_unified=True)
    (device,) = amd_devices(tmp_path, Memory(64 * GIB, GIB))
    assert device.free == GIB + GIB // 4


def test_other_cards_and_broken_files_are_passed_over(tmp_path: Path) -> None:
    card(tmp_path, 0, vendor="0x10de", mem_info_vram_total=24 * GIB)
    card(tmp_path, 1, mem_info_vram_total="unknown")
    card(tmp_path, 2)
    (tmp_path / "sys/class/drm/card3/device/vendor").mkdir(parents=True)
    (tmp_path / "sys/class/drm/card0-DP-1").mkdir()
    assert amd_devices(tmp_path, HOST) == ()


def test_without_such_files_there_is_nothing(tmp_path: Path) -> None:
    assert amd_devices(tmp_path, HOST) == ()
