import sys
from collections.abc import Sequence

import pytest

from proxy.processes import devices
from proxy.processes.devices import uses_devices
from proxy.processes.launch import embedded_program
from tests.patience import PATIENCE_SECONDS


@pytest.fixture(autouse=True)
def programs_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is late is believed to have some."""
    monkeypatch.setattr(devices, "_SECONDS", PATIENCE_SECONDS)


def saying(text: str, code: int = 0) -> Sequence[str]:
    """Return a program that says something, whatever it is asked."""
    return (sys.executable, "-c", f"import sys; print({text!r}); sys.exit({code})")


@pytest.mark.parametrize(
    ("text", "code", "has_some"),
    [
        (
            "found 1 device\nAvailable devices:\n  CUDA0: RTX (24 MiB, 23 MiB free)",
            0,
            True,
        ),
        ("Available devices:\n", 0, False),
        ("error: invalid argument: --list-devices", 1, True),
        ("Available devices:\n", 1, True),
        ("", 0, True),
    ],
)
def test_a_server_lists_what_it_can_use(text: str, code: int, *, has_some: bool) -> None:
    assert uses_devices(saying(text, code)) is has_some


def test_a_program_that_is_not_there_or_hangs_is_believed_to_have_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert uses_devices(("/no/such/program",))
    monkeypatch.setattr(devices, "_SECONDS", 0.01)
    assert uses_devices((sys.executable, "-c", "import time; time.sleep(60)"))


def test_the_embedded_server_answers_as_well() -> None:
    # a wheel for a GPU would have some, on a machine with one
    import xllamacpp

    kinds = {device["type"].name for device in xllamacpp.get_device_info()}
    assert uses_devices(embedded_program()) is (kinds != {"GGML_BACKEND_DEVICE_TYPE_CPU"})
