"""Writes the test model as a Hugging Face folder, for engines that do not read GGUF.

    python -m tests.engines.model_folder FOLDER

Needs the extra `embedded`. The folder contains the files that vLLM and transformers require:
weights in float32, a tokenizer, a chat template.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader
from gguf.quants import dequantize

from tests.engines.model import MODEL_FILE

Weights = npt.NDArray[np.float32]

_OUTER = {"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight"}
_INNER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_CONTROL, _USER_DEFINED = 3, 4  # token types of llama.cpp
# the pre-tokenizer pattern of llama.cpp's `qwen2`
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class Model:
    """A GGUF file: its tensors by name, and its metadata."""

    tensors: Mapping[str, Weights]
    facts: Mapping[str, object]

    def number(self, name: str) -> int:
        return int(str(self.facts[name]))

    def strings(self, name: str) -> list[str]:
        values = self.facts[name]
        assert isinstance(values, list)
        return [str(value) for value in values]


def read(path: Path) -> Model:
    """Read the GGUF file of a model with the Llama architecture."""
    reader = GGUFReader(path)
    tensors = {
        str(tensor.name): dequantize(tensor.data, tensor.tensor_type)
        .astype(np.float32)
        .reshape([int(size) for size in reversed(tensor.shape)])
        for tensor in reader.tensors
    }
    return Model(tensors, {name: field.contents() for name, field in reader.fields.items()})


def renamed(model: Model) -> dict[str, Weights]:
    """Return the tensors with the names and the row order that transformers expects."""
    heads = model.number("llama.attention.head_count")
    weights: dict[str, Weights] = {}
    for name, tensor in model.tensors.items():
        if (outer := _OUTER.get(name.removesuffix(".weight"))) is not None:
            weights[outer] = tensor
            continue
        _, layer, kind, _ = name.split(".")
        rows = _halved(tensor, heads) if kind in {"attn_q", "attn_k"} else tensor
        weights[f"model.layers.{layer}.{_INNER[kind]}.weight"] = rows
    return weights


def _halved(tensor: Weights, heads: int) -> Weights:
    """Reorder the rows of a query or key projection from pairs to halves.

    RoPE rotates two rows of a head together. In GGUF files of this architecture these rows are
    adjacent; transformers expects them half a head apart.
    """
    pairs = tensor.reshape(heads, tensor.shape[0] // heads // 2, 2, *tensor.shape[1:])
    return pairs.swapaxes(1, 2).reshape(tensor.shape)


def safetensors(weights: Mapping[str, Weights]) -> bytes:
    """Serialize weights in the safetensors format."""
    head: dict[str, object] = {"__metadata__": {"format": "pt"}}
    body = bytearray()
    for name, tensor in weights.items():
        start = len(body)
        body += np.ascontiguousarray(tensor).tobytes()
        shape = [int(size) for size in tensor.shape]
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, len(body)]}
    encoded = json.dumps(head).encode()
    encoded += b" " * (-len(encoded) % 8)
    return len(encoded).to_bytes(8, "little") + encoded + bytes(body)


def config(model: Model) -> dict[str, object]:
    width = model.number("llama.embedding_length")
    heads = model.number("llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": model.number("llama.feed_forward_length"),
        "num_hidden_layers": model.number("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": width // heads,
        "max_position_embeddings": model.number("llama.context_length"),
        "rms_norm_eps": model.facts["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": model.facts["llama.rope.freq_base"],
        "vocab_size": len(model.strings("tokenizer.ggml.tokens")),
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "torch_dtype": "float32",
        **_special_token_ids(model),
    }


def _special_token_ids(model: Model) -> dict[str, object]:
    names = {"bos": "bos", "eos": "eos", "pad": "padding"}
    return {
        f"{name}_token_id": model.number(f"tokenizer.ggml.{theirs}_token_id")
        for name, theirs in names.items()
    }


def tokenizer(model: Model) -> dict[str, object]:
    tokens = model.strings("tokenizer.ggml.tokens")
    kinds = [int(kind) for kind in model.strings("tokenizer.ggml.token_type")]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [
        {"id": number, "content": token, "special": kind == _CONTROL, **plain}
        for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in {_CONTROL, _USER_DEFINED}
    ]
    special = {token["id"] for token in added}
    level = {"type": "ByteLevel", "trim_offsets": True}
    split = {"type": "Split", "pattern": {"Regex": _SPLIT}, "behavior": "Isolated"}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {**split, "invert": False},
                {**level, "add_prefix_space": False, "use_regex": False},
            ],
        },
        "post_processor": None,
        "decoder": {**level, "add_prefix_space": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: at for at, token in enumerate(tokens) if at not in special},
            "merges": [merge.split(" ") for merge in model.strings("tokenizer.ggml.merges")],
        },
    }


def write(folder: Path, source: Path = MODEL_FILE) -> Path:
    """Write the folder, and return it."""
    model = read(source)
    tokens = model.strings("tokenizer.ggml.tokens")
    ends = {name: tokens[int(str(number))] for name, number in _special_token_ids(model).items()}
    template = str(model.facts["tokenizer.chat_template"])
    documents: dict[str, dict[str, object]] = {
        "config.json": config(model),
        "generation_config.json": _special_token_ids(model),
        "tokenizer.json": tokenizer(model),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "add_bos_token": False,
            "model_max_length": model.number("llama.context_length"),
            "clean_up_tokenization_spaces": False,
            "chat_template": template,
            **{name.replace("_id", ""): token for name, token in ends.items()},
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(safetensors(renamed(model)))
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    for name, document in documents.items():
        (folder / name).write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    return folder


if __name__ == "__main__":
    write(Path(sys.argv[1]))
