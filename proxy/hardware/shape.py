"""The memory needs of a model, from the metadata of its GGUF file. No I/O.

Where the metadata is ambiguous, the larger need is assumed: a window that is too small costs a
conversation its beginning, one that is too large crashes the server.
"""

# The cache of a layer, by the names of the metadata (without the prefix of the architecture):
#
#   attention            a key and a value for each head and token; `head_count_kv` is a number for
#                        all layers or a list with one for each, 0 where a layer does not attend
#   sliding attention    the same, but for the last tokens only; the layers are given by a list, a
#                        period (its last layer has full attention) or, in older files, only by
#                        the architecture
#   latent attention     one compressed key for all heads (`key_length_mla` is set), from which
#                        the value is computed again
#   shared cache         the last `shared_kv_layers` read the cache of an earlier layer
#   recurrent            a state of a fixed size for each slot: Mamba, RWKV, gated convolutions and
#                        delta networks, either every layer or those without heads

from collections.abc import Mapping
from dataclasses import dataclass

_MOST_LAYERS = 4096  # more is a broken file
_FLOAT = 4  # bytes; recurrent states are kept as 32-bit floats

# architectures whose older files do not contain the period of their sliding layers
_SLIDING_PERIODS = {"cohere2": 4, "gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2, "olmo2": 4}
_FULL_ATTENTION_PERIODS = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4}
_ALWAYS_RECURRENT = frozenset({"falcon-h1"})  # in every layer, in addition to attention
_MIXED_FEED_FORWARD = frozenset({"nemotron_h", "nemotron_h_moe"})  # some layers only feed forward


@dataclass(frozen=True, slots=True)
class Layer:
    """The cache of one layer: elements for each token, and bytes for each slot."""

    heads: int
    key_length: int
    value_length: int
    is_sliding: bool = False
    state_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The properties of a model that determine its memory.

    `weights` are bytes; `trained_context` and `sliding_window` tokens. `vocabulary`, `width` and
    `feed_forward` are the lengths of a token's logits and vectors.
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
    """Read the shape from the metadata of GGUF or Ollama; None if that is incomplete."""
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
    """The metadata of one architecture; a missing value is 0."""

    def __init__(self, metadata: Mapping[str, object]) -> None:
        self._metadata = metadata
        self.architecture = str(metadata.get("general.architecture", ""))

    def number(self, name: str) -> int:
        value = self._metadata.get(f"{self.architecture}.{name}")
        return max(0, value) if isinstance(value, int) else 0

    def each(self, name: str) -> tuple[int, ...]:
        """Return a list with a value for each layer; empty if it is missing."""
        value = self._metadata.get(f"{self.architecture}.{name}")
        if not isinstance(value, tuple | list):
            return ()
        return tuple(max(0, item) if isinstance(item, int) else 0 for item in value)

    def at(self, name: str, index: int) -> int:
        """Return the value for one layer, from a list or from a value for all layers."""
        values = self.each(name)
        return values[index] if index < len(values) else self.number(name)


def _feed_forward(keys: _Keys) -> int:
    """Return the longest vector between two layers; experts run side by side."""
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
    """Count the heads whose keys and values a layer keeps."""
    period = keys.number("full_attention_interval") or _FULL_ATTENTION_PERIODS.get(
        keys.architecture, 1
    )
    is_recurrent = (index + 1) % period != 0
    shares_cache = index >= count - keys.number("attention.shared_kv_layers")
    if is_recurrent or shares_cache:
        return 0
    heads = keys.at("attention.head_count_kv", index)
    # without grouped-query attention, the number is missing and equals that of all heads
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
    usual = keys.number("embedding_length") // heads if heads else 0
    key = keys.number("attention.key_length") or usual
    value = keys.number("attention.value_length") or usual
    if is_sliding:
        key = keys.number("attention.key_length_swa") or key
        value = keys.number("attention.value_length_swa") or value
    return key, 0 if keys.number("attention.key_length_mla") else value


def _state_bytes(keys: _Keys, index: int) -> int:
    """Return the bytes of a recurrent state for each slot, 0 without one."""
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
