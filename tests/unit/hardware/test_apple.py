import pytest

from proxy.hardware.apple import apple_devices, sysctl
from proxy.hardware.memory import Device, Memory
from tests.patience import PATIENCE_SECONDS

GIB = 1 << 30


def told(memory: int, limit: str = "0", arm: str = "1") -> str:
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
def test_the_gpu_may_use_a_share_of_the_hosts_memory(memory: int, limit: str, total: int) -> None:
    assert devices(told(memory, limit)) == (Device("Apple M2 Max", total, total, is_unified=True),)


def test_no_more_is_free_than_the_host_has() -> None:
    (device,) = devices(told(64 * GIB), 10 * GIB)
    assert (device.total, device.free) == (48 * GIB, 10 * GIB)


def test_an_older_system_does_not_know_the_limit() -> None:
    (device,) = devices(f"hw.memsize: {64 * GIB}\nhw.optional.arm64: 1\n")
    assert (device.name, device.total) == ("Apple", 48 * GIB)


@pytest.mark.parametrize(
    "text", ["", "what?", told(64 * GIB, arm="0"), f"hw.memsize: {64 * GIB}\n", told(0)]
)
def test_other_machines_have_no_such_gpu(text: str) -> None:
    assert devices(text) == ()


def test_a_system_without_the_tool_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.hardware.apple._COMMAND", ("/no/such/tool",))
    assert sysctl() == ""


def test_a_tool_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.hardware.apple._COMMAND", ("sleep", "60"))
    monkeypatch.setattr("proxy.hardware.apple._TOOL_SECONDS", 0.01)
    assert sysctl() == ""


def test_what_the_tool_says_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.hardware.apple._COMMAND", ("echo", "hw.memsize: 1"))
    monkeypatch.setattr("proxy.hardware.apple._TOOL_SECONDS", PATIENCE_SECONDS)
    assert sysctl() == "hw.memsize: 1\n"
