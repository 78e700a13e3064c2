"""The window of a model that Temper starts or Ollama loads: configured, or what fits."""

import logging
from urllib.parse import urlsplit

from proxy.backends.ollama_models import Fitting
from proxy.conversation.json import JsonObject
from proxy.errors import InvalidConfiguration
from proxy.hardware.fit import (
    STEP,
    CacheType,
    Caching,
    Memory,
    largest_window,
    ollama_default_window,
)
from proxy.hardware.shape import shape_of
from proxy.hardware.summary import amount
from proxy.processes.launch import check_model_file, find_program, uses_devices
from proxy.processes.model_file import ModelFile
from proxy.settings import Settings, is_loopback
from proxy.settings.sections import Context, Model

logger = logging.getLogger(__name__)


def is_measured(context: Context) -> bool:
    """Return whether the window depends on the memory there is."""
    return context.budget in {"full", "fast"}


def plan_window(model: Model, context: Context, file: ModelFile) -> int:
    """Return the window of one slot; measures the memory only where the budget depends on it.

    Raises InvalidConfiguration if no window fits and LaunchFailed for what is no model at all.
    """
    if not is_measured(context):
        return model.context_tokens
    if model.path is not None:
        check_model_file(model.path)
    return fit_window(model, context, file, usable_memory(find_program(model.server)))


def usable_memory(program: tuple[str, ...]) -> Memory:
    """Measure the memory that a llama-server has for its models."""
    from proxy.hardware.snapshot import snapshot  # 50 ms that most starts need not wait for

    return usable_by(program, snapshot())


def usable_by(program: tuple[str, ...], memory: Memory) -> Memory:
    """Leave out the devices if the program was built without support for any."""
    return memory if not memory.devices or uses_devices(program) else memory.without_devices()


def ollama_fitting(settings: Settings, url: str) -> Fitting | None:
    """Return how to find the window of an Ollama's models, if it is the hardware's to decide.

    Only for an Ollama on this machine: of another one's memory nothing is known. `fast` asks for
    the same window as `full` and uses half of it.
    """
    is_near = is_loopback(urlsplit(url).hostname or "")
    return ollama_window if is_near and settings.context.budget in {"full", "fast"} else None


def ollama_window(told: JsonObject, size: int) -> int | None:
    """Find the largest window for a model of an Ollama, by its `model_info`; None leaves it be."""
    from proxy.hardware.snapshot import snapshot

    return window_within(told, size, snapshot())


def window_within(told: JsonObject, size: int, memory: Memory) -> int | None:
    """Find the largest window that fits, not below what Ollama chooses on its own."""
    own_keys = f"{told.get('general.architecture')}."
    # lists are left out, and one of them may be that of the numbers of heads
    is_cut = any(name.startswith(own_keys) and value in (None, []) for name, value in told.items())
    shape = shape_of(told, size)
    if shape is None or is_cut:
        return None
    own = ollama_default_window(sum(device.total for device in memory.devices))
    least = min(own, shape.trained_context)
    return max(least, largest_window(shape, memory, Caching()).window)


def fit_window(model: Model, context: Context, file: ModelFile, memory: Memory) -> int:
    """Return the largest window that fits, half of it for `fast`; raises InvalidConfiguration."""
    if file.shape is None:
        raise InvalidConfiguration(
            "context.budget",
            f"{context.budget!r} needs to know what the model needs, and {file.names[0]} does not "
            "say; set model.context_tokens and budget = 'backend'",
        )
    keys, values = CacheType[model.cache_type_k.upper()], CacheType[model.cache_type_v.upper()]
    fit = largest_window(file.shape, memory, Caching(model.slots, keys, values))
    if not fit.window:
        raise InvalidConfiguration(
            "context.budget",
            f"no window fits: {file.names[0]} needs {amount(fit.need.total)} and "
            f"{amount(fit.room)} can be used; take a smaller quantisation, or budget = 'backend'",
        )
    window = fit.window if context.budget == "full" else max(STEP, fit.window // 2 // STEP * STEP)
    window = min(window, context.window_tokens or window)
    logger.info("a window of %d tokens for each of %d slots was chosen", window, model.slots)
    return window
