"""Training, export and llama-server agree; needs the extra `train`, and is skipped without it."""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra `train`: torch, tokenizers, gguf")
pytest.importorskip("tokenizers", reason="needs the extra `train`: torch, tokenizers, gguf")

import torch
from tokenizers import Tokenizer

from benchmarks.tiny import check
from benchmarks.tiny.batches import BatchSource, Stage
from benchmarks.tiny.export import export, rounded
from benchmarks.tiny.model import Shape, logits, new_weights, parameter_count
from benchmarks.tiny.sizes import SHIPPED, SIZES
from benchmarks.tiny.tokenizer import build_tokenizer, load_tokenizer, save_tokenizer
from benchmarks.tiny.train import LOG, Training, rate_at, train

TOKENS = 40_000


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return build_tokenizer(1)


def trained(tokenizer: Tokenizer, folder: Path, tokens: int = TOKENS) -> dict[str, torch.Tensor]:
    folder.mkdir(exist_ok=True)
    shape = Shape(tokenizer.get_vocab_size(), width=32, layers=1)
    return train(Training(shape, tokens, ladder=(0.5,)), tokenizer, folder, ignored)


def ignored(_line: str) -> None:
    """Nobody reads."""


def test_a_value_has_the_same_tokens_in_a_sentence_and_in_json(tokenizer: Tokenizer) -> None:
    for value in ("Oslo", "bramel", "Kyoto", "M38"):
        bare = tokenizer.encode(value).tokens
        for text in (f"Weather in {value}, please.", f'{{"city": "{value}"}}', f"Result: {value}"):
            said = " ".join(tokenizer.encode(text).tokens)
            assert f" {' '.join(bare)}" in said


def test_a_saved_tokenizer_is_the_same(tokenizer: Tokenizer, tmp_path: Path) -> None:
    save_tokenizer(tokenizer, tmp_path / "t.json")
    again = load_tokenizer(tmp_path / "t.json")
    assert again.get_vocab(with_added_tokens=True) == tokenizer.get_vocab(with_added_tokens=True)


def test_the_rate_rises_stays_and_falls_once() -> None:
    assert rate_at(0.0, 0) < rate_at(0.0, 20) < rate_at(0.0, 100) == rate_at(0.5, 100) == 1.0
    assert 1.0 > rate_at(0.7, 900) > rate_at(0.9, 900) > rate_at(1.0, 900) > 0


def test_nothing_is_known_of_what_comes_later() -> None:
    shape = Shape(50, width=32, layers=2)
    weights = new_weights(shape, 1)
    tokens = torch.tensor([[1, 2, 3, 4]])
    changed = torch.tensor([[1, 2, 3, 9]])
    both = [logits(weights, shape, one)[0, :3] for one in (tokens, changed)]
    assert torch.allclose(*both)
    assert parameter_count(weights) == 50 * 32 + 32 + 2 * (2 * 32 + 4 * 32 * 32 + 3 * 32 * 96)


def test_training_goes_on_where_it_was_left_and_comes_to_the_same(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    whole = trained(tokenizer, tmp_path / "whole")
    again = trained(tokenizer, tmp_path / "whole")
    assert all(torch.equal(whole[name], again[name]) for name in whole)
    twin = trained(tokenizer, tmp_path / "twin")
    assert all(torch.equal(whole[name], twin[name]) for name in whole)
    assert (tmp_path / "whole" / "rung-50.pt").exists()
    assert (tmp_path / "whole" / LOG).read_text("utf-8").count("\n") == 1


def test_batches_that_other_processes_draw_are_the_same(tokenizer: Tokenizer) -> None:
    near = BatchSource(SHIPPED, tokenizer, 1)
    ahead = BatchSource(SHIPPED, tokenizer, 1, workers=1)
    try:
        for number in (3, 4):
            both = (one.pool(number, Stage.DIALOGUES) for one in (near, ahead))
            for first, second in zip(*both, strict=True):
                assert np.array_equal(first.tokens, second.tokens)
                assert np.array_equal(first.counts, second.counts)
    finally:
        ahead.close()


def test_a_larger_size_ends_by_the_clock_and_says_what_it_can_do(tmp_path: Path) -> None:
    size = replace(SIZES["larger"], merges=400, batch=1000, pool=20, held_out_count=4)
    tokenizer = build_tokenizer(1, size)
    shape = Shape(tokenizer.get_vocab_size(), width=64, layers=1, head=64)
    kept: list[int] = []
    training = Training(shape, size.tokens, size=size, minutes=0.01)
    train(training, tokenizer, tmp_path, ignored, keep=lambda weights: kept.append(len(weights)))
    (line,) = (tmp_path / LOG).read_text("utf-8").splitlines()
    assert {"seen", "unseen", "seconds"} <= json.loads(line).keys()
    assert len(kept) == 1


async def test_llama_server_says_what_the_network_says(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    shape = Shape(tokenizer.get_vocab_size(), width=32, layers=1)
    weights = trained(tokenizer, tmp_path)
    for quantised in (False, True):
        file = tmp_path / f"{quantised}.gguf"
        export((weights, shape), tokenizer, file, quantised=quantised)
        network = (rounded(weights) if quantised else weights), shape
        samples = SHIPPED.samples(random.Random(1), 7)
        found = await check.compare(network, tokenizer, file, samples)
        assert found.is_near, found
        assert quantised or found.is_whole, found
