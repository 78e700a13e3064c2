"""The models of `benchmarks.context_run`: they answer by script, and read words or single letters.

The demonstration's model knows letters and a few pairs of them. Its file is written again, with a
vocabulary whose tokens are as long as those of real models, so that a shortened text is as short
as it would be; or without the pairs, for the shortest tokens that a model may have.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFValueType, GGUFWriter, TokenType

from temper_evals.demo.scripted_model import build_scripted_model
from temper_evals.demo.vocabulary import byte_alphabet

_TOKENS = "tokenizer.ggml.tokens"
_KINDS = "tokenizer.ggml.token_type"
_MERGES = "tokenizer.ggml.merges"
_WRITTEN_ANYWAY = ("GGUF.", "general.architecture")
_PIECE = re.compile(  # where qwen2 cuts before anything is joined
    r"[^\r\n\w]?[A-Za-z]+|\d| ?[^\s\w]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+|."
)
_NEVER_JOINED = "Ā Ā"  # two zero bytes; a list of merges must not be empty
_PROMPT_DIMENSION = 190  # of an embedding: the token belongs to a prompt


@dataclass(frozen=True, slots=True)
class Words:
    """A byte-level vocabulary; `merges` are pairs of tokens, the first to be joined first."""

    tokens: tuple[str, ...]
    merges: tuple[str, ...]


def build_reading_model(
    path: Path, scripts: Mapping[str, str], words: Words, *, context_tokens: int
) -> None:
    """Write a model to `path` that answers with `scripts` and knows `words`."""
    narrow = path.with_suffix(".narrow.gguf")
    build_scripted_model(narrow, scripts, context_tokens=context_tokens)
    _rewrite(GGUFReader(narrow), path, words)
    narrow.unlink()


def no_words() -> Words:
    """Return a vocabulary of single letters."""
    return Words((), (_NEVER_JOINED,))


def learn_words(text: str, joins: int = 1200) -> Words:
    """Learn a vocabulary from plain ASCII text by joining the commonest neighbours, as usual."""
    letters = tuple(dict.fromkeys(byte_alphabet().values()))
    spelled = {chr(place): chr(256 + place) for place in range(33)}  # others stand for themselves
    counted = Counter(_PIECE.findall(text))
    pieces = [([spelled.get(one, one) for one in piece], often) for piece, often in counted.items()]
    merges: list[str] = []
    for _ in range(joins):
        pairs: Counter[tuple[str, str]] = Counter()
        for piece, often in pieces:
            for pair in pairwise(piece):
                pairs[pair] += often
        if not pairs:
            break
        first, second = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(f"{first} {second}")
        for piece, _ in pieces:
            _join(piece, first, second)
    joined = (merge.replace(" ", "") for merge in merges)
    return Words(tuple(dict.fromkeys([*letters, *joined])), tuple(merges))


def _join(piece: list[str], first: str, second: str) -> None:
    place = 0
    while place < len(piece) - 1:
        if piece[place] == first and piece[place + 1] == second:
            piece[place : place + 2] = [first + second]
        place += 1


def _rewrite(narrow: GGUFReader, path: Path, words: Words) -> None:
    """Copy a model; the new tokens say nothing, and count as part of a prompt."""
    tokens = _strings(narrow, _TOKENS)
    known = set(tokens)
    new = [word for word in words.tokens if word not in known]
    kinds = [*_numbers(narrow, _KINDS), *[int(TokenType.NORMAL)] * len(new)]
    merges = list(words.merges)
    if new:
        merges += [merge for merge in _strings(narrow, _MERGES) if merge not in merges]
    writer = GGUFWriter(path, "qwen2")
    _copy_settings(narrow, writer)
    writer.add_token_list([*tokens, *new])
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    for tensor in narrow.tensors:
        weights = np.array(tensor.data, np.float32)
        if weights.shape[0] == len(tokens):
            rows = np.zeros((len(new), weights.shape[1]), np.float32)
            rows[:, _PROMPT_DIMENSION] = float(tensor.name == "token_embd.weight")
            weights = np.vstack([weights, rows])
        writer.add_tensor(tensor.name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _copy_settings(narrow: GGUFReader, writer: GGUFWriter) -> None:
    for name, field in narrow.fields.items():
        if name.startswith(_WRITTEN_ANYWAY) or name in (_TOKENS, _KINDS, _MERGES):
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind is GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, inner)


def _strings(narrow: GGUFReader, name: str) -> list[str]:
    return [str(value) for value in narrow.fields[name].contents()]


def _numbers(narrow: GGUFReader, name: str) -> list[int]:
    return [int(value) for value in narrow.fields[name].contents()]
