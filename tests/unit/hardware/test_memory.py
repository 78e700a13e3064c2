from proxy.hardware.memory import Device, Memory

GPU = Device("some GPU", 30, 20)


def test_devices_that_cannot_be_used_are_still_known() -> None:
    assert Memory(100, 50, (GPU,)).without_devices() == Memory(100, 50, unused=(GPU,))
