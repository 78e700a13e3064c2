"""A network of the llama architecture in plain PyTorch; its weights have the names of a GGUF.

Rotary positions turn neighbours as pairs, as llama.cpp does for this architecture. The embedding
is the output matrix, too: then to copy a token is to hand it on, which is learnt in no time.
"""

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

Weights = dict[str, torch.Tensor]
EPSILON = 1e-5
ROPE_BASE = 10_000.0


@dataclass(frozen=True, slots=True)
class Shape:
    """How large the network is; `head` is how many dimensions a head of attention has."""

    vocabulary: int
    width: int = 96
    layers: int = 3
    window: int = 2048
    head: int = 32

    @property
    def heads(self) -> int:
        """How many heads attention has."""
        return self.width // self.head

    @property
    def inner(self) -> int:
        """How wide the feed-forward part is: about 8/3 of the width, in whole blocks of Q8_0."""
        return math.ceil(self.width / 12) * 32


def new_weights(shape: Shape, seed: int) -> Weights:
    """Draw the weights of an untrained network."""
    draw = torch.Generator().manual_seed(seed)
    width, inner = shape.width, shape.inner

    def matrix(rows: int, columns: int, scale: float) -> torch.Tensor:
        return torch.randn(rows, columns, generator=draw) * scale

    weights = {
        "token_embd.weight": matrix(shape.vocabulary, width, 1.0),
        "output_norm.weight": torch.full((width,), 0.05 * 96 / width),
    }
    usual, small = 1 / math.sqrt(width), 0.1 / math.sqrt(width)
    for layer in range(shape.layers):
        weights |= {
            f"blk.{layer}.attn_norm.weight": torch.ones(width),
            f"blk.{layer}.ffn_norm.weight": torch.ones(width),
            f"blk.{layer}.attn_q.weight": matrix(width, width, usual),
            f"blk.{layer}.attn_k.weight": matrix(width, width, usual),
            f"blk.{layer}.attn_v.weight": matrix(width, width, usual),
            f"blk.{layer}.attn_output.weight": matrix(width, width, small),
            f"blk.{layer}.ffn_gate.weight": matrix(inner, width, usual),
            f"blk.{layer}.ffn_up.weight": matrix(inner, width, usual),
            f"blk.{layer}.ffn_down.weight": matrix(width, inner, 0.1 / math.sqrt(inner)),
        }
    return weights


def parameter_count(weights: Weights) -> int:
    """Count the parameters."""
    return sum(one.numel() for one in weights.values())


def logits(weights: Weights, shape: Shape, tokens: torch.Tensor) -> torch.Tensor:
    """Return the logits of the next token after each of `tokens`, which has a row a text."""
    turns = _turns(shape, tokens)
    stream = functional.embedding(tokens, weights["token_embd.weight"])
    for layer in range(shape.layers):
        stream = stream + _attention(weights, f"blk.{layer}", shape, (stream, *turns))
        stream = stream + _feed_forward(weights, f"blk.{layer}", stream)
    last = _norm(stream, weights["output_norm.weight"])
    return functional.linear(last, weights["token_embd.weight"])


def _turns(shape: Shape, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    half = torch.arange(0, shape.width // shape.heads, 2, device=tokens.device).float()
    frequency = ROPE_BASE ** (-half * shape.heads / shape.width)
    angle = torch.arange(tokens.shape[1], device=tokens.device).float()[:, None] * frequency
    return angle.cos(), angle.sin()


def _norm(stream: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(stream, (stream.shape[-1],), weight, EPSILON)


def _attention(
    weights: Weights, block: str, shape: Shape, given: tuple[torch.Tensor, ...]
) -> torch.Tensor:
    stream, cosine, sine = given
    rows, length, width = stream.shape
    normed = _norm(stream, weights[f"{block}.attn_norm.weight"])

    def heads(name: str) -> torch.Tensor:
        found = functional.linear(normed, weights[f"{block}.attn_{name}.weight"])
        return found.view(rows, length, shape.heads, width // shape.heads).transpose(1, 2)

    def turned(found: torch.Tensor) -> torch.Tensor:
        even, odd = found[..., 0::2], found[..., 1::2]
        pairs = (even * cosine - odd * sine, even * sine + odd * cosine)
        return torch.stack(pairs, -1).flatten(-2)

    query, key, value = turned(heads("q")), turned(heads("k")), heads("v")
    mixed = functional.scaled_dot_product_attention(
        query.to(value.dtype), key.to(value.dtype), value, is_causal=True
    )
    joined = mixed.transpose(1, 2).reshape(rows, length, width)
    return functional.linear(joined, weights[f"{block}.attn_output.weight"])


def _feed_forward(weights: Weights, block: str, stream: torch.Tensor) -> torch.Tensor:
    normed = _norm(stream, weights[f"{block}.ffn_norm.weight"])
    gate = functional.silu(functional.linear(normed, weights[f"{block}.ffn_gate.weight"]))
    up = functional.linear(normed, weights[f"{block}.ffn_up.weight"])
    return functional.linear(gate * up, weights[f"{block}.ffn_down.weight"])
