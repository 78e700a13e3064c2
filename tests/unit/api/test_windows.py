import sys
from pathlib import Path

import pytest

from proxy.api.windows import fitting_window, planned_window, usable_by
from proxy.errors import InvalidConfiguration, LaunchFailed
from proxy.hardware.memory import Device, Memory
from proxy.hardware.shape import Layer, ModelShape
from proxy.processes.model_file import ModelFile
from proxy.sections import Context, Model
from tests.fakes.llama import build_model

GIB = 1 << 30
FILE = ModelFile(("some.gguf",), shape=ModelShape(5 * GIB, (Layer(8, 128, 128),) * 36, 40_960))
MODEL = Model(slots=2)


def window(budget: str, free: int, window_tokens: int = 0) -> int:
    context = Context.model_validate({"budget": budget, "window_tokens": window_tokens})
    return fitting_window(MODEL, context, FILE, Memory(64 * GIB, free))


@pytest.mark.parametrize("budget", ["backend", "manual"])
def test_without_a_wish_for_more_the_configured_window_is_taken(budget: str) -> None:
    context = Context.model_validate({"budget": budget})
    assert planned_window(Model(context_tokens=5000), context, FILE) == 5000


def test_full_takes_all_that_fits_and_fast_half_of_it() -> None:
    assert window("full", 60 * GIB) == 40_960
    assert window("fast", 60 * GIB) == 20_480
    full = window("full", 12 * GIB)
    assert 8192 < full < 40_960
    assert window("fast", 12 * GIB) == full // 2 // 256 * 256


def test_a_window_of_the_smallest_size_is_not_halved() -> None:
    small = ModelFile(("some.gguf",), shape=ModelShape(GIB, (), 300))
    context = Context.model_validate({"budget": "fast"})
    assert fitting_window(MODEL, context, small, Memory(9 * GIB, 9 * GIB)) == 256


def test_the_operators_own_limit_saves_memory() -> None:
    assert window("full", 60 * GIB, 10_000) == 10_000
    assert window("fast", 60 * GIB, 30_000) == 20_480


def test_a_model_that_does_not_fit_is_refused_with_both_sizes() -> None:
    with pytest.raises(InvalidConfiguration, match=r"needs 5\.0 GiB and 3\.6 GiB can be used"):
        window("full", 4 * GIB)


def test_a_file_that_does_not_say_what_it_needs_is_refused_with_the_remedy() -> None:
    context = Context.model_validate({"budget": "full"})
    with pytest.raises(InvalidConfiguration, match=r"set model\.context_tokens") as raised:
        fitting_window(MODEL, context, ModelFile(("some.gguf",)), Memory(GIB, GIB))
    assert raised.value.setting == "context.budget"


def test_this_machines_own_memory_is_measured(tmp_path: Path) -> None:
    model = build_model(tmp_path / "model.gguf")
    shape = ModelShape(1000, (Layer(1, 64, 64),), 8192)
    file = ModelFile((str(model),), shape=shape)
    assert planned_window(MODEL, Context.model_validate({"budget": "full"}), file) == 8192


@pytest.mark.parametrize("lists", ["  CUDA0: some GPU", ""])
def test_devices_that_the_program_does_not_use_are_left_out(lists: str) -> None:
    gpu = Device("some GPU", GIB, GIB)
    program = (sys.executable, "-c", f"print('Available devices:'); print({lists!r})")
    used = usable_by(program, Memory(GIB, GIB, (gpu,)))
    assert used == (Memory(GIB, GIB, (gpu,)) if lists else Memory(GIB, GIB, unused=(gpu,)))


def test_what_is_no_model_is_refused_for_that(tmp_path: Path) -> None:
    file = ModelFile((str(tmp_path / "none.gguf"),))
    with pytest.raises(LaunchFailed, match="does not exist"):
        planned_window(MODEL, Context.model_validate({"budget": "full"}), file)
