"""Training: one seed, one thread, copying first, one decay of the learning rate; can be resumed.

The same seed and number of tokens give the same model, on the same machine and version of torch.
"""

import json
import math
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import lru_cache
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch.nn import functional

from benchmarks.tiny import copying
from benchmarks.tiny.copying import Row
from benchmarks.tiny.dialogues import draw_dialogue
from benchmarks.tiny.model import Shape, Weights, logits, new_weights, parameter_count
from benchmarks.tiny.optimizer import Optimizer
from benchmarks.tiny.tokenizer import CONTROL, MARKERS

COPYING = 0.2
_DECAY = 0.4
_LAST_RATE = 0.02
_WARM_UP = 40
_BATCH = 2000
_POOL = 800
_TOKENS_A_MINUTE = 800_000
CHECKPOINT, LOG = "checkpoint.pt", "log.jsonl"


class Stage(Enum):
    """What is learnt from."""

    COPYING = "copying"
    DIALOGUES = "dialogues"


@dataclass(frozen=True, slots=True)
class Training:
    """What is to be trained, and how long."""

    shape: Shape
    tokens: int
    seed: int = 1
    device: str = "cpu"
    ladder: tuple[float, ...] = ()


@dataclass(slots=True)
class Progress:
    """How far a training is; `pool` and `batch` tell where in the data."""

    step: int = 0
    seen: int = 0
    pool: int = 0
    batch: int = 0
    seconds: float = 0.0
    loss: float = math.nan
    saved: list[float] = field(default_factory=list)

    def count(self, rows: list[Row], loss: float) -> None:
        """Count a step."""
        self.loss = loss if math.isnan(self.loss) else 0.95 * self.loss + 0.05 * loss
        self.step += 1
        self.seen += sum(len(tokens) for tokens, _ in rows)


def tokens_in(minutes: float) -> int:
    """Return how many tokens one core sees in so many minutes, by measurement."""
    return int(minutes * _TOKENS_A_MINUTE)


def train(
    training: Training, tokenizer: Tokenizer, folder: Path, tell: Callable[[str], None]
) -> Weights:
    """Train until so many tokens have been seen; begins where the folder's checkpoint ends."""
    torch.set_num_threads(1)
    weights = {
        name: one.to(training.device).requires_grad_()
        for name, one in new_weights(training.shape, training.seed).items()
    }
    optimizer, progress = Optimizer(weights), Progress()
    if (folder / CHECKPOINT).exists():
        progress = _restored(folder / CHECKPOINT, weights, optimizer)
    tell(f"{parameter_count(weights):,} parameters, {training.tokens:,} tokens")
    begun, told = time.process_time() - progress.seconds, progress.seconds
    while progress.seen < training.tokens:
        rows = _next_batch(training, tokenizer, progress)
        rate = rate_at(progress.seen / training.tokens, progress.step)
        loss = _gradients(training, weights, rows)
        optimizer.step(rate)
        progress.count(rows, loss)
        progress.seconds = time.process_time() - begun
        _climb(training, weights, progress, folder)
        if progress.seconds - told > 20 or progress.seen >= training.tokens:
            told = progress.seconds
            _note(progress, folder, tell)
            _save(folder / CHECKPOINT, weights, optimizer, progress)
    return {name: one.detach().cpu() for name, one in weights.items()}


def rate_at(fraction: float, step: int) -> float:
    """Return the share of the full learning rate: a short rise, a plateau, one decay."""
    rise = min(1.0, (step + 1) / _WARM_UP)
    return rise * min(1.0, max(_LAST_RATE, (1 - fraction) / _DECAY))


@lru_cache(maxsize=1)
def batches_of(tokenizer: Tokenizer, seed: int, pool: int, stage: Stage) -> list[list[Row]]:
    """Draw a pool of rows and cut it into batches of rows of like length."""
    draw = random.Random(f"{seed} {pool}")  # noqa: S311 - training data
    size = tokenizer.get_vocab_size() - len(CONTROL) - len(MARKERS)
    if stage is Stage.COPYING:
        rows = [copying.draw_row(draw, 0, size) for _ in range(_POOL)]
    else:
        rows = [_encoded(draw, tokenizer) for _ in range(_POOL)]
    rows.sort(key=lambda row: len(row[0]))
    batches: list[list[Row]] = [[]]
    for row in rows:
        if batches[-1] and (len(batches[-1]) + 1) * len(row[0]) > _BATCH:
            batches.append([])
        batches[-1].append(row)
    draw.shuffle(batches)
    return batches


def _encoded(draw: random.Random, tokenizer: Tokenizer) -> Row:
    tokens: list[int] = []
    weights: list[float] = []
    for segment in draw_dialogue(draw).segments():
        found = tokenizer.encode(segment.text).ids
        tokens += found
        weights += [segment.weight] * len(found)
    return tokens, weights


def _next_batch(training: Training, tokenizer: Tokenizer, progress: Progress) -> list[Row]:
    """Return the next batch of the stage; counts it."""
    is_early = progress.seen < COPYING * training.tokens
    stage = Stage.COPYING if is_early else Stage.DIALOGUES
    batches = batches_of(tokenizer, training.seed, progress.pool, stage)
    if progress.batch >= len(batches):
        progress.pool, progress.batch = progress.pool + 1, 0
        batches = batches_of(tokenizer, training.seed, progress.pool, stage)
    progress.batch += 1
    return batches[progress.batch - 1]


def _gradients(training: Training, weights: Weights, rows: list[Row]) -> float:
    """Find the gradients; returns the loss of what the model has to say."""
    tokens, counts = _padded(rows, training.device)
    guessed = logits(weights, training.shape, tokens[:, :-1])
    losses = functional.cross_entropy(
        guessed.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
    )
    due = counts[:, 1:].flatten()
    ((losses * due).sum() / due.sum()).backward()
    return float(losses.detach()[due >= 1.0].mean())


def _padded(rows: list[Row], device: str) -> tuple[torch.Tensor, torch.Tensor]:
    length = max(len(row[0]) for row in rows)
    tokens = torch.zeros(len(rows), length, dtype=torch.long)
    counts = torch.zeros(len(rows), length)
    for place, (found, due) in enumerate(rows):
        tokens[place, : len(found)] = torch.tensor(found)
        counts[place, : len(due)] = torch.tensor(due)
    return tokens.to(device), counts.to(device)


def _climb(training: Training, weights: Weights, progress: Progress, folder: Path) -> None:
    """Keep the weights at each kind of the ladder."""
    for kind in training.ladder:
        if progress.seen >= kind * training.tokens and kind not in progress.saved:
            progress.saved.append(kind)
            kept = {name: one.detach().cpu() for name, one in weights.items()}
            torch.save(kept, folder / f"kind-{round(100 * kind)}.pt")


def _note(progress: Progress, folder: Path, tell: Callable[[str], None]) -> None:
    line = {
        "step": progress.step,
        "tokens": progress.seen,
        "cpu_seconds": round(progress.seconds),
        "loss": round(progress.loss, 4),
    }
    with (folder / LOG).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    tell(", ".join(f"{name} {value:,}" for name, value in line.items()))


def _save(path: Path, weights: Weights, optimizer: Optimizer, progress: Progress) -> None:
    """Write a checkpoint, whole or not at all."""
    plain = {name: one.detach() for name, one in weights.items()}
    parts = {"weights": plain, "optimizer": optimizer.state(), "progress": asdict(progress)}
    torch.save(parts, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def _restored(path: Path, weights: Weights, optimizer: Optimizer) -> Progress:
    saved = torch.load(path, weights_only=True)
    with torch.no_grad():
        for name, one in saved["weights"].items():
            weights[name].copy_(one)
    optimizer.restore(saved["optimizer"])
    return Progress(**saved["progress"])
