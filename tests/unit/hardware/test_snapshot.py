import logging
from threading import Event

import pytest

from proxy.hardware.memory import Device, Memory
from proxy.hardware.snapshot import measured, snapshot

HOST = Memory(1000, 500)
GPU = Device("some GPU", 300, 200)


def test_this_machine_has_memory() -> None:
    found = snapshot()
    assert 0 < found.free <= found.total


def test_what_every_source_finds_is_put_together() -> None:
    found = measured(HOST, (lambda _: (GPU,), lambda _: (), lambda host: (GPU,)), 60)
    assert found == Memory(1000, 500, (GPU, GPU))


def test_a_driver_that_hangs_is_given_up_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    released = Event()

    def hang(_host: Memory) -> tuple[Device, ...]:
        released.wait()
        return (GPU,)

    with caplog.at_level(logging.WARNING):
        found = measured(HOST, (lambda _: (GPU,), hang), 0.05)
    released.set()
    assert found.devices in ((), (GPU,))
    assert "GPUs may be missing" in caplog.text
