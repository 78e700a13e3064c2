"""Reads, from the metadata of a GGUF file, the dimensions that determine its memory. No I/O.

If the metadata is ambiguous, the larger memory is assumed. The computed window may then be smaller
than possible, so that conversations are shortened earlier. A window that is too large would crash
the server.
"""

# What a layer stores in the cache. Names are those of the metadata without the architecture prefix.
#
#   attention            a key and a value for each head and token; `head_count_kv` is a number for
#                        all layers, or a list with a number for each (0: a layer without attention)
#   sliding attention    the same, but for the last tokens only; `sliding_window_pattern` is a list
#                        with a value for each layer, or a period (the last layer of a period has
#                        full attention); in older files, the architecture determines the period
#   latent attention     one compressed key for all heads and no value, because the value can be
#                        computed from the key; `key_length_mla` is set
#   shared cache         nothing: the last layers, `shared_kv_layers` of them, read the cache of an
#                        earlier layer
#   recurrent            a state of a fixed size for each slot: Mamba, RWKV, gated convolutions and
#                        delta networks; in models that also have attention, only the layers without
#                        heads are recurrent

from collections.abc import Mapping
from dataclasses import dataclass

_MOST_LAYERS = 4096  # a file with more layers is corrupt
_FLOAT = 4  # bytes; recurrent states consist of 32-bit floats

# architectures whose older files do not contain the period of their sliding layers
_SLIDING_PERIODS = {"cohere2": 4, "gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2, "olmo2": 4}
# in these architectures, each nth layer has attention, and the other layers are recurrent
_FULL_ATTENTION_PERIODS = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4}
_ALWAYS_RECURRENT = frozenset({"falcon-h1"})  # every layer has both a state and attention
_MIXED_FEED_FORWARD = frozenset({"nemotron_h", "nemotron_h_moe"})  # some layers store nothing


@dataclass(frozen=True, slots=True)
class Layer:
    """The cache of one layer: `heads` with keys and values per token, `state_bytes` per slot."""

    heads: int
    key_length: int
    value_length: int
    is_sliding: bool = False
    state_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The properties of a model that determine its memory.

    `weights` is in bytes; `trained_context` and `sliding_window` are in tokens. `vocabulary` is the
    number of logits; `width` and `feed_forward` are the lengths of vectors.
    """

    weights: int
    layers: tuple[Layer, ...]
    trained_context: int
    sliding_window: int = 0
    vocabulary: int = 0
    width: int = 0
    feed_forward: int = 0


def shape_of(
    metadata: Mapping[str, object], weights: int, vocabulary: int = 0
) -> ModelShape | None:
    """Read the shape from the metadata of GGUF or Ollama; None if the metadata is incomplete."""
    keys = _Keys(metadata)
    count, context = keys.number("block_count"), keys.number("context_length")
    if not 0 < count <= _MOST_LAYERS or not context:
        return None
    return ModelShape(
        weights,
        tuple(_layer(keys, index, count) for index in range(count)),
        context,
        keys.number("attention.sliding_window"),
        vocabulary or keys.number("vocab_size"),
        keys.number("embedding_length"),
        _feed_forward(keys),
    )


class _Keys:
    """Typed access to the metadata of an architecture; a missing value is 0."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        self._metadata = metadata
        self.architecture = str(metadata.get("general.architecture", ""))

    def number(self, name: str) -> int:
        value = self._metadata.get(f"{self.architecture}.{name}")
        return max(0, value) if isinstance(value, int) else 0

    def each(self, name: str) -> tuple[int, ...]:
        """Return the values of a list with an element for each layer; () if it is missing."""
        value = self._metadata.get(f"{self.architecture}.{name}")
        if not isinstance(value, tuple | list):
            return ()
        return tuple(max(0, item) if isinstance(item, int) else 0 for item in value)

    def at(self, name: str, index: int) -> int:
        """Return the value for one layer, from a list or from a number for all layers."""
        values = self.each(name)
        return values[index] if index < len(values) else self.number(name)


def _feed_forward(keys: _Keys) -> int:
    """Return the length of the longest feed-forward vector, or of all active experts together."""
    experts = keys.number("expert_used_count") * keys.number("expert_feed_forward_length")
    dense = keys.each("feed_forward_length") or (keys.number("feed_forward_length"),)
    return max(experts, *dense)


def _layer(keys: _Keys, index: int, count: int) -> Layer:
    is_sliding = _is_sliding(keys, index)
    stored = _count_stored_heads(keys, index, count)
    has_state = not stored or keys.architecture in _ALWAYS_RECURRENT
    return Layer(
        stored,
        *_lengths(keys, index, is_sliding=is_sliding),
        is_sliding,
        _state_bytes(keys, index) if has_state else 0,
    )


def _count_stored_heads(keys: _Keys, index: int, count: int) -> int:
    """Count the heads whose keys and values a layer stores."""
    period = keys.number("full_attention_interval") or _FULL_ATTENTION_PERIODS.get(
        keys.architecture, 1
    )
    is_recurrent = (index + 1) % period != 0
    shares_cache = index >= count - keys.number("attention.shared_kv_layers")
    if is_recurrent or shares_cache:
        return 0
    heads = keys.at("attention.head_count_kv", index)
    # without grouped-query attention, `head_count_kv` may be missing; it then equals `head_count`
    is_known = keys.number("attention.head_count_kv") or keys.each("attention.head_count_kv")
    return heads if is_known else keys.at("attention.head_count", index)


def _is_sliding(keys: _Keys, index: int) -> bool:
    if not keys.number("attention.sliding_window"):
        return False
    name = "attention.sliding_window_pattern"
    if pattern := keys.each(name):
        return index < len(pattern) and bool(pattern[index])
    period = keys.number(name) or _SLIDING_PERIODS.get(keys.architecture, 1)
    return index % period < period - 1


def _lengths(keys: _Keys, index: int, *, is_sliding: bool) -> tuple[int, int]:
    """Return the lengths of a head's key and value."""
    heads = keys.at("attention.head_count", index)
    default = keys.number("embedding_length") // heads if heads else 0
    key = keys.number("attention.key_length") or default
    value = keys.number("attention.value_length") or default
    if is_sliding:
        key = keys.number("attention.key_length_swa") or key
        value = keys.number("attention.value_length_swa") or value
    return key, 0 if keys.number("attention.key_length_mla") else value


def _state_bytes(keys: _Keys, index: int) -> int:
    """Return the bytes of a layer's recurrent state for each slot; 0 without a state."""
    if keys.architecture in _MIXED_FEED_FORWARD and keys.at("feed_forward_length", index):
        return 0
    width = keys.number("embedding_length")
    past = max(0, keys.number("ssm.conv_kernel") - 1)
    if head := keys.number("kda.head_dim"):
        heads = keys.at("attention.head_count", index)
        return _FLOAT * heads * head * (3 * past + head)
    if head := keys.number("wkv.head_size"):
        return _FLOAT * width * (head + (keys.number("token_shift_count") or 2))
    gated = width * max(0, keys.number("shortconv.l_cache") - 1)
    state, inner = keys.number("ssm.state_size"), keys.number("ssm.inner_size")
    channels = inner + 2 * keys.number("ssm.group_count") * state
    return _FLOAT * (gated + past * channels + state * inner)
