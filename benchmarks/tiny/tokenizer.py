"""The tokenizer: byte-level BPE in which a value has the same tokens wherever it stands.

Usual tokenizers write " Oslo" and "Oslo" with different tokens, so that to copy a value from a
sentence into JSON is to translate it. Here a space is only merged with words of fixed sentences.
llama-server's regular expression is Qwen2's; its merges are ours.
"""

import json
import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from benchmarks.tiny.sizes import SHIPPED, Size

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MARKERS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_WITHOUT_SPACES = r"\p{L}+|\p{N}|[^\s\p{L}\p{N}]+[\r\n]*|\s"
_SPACE = "Ġ"
_PUNCTUATION = ('"', '{"', "{")
_SAMPLE = 6000


def build_tokenizer(seed: int, size: Size = SHIPPED) -> Tokenizer:
    """Build the tokenizer from dialogues of a size."""
    learnt = Tokenizer(models.BPE())
    learnt.pre_tokenizer = _splitter(_WITHOUT_SPACES)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=len(alphabet) + size.merges, initial_alphabet=alphabet, show_progress=False
    )
    learnt.train_from_iterator(_plain_texts(seed, size), trainer)
    return _with_spaces(json.loads(learnt.to_str())["model"], size)


def _with_spaces(learnt: dict[str, object], size: Size) -> Tokenizer:
    """Merge a space with words of fixed sentences, after all other merges."""
    vocabulary, merges = learnt["vocab"], learnt["merges"]
    assert isinstance(vocabulary, dict)  # noqa: S101 - it is written so
    assert isinstance(merges, list)  # noqa: S101 - the same
    pairs = [(str(left), str(right)) for left, right in merges]
    for word in (*_PUNCTUATION, *_fixed_words(size)):
        if word in vocabulary and _SPACE + word not in vocabulary:
            vocabulary[_SPACE + word] = len(vocabulary)
            pairs.append((_SPACE, word))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs))
    tokenizer.pre_tokenizer = _splitter(_QWEN2)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([*CONTROL, *MARKERS])
    return tokenizer


def _splitter(expression: str) -> pre_tokenizers.PreTokenizer:
    split = pre_tokenizers.Split(Regex(expression), "isolated")
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([split, letters])


def _plain_texts(seed: int, size: Size) -> Iterator[str]:
    """Yield what dialogues say between the special tokens."""
    marks = re.compile("|".join(map(re.escape, (*CONTROL, *MARKERS))))
    draw = random.Random(seed)  # noqa: S311 - training data
    for _ in range(_SAMPLE):
        text = "".join(one.text for one in size.draw(draw))
        yield from (piece for piece in marks.split(text) if piece)


def _fixed_words(size: Size) -> Iterable[str]:
    """Return words that stand in sentences and are never a part of a value or a parameter."""
    words = dict.fromkeys(
        word
        for text in size.words
        for word in re.findall(r"[A-Za-z]+", re.sub(r"\{\w+\}", "", text))
    )
    return [word for word in words if word not in size.parameters]


def save_tokenizer(tokenizer: Tokenizer, path: Path) -> None:
    """Write the tokenizer to a file."""
    path.write_text(tokenizer.to_str(), encoding="utf-8")


def load_tokenizer(path: Path) -> Tokenizer:
    """Read a tokenizer from its file."""
    return Tokenizer.from_str(path.read_text(encoding="utf-8"))
