"""Computes the memory that a model needs, and the largest window that fits. No I/O.

The size of the KV cache is exact (the formula of llama.cpp). The working memory is an estimate, and
a margin remains free. Sizes are in bytes, windows in tokens of one slot.

    Qwen3-8B (36 layers, 8 KV heads of 128): 36 * 8 * 128 * 2 * 2 bytes = 144 KiB a token in f16
"""

from dataclasses import dataclass, replace
from enum import Enum

from proxy.hardware.shape import Layer, ModelShape


@dataclass(frozen=True, slots=True)
class Device:
    """An accelerator and its memory; if `is_unified`, it uses memory of the host."""

    name: str
    total: int
    free: int
    is_unified: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of the host, and of each device that a model can use."""

    total: int
    free: int
    devices: tuple[Device, ...] = ()
    unused: tuple[Device, ...] = ()  # devices that the build of llama-server does not support

    def without_devices(self) -> "Memory":
        """Return the memory for a program that cannot use the devices."""
        return replace(self, devices=(), unused=self.devices)


GIB = 1 << 30
STEP = 256  # tokens; llama-server rounds windows to a multiple of this

_BATCH = 512  # tokens that are computed at once (llama-server's default)
_FLOAT = 4  # bytes of a number in a compute buffer
_MASK = 2  # bytes of the attention mask for each pair of a token in the batch and in the window
_MARGIN = GIB  # memory of each device that remains free, as in llama-server's --fit-target
_HOST_MARGIN = 0.1  # share of the host's free memory that remains free, at most _MARGIN
_USEFUL = 4096  # tokens; if this window does not fit on the devices, host memory is used as well

# Ollama's default windows and the GPU memory that each needs. As in Ollama's server/routes.go, the
# values are slightly below 48 and 24 GiB.
_OLLAMA_TIERS = ((47 * GIB, 262_144), (23 * GIB, 32_768))
_OLLAMA_LEAST = 4096  # Ollama's default window if there is less GPU memory


class CacheType(Enum):
    """A data type of the KV cache: llama-server's name, and the elements and bytes of a block."""

    F32 = ("f32", 1, 4)
    F16 = ("f16", 1, 2)
    BF16 = ("bf16", 1, 2)
    Q8_0 = ("q8_0", 32, 34)
    Q5_1 = ("q5_1", 32, 24)
    Q5_0 = ("q5_0", 32, 22)
    Q4_1 = ("q4_1", 32, 20)
    Q4_0 = ("q4_0", 32, 18)
    IQ4_NL = ("iq4_nl", 32, 18)

    def __init__(self, word: str, block: int, block_bytes: int) -> None:
        self.word = word
        self.block = block
        self.block_bytes = block_bytes

    def size(self, elements: int) -> int:
        return -(-elements // self.block) * self.block_bytes


@dataclass(frozen=True, slots=True)
class Caching:
    """The data types of keys and values in the KV cache, and the number of slots."""

    slots: int = 1
    keys: CacheType = CacheType.F16
    values: CacheType = CacheType.F16

    def suits(self, shape: ModelShape) -> bool:
        """Return whether llama-server accepts the types for a model.

        The key and the value of each head must consist of whole blocks.
        """
        return not any(
            layer.heads
            and (layer.key_length % self.keys.block or layer.value_length % self.values.block)
            for layer in shape.layers
        )


@dataclass(frozen=True, slots=True)
class Need:
    """The memory that a model needs for a window."""

    weights: int
    cache: int
    working: int

    @property
    def total(self) -> int:
        return self.weights + self.cache + self.working


@dataclass(frozen=True, slots=True)
class Fit:
    """The largest window (0 if none fits), the memory that it needs, and the available memory.

    `on_host` is the part of the needed memory that does not fit on the devices. It is 0 if there
    are no devices, or if they share the host's memory.
    """

    window: int
    need: Need
    room: int
    on_host: int = 0


def cache_bytes(shape: ModelShape, window: int, caching: Caching) -> int:
    """Return the bytes of all keys and values, and of the states of recurrent layers."""
    per_slot = sum(
        _stored_tokens(shape, layer, window) * _token_bytes(layer, caching) + layer.state_bytes
        for layer in shape.layers
    )
    return caching.slots * per_slot


def bytes_per_token(shape: ModelShape, caching: Caching) -> int:
    """Return the bytes of one more token in a slot whose sliding windows are full."""
    return sum(_token_bytes(layer, caching) for layer in shape.layers if not layer.is_sliding)


def need(shape: ModelShape, window: int, caching: Caching) -> Need:
    return Need(shape.weights, cache_bytes(shape, window, caching), _working_memory(shape, window))


def largest_window(shape: ModelShape, memory: Memory, caching: Caching) -> Fit:
    """Find the largest window that fits, at most the window for which the model was trained.

    If the devices have room for the whole model and a useful window, only their memory is used;
    otherwise the memory of the host is used as well.
    """
    device, host = _rooms(memory)
    most = shape.trained_context // STEP * STEP
    room = device or host
    window = _largest(shape, room, caching, most)
    if device and window < min(most, _USEFUL):
        room = device + host
        window = _largest(shape, room, caching, most)
    needed = need(shape, window, caching)
    return Fit(window, needed, room, max(0, needed.total - device) if device else 0)


def ollama_default_window(total_vram_bytes: int) -> int:
    """Return Ollama's default window, which depends on the memory of all GPUs."""
    for least, window in _OLLAMA_TIERS:
        if total_vram_bytes >= least:
            return window
    return _OLLAMA_LEAST


def _rooms(memory: Memory) -> tuple[int, int]:
    """Return the usable memory of the devices, and of the host."""
    host = memory.free - min(_MARGIN, int(_HOST_MARGIN * memory.free))
    if any(device.is_unified for device in memory.devices):
        # such a device uses the host's memory, so the host has no additional memory
        shared = max(device.free for device in memory.devices if device.is_unified)
        return max(0, min(host, shared - _MARGIN)), 0
    return sum(max(0, device.free - _MARGIN) for device in memory.devices), host


def _largest(shape: ModelShape, room: int, caching: Caching, most: int) -> int:
    """Find the largest window by bisection: a larger window never needs less memory."""
    low, high = 0, most // STEP
    while low < high:
        middle = (low + high + 1) // 2
        if need(shape, middle * STEP, caching).total <= room:
            low = middle
        else:
            high = middle - 1
    return low * STEP


def _stored_tokens(shape: ModelShape, layer: Layer, window: int) -> int:
    """Return the number of tokens that a layer stores.

    A layer with a sliding window stores the tokens of that window and of one batch.
    """
    full = _pad(window)
    return min(full, _pad(shape.sliding_window + _BATCH)) if layer.is_sliding else full


def _pad(tokens: int) -> int:
    return -(-tokens // STEP) * STEP


def _token_bytes(layer: Layer, caching: Caching) -> int:
    keys = caching.keys.size(layer.heads * layer.key_length)
    return keys + caching.values.size(layer.heads * layer.value_length)


def _working_memory(shape: ModelShape, window: int) -> int:
    """Estimate the compute buffer of a batch: its vectors, and a mask for each kind of attention.

    The formula was fitted to llama.cpp build 11669; older builds also store the logits of the whole
    batch.
    """
    row = max(shape.vocabulary, 10 * shape.width + 2 * shape.feed_forward)
    # layers with the same kind of attention share a mask
    lengths = {
        layer.is_sliding: _stored_tokens(shape, layer, window)
        for layer in shape.layers
        if layer.heads
    }
    return _BATCH * (_FLOAT * row + _MASK * sum(lengths.values()))
