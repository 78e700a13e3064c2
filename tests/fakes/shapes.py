"""Models of many architectures that a real llama-server loads; their weights are zeros.

Each function writes the smallest file of one architecture and returns its path.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from gguf import GGUFWriter

Size = tuple[int, ...]
Sizes = dict[str, Size]
Number = int | float | Sequence[int]

_WIDTH = 64
_FEED_FORWARD = 96
_WORDS = [chr(0x100 + number) for number in range(300)]
_INNER, _STATE, _KERNEL, _RANK = 128, 16, 4, 4


def plain(folder: Path) -> Path:
    """Three layers with the same attention."""
    layers = [_attention(4, 2, 32) | _feed_forward()] * 3
    return _write(folder, "llama", layers, _heads(4, 2, 32))


def uneven(folder: Path) -> Path:
    """Four layers: three have different numbers of KV heads, and the last has no attention."""
    stored = (2, 1, 4)
    layers = [_attention(4, heads, 32) | _feed_forward() for heads in stored]
    numbers = _heads([4, 4, 4, 0], [*stored, 0], 32) | {"feed_forward_length": [_FEED_FORWARD] * 4}
    return _write(folder, "deci", [*layers, _feed_forward()], numbers)


def sliding(folder: Path) -> Path:
    """Seven layers with sliding attention, except for one layer with full attention."""
    norms = {"post_attention_norm": _WIDTH, "attn_q_norm": 32, "attn_k_norm": 32}
    norms |= {"post_ffw_norm": _WIDTH}
    norm_sizes: Sizes = {f"{name}.weight": (size,) for name, size in norms.items()}
    layers = [_attention(4, 2, 32) | _feed_forward() | norm_sizes] * 7
    return _write(folder, "gemma3", layers, _heads(4, 2, 32) | {"attention.sliding_window": 1024})


def latent(folder: Path) -> Path:
    """Layers that store one compressed key (MLA)."""
    heads, rank, rotated, unrotated = 4, 64, 16, 16
    layer = {
        "attn_norm.weight": (_WIDTH,),
        "attn_q_a.weight": (24, _WIDTH),
        "attn_q_a_norm.weight": (24,),
        "attn_q_b.weight": (heads * (unrotated + rotated), 24),
        "attn_kv_a_mqa.weight": (rank + rotated, _WIDTH),
        "attn_kv_a_norm.weight": (rank,),
        "attn_k_b.weight": (heads, rank, unrotated),
        "attn_v_b.weight": (heads, unrotated, rank),
        "attn_output.weight": (_WIDTH, heads * unrotated),
    }
    numbers: dict[str, Number] = {
        "attention.key_length": rank + rotated,
        "attention.value_length": rank,
        "attention.key_length_mla": unrotated + rotated,
        "attention.value_length_mla": unrotated,
        "attention.kv_lora_rank": rank,
        "attention.q_lora_rank": 24,
        "rope.dimension_count": rotated,
        "leading_dense_block_count": 2,
        "expert_count": 2,
        "expert_used_count": 1,
        "expert_shared_count": 1,
        "expert_feed_forward_length": _FEED_FORWARD,
        "expert_weights_scale": 1.0,
        "expert_gating_func": 2,
    }
    layers = [layer | _feed_forward()] * 2
    return _write(folder, "deepseek2", layers, _heads(heads, 1, 0) | numbers)


def recurrent(folder: Path) -> Path:
    """Two layers of Mamba."""
    return _write(folder, "mamba", [_mamba()] * 2, {"attention.head_count": 0} | _STATES)


def hybrid(folder: Path) -> Path:
    """One attention layer between two layers of Mamba."""
    norms = {"ssm_dt_norm.weight": (_RANK,), "ssm_b_norm.weight": (_STATE,)}
    mamba = _mamba() | norms | {"ssm_c_norm.weight": (_STATE,)} | _feed_forward()
    layers = [mamba, _attention(4, 2, 16) | _feed_forward(), mamba]
    return _write(folder, "jamba", layers, _heads(4, [0, 2, 0], 16) | _STATES)


def convolved(folder: Path) -> Path:
    """Gated convolutions and two attention layers."""
    convolution = {
        "attn_norm.weight": (_WIDTH,),
        "shortconv.conv.weight": (_WIDTH, 3),
        "shortconv.in_proj.weight": (3 * _WIDTH, _WIDTH),
        "shortconv.out_proj.weight": (_WIDTH, _WIDTH),
    }
    attention = _attention(4, 2, 16) | {"attn_q_norm.weight": (16,), "attn_k_norm.weight": (16,)}
    stored = [0, 0, 2, 0, 2]
    layers = [(attention if heads else convolution) | _feed_forward() for heads in stored]
    numbers = _heads(4, stored, 16) | {"shortconv.l_cache": 3, "vocab_size": len(_WORDS)}
    return _write(folder, "lfm2", layers, numbers, norm="token_embd_norm.weight")


def linear(folder: Path) -> Path:
    """Three delta networks for each attention layer."""
    keys, values = 2 * _STATE, 4 * _STATE
    delta = {
        "attn_qkv.weight": (2 * keys + values, _WIDTH),
        "attn_gate.weight": (values, _WIDTH),
        "ssm_conv1d.weight": (2 * keys + values, _KERNEL),
        "ssm_dt.bias": (4,),
        "ssm_a": (4,),
        "ssm_beta.weight": (4, _WIDTH),
        "ssm_alpha.weight": (4, _WIDTH),
        "ssm_norm.weight": (_STATE,),
        "ssm_out.weight": (_WIDTH, values),
    }
    norms = {"attn_q_norm.weight": (16,), "attn_k_norm.weight": (16,)}
    attention = _attention(4, 2, 16) | {"attn_q.weight": (4 * 16 * 2, _WIDTH)} | norms
    shared: Sizes = {"attn_norm.weight": (_WIDTH,), "post_attention_norm.weight": (_WIDTH,)}
    shared |= {name: size for name, size in _feed_forward().items() if "norm" not in name}
    numbers: dict[str, Number] = {
        "ssm.conv_kernel": _KERNEL,
        "ssm.inner_size": values,
        "ssm.state_size": _STATE,
        "ssm.time_step_rank": 4,
        "ssm.group_count": 2,
        "full_attention_interval": 4,
        "rope.dimension_sections": [2, 2, 2, 0],
        "rope.dimension_count": 12,
    }
    layers = [delta | shared] * 3 + [attention | shared]
    return _write(folder, "qwen35", layers, _heads(4, 2, 16) | numbers)


_STATES: dict[str, Number] = {
    "ssm.conv_kernel": _KERNEL,
    "ssm.inner_size": _INNER,
    "ssm.state_size": _STATE,
    "ssm.time_step_rank": _RANK,
}


def _heads(heads: Number, stored: Number, length: int) -> dict[str, Number]:
    """Return the metadata of attention; if `length` is 0, the caller adds the head lengths."""
    numbers: dict[str, Number] = {"attention.head_count": heads, "attention.head_count_kv": stored}
    if length:
        names = ("attention.key_length", "attention.value_length", "rope.dimension_count")
        numbers |= dict.fromkeys(names, length)
    return numbers


def _attention(heads: int, stored: int, length: int) -> Sizes:
    return {
        "attn_norm.weight": (_WIDTH,),
        "attn_q.weight": (heads * length, _WIDTH),
        "attn_k.weight": (stored * length, _WIDTH),
        "attn_v.weight": (stored * length, _WIDTH),
        "attn_output.weight": (_WIDTH, heads * length),
    }


def _feed_forward() -> Sizes:
    return {
        "ffn_norm.weight": (_WIDTH,),
        "ffn_gate.weight": (_FEED_FORWARD, _WIDTH),
        "ffn_up.weight": (_FEED_FORWARD, _WIDTH),
        "ffn_down.weight": (_WIDTH, _FEED_FORWARD),
    }


def _mamba() -> Sizes:
    return {
        "attn_norm.weight": (_WIDTH,),
        "ssm_in.weight": (2 * _INNER, _WIDTH),
        "ssm_conv1d.weight": (_INNER, _KERNEL),
        "ssm_conv1d.bias": (_INNER,),
        "ssm_x.weight": (_RANK + 2 * _STATE, _INNER),
        "ssm_dt.weight": (_INNER, _RANK),
        "ssm_dt.bias": (_INNER,),
        "ssm_a": (_INNER, _STATE),
        "ssm_d": (_INNER,),
        "ssm_out.weight": (_WIDTH, _INNER),
    }


def _write(
    folder: Path,
    architecture: str,
    layers: Sequence[Sizes],
    numbers: Mapping[str, Number],
    *,
    norm: str = "output_norm.weight",
) -> Path:
    path = folder / f"{architecture}.gguf"
    writer = GGUFWriter(path, architecture)
    usual: dict[str, Number] = {
        "block_count": len(layers),
        "context_length": 32_768,
        "embedding_length": _WIDTH,
        "feed_forward_length": _FEED_FORWARD,
        "attention.layer_norm_rms_epsilon": 1e-6,
    }
    for name, value in (usual | dict(numbers)).items():
        _add(writer, f"{architecture}.{name}", value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(_WORDS)
    writer.add_token_types([1] * len(_WORDS))
    writer.add_token_merges(["a b"])
    tensors: Sizes = {"token_embd.weight": (len(_WORDS), _WIDTH), norm: (_WIDTH,)}
    for number, layer in enumerate(layers):
        tensors |= {f"blk.{number}.{name}": size for name, size in layer.items()}
    for name, size in tensors.items():
        writer.add_tensor(name, np.zeros(size, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: GGUFWriter, key: str, value: Number) -> None:
    match value:
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case _:
            writer.add_array(key, list(value))
