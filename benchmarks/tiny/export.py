"""Writes the trained network as a GGUF, with its tokenizer and chat template, for llama-server."""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType
from gguf.quants import dequantize, quantize
from tokenizers import Tokenizer

from benchmarks.tiny.model import EPSILON, ROPE_BASE, Shape, Weights
from benchmarks.tiny.sizes import SHIPPED, Size
from benchmarks.tiny.tokenizer import CONTROL, MARKERS

LICENCE = "MIT, as Temper itself; trained on made-up sentences of this repository only"
FloatArray = npt.NDArray[np.float32]


def export(
    network: tuple[Weights, Shape],
    tokenizer: Tokenizer,
    path: Path,
    size: Size = SHIPPED,
    *,
    quantised: bool = True,
) -> None:
    """Write the file; matrices as Q8_0 unless that is not wished."""
    weights, shape = network
    kind = LlamaFileType.MOSTLY_Q8_0 if quantised else LlamaFileType.ALL_F32
    writer = GGUFWriter(path, "llama")
    _describe_network(writer, shape, size, kind)
    _describe_tokenizer(writer, tokenizer, size)
    for name, weight in weights.items():
        found: FloatArray = weight.detach().cpu().float().contiguous().numpy()
        if quantised and found.ndim == 2:
            packed = quantize(found, GGMLQuantizationType.Q8_0)
            writer.add_tensor(name, packed, raw_dtype=GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(name, found)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def rounded(weights: Weights) -> Weights:
    """Return the weights as they are when they have been to Q8_0 and back."""
    kind = GGMLQuantizationType.Q8_0
    return {
        name: torch.from_numpy(dequantize(quantize(one.numpy(), kind), kind))
        if one.ndim == 2
        else one
        for name, one in weights.items()
    }


def _describe_network(writer: GGUFWriter, shape: Shape, size: Size, kind: LlamaFileType) -> None:
    writer.add_name("temper-tiny" if size is SHIPPED else f"temper-tiny-{size.name}")
    writer.add_author("the authors of Temper")
    writer.add_license(LICENCE)
    writer.add_context_length(shape.window)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_file_type(kind)


def _describe_tokenizer(writer: GGUFWriter, tokenizer: Tokenizer, size: Size) -> None:
    numbers = tokenizer.get_vocab(with_added_tokens=True)
    tokens = sorted(numbers, key=lambda token: numbers[token])
    kinds = {
        **dict.fromkeys(CONTROL, TokenType.CONTROL),
        **dict.fromkeys(MARKERS, TokenType.USER_DEFINED),
    }
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([int(kinds.get(one, TokenType.NORMAL)) for one in tokens])
    writer.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in merges])
    writer.add_eos_token_id(numbers["<|im_end|>"])
    writer.add_pad_token_id(numbers["<|endoftext|>"])
    writer.add_bos_token_id(numbers["<|endoftext|>"])
    writer.add_add_bos_token(value=False)
    writer.add_chat_template(size.template)
