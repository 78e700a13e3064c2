"""Formats the needed and the available memory as text and JSON, for `temper models`."""

from dataclasses import dataclass

from proxy.bounds import KIB, MIB
from proxy.conversation.json import JsonObject
from proxy.hardware import fit
from proxy.hardware.shape import ModelShape


@dataclass(frozen=True, slots=True)
class Prospect:
    """A model, the memory of the machine, and the number of slots."""

    shape: ModelShape
    memory: fit.Memory
    slots: int


def summary(prospect: Prospect) -> dict[str, str]:
    shape, memory = prospect.shape, prospect.memory
    sizes = ", ".join(
        f"{amount(1024 * fit.bytes_per_token(shape, caching))} ({caching.keys.word})"
        for caching in _cachings(prospect)
    )
    return {
        "memory": f"weights {amount(shape.weights)}; 1,024 tokens of a slot {sizes}",
        "window": _windows(prospect),
        "hardware": "; ".join([*map(_device, memory.devices), _host(memory)]),
    }


def document(prospect: Prospect) -> JsonObject:
    """Return a JSON object; sizes are in bytes, windows in tokens of one slot."""
    shape, memory = prospect.shape, prospect.memory
    return {
        "weights_bytes": shape.weights,
        "trained_context": shape.trained_context,
        "slots": prospect.slots,
        "caches": {
            caching.keys.word: _describe_cache(prospect, caching) for caching in _cachings(prospect)
        },
        "host": {"total_bytes": memory.total, "free_bytes": memory.free},
        "devices": [
            {
                "name": device.name,
                "total_bytes": device.total,
                "free_bytes": device.free,
                "unified": device.is_unified,
            }
            for device in memory.devices
        ],
        "unused_devices": [device.name for device in memory.unused],
    }


def amount(size: int) -> str:
    if size >= fit.GIB:
        return f"{size / fit.GIB:.1f} GiB"
    return f"{size / MIB:.1f} MiB" if size >= MIB else f"{size / KIB:.1f} KiB"


def _cachings(prospect: Prospect) -> tuple[fit.Caching, ...]:
    """Return llama-server's default cache types, and q8_0 if the model supports it."""
    small = fit.Caching(prospect.slots, fit.CacheType.Q8_0, fit.CacheType.Q8_0)
    return (fit.Caching(prospect.slots), *([small] if small.suits(prospect.shape) else []))


def _windows(prospect: Prospect) -> str:
    default, *small = (
        fit.largest_window(prospect.shape, prospect.memory, caching)
        for caching in _cachings(prospect)
    )
    trained = f"trained for {prospect.shape.trained_context:,}"
    if not default.window:
        needs = f"needs {amount(default.need.total)}, but only {amount(default.room)} is available"
        return f"none fits: the model {needs}; {trained}"
    with_small = f" ({small[0].window:,} with a q8_0 cache)" if small else ""
    on_host = f", {amount(default.on_host)} of it in the host's memory" if default.on_host else ""
    each = f" for each of {prospect.slots} slots" if prospect.slots > 1 else ""
    return f"{default.window:,} tokens fit{each}{with_small}{on_host}; {trained}"


def _describe_cache(prospect: Prospect, caching: fit.Caching) -> JsonObject:
    largest = fit.largest_window(prospect.shape, prospect.memory, caching)
    return {
        "bytes_per_token": fit.bytes_per_token(prospect.shape, caching),
        "largest_window": largest.window,
        "cache_bytes": largest.need.cache,
        "working_bytes": largest.need.working,
        "needed_bytes": largest.need.total,
        "usable_bytes": largest.room,
        "on_host_bytes": largest.on_host,
    }


def _device(device: fit.Device) -> str:
    shared = ", shared with the host" if device.is_unified else ""
    return f"{device.name}: {amount(device.free)} of {amount(device.total)} free{shared}"


def _host(memory: fit.Memory) -> str:
    names = ", ".join(device.name for device in memory.unused)
    unused = f"{names} is not used by this llama-server; " if names else ""
    no_gpu = "" if memory.devices or memory.unused else "no GPU was found; "
    return f"{no_gpu}{unused}host: {amount(memory.free)} of {amount(memory.total)} free"
