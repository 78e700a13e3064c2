"""Training: one seed, one thread, copying first, one decay of the learning rate; can be resumed.

The same seed and number of tokens give the same model, on the same machine and version of torch.
A larger size is trained on a GPU, on dialogues that other processes draw, and may be given minutes
instead of tokens: then the decay ends when they do, and no two models are the same.
"""

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch.nn import functional

from benchmarks.tiny.batches import Batch, BatchSource, Stage, held_out_batches
from benchmarks.tiny.model import Shape, Weights, logits, new_weights, parameter_count
from benchmarks.tiny.optimizer import Optimizer
from benchmarks.tiny.sizes import SHIPPED, Size

_DECAY = 0.4
_LAST_RATE = 0.02
_WARM_UP = 40
_TOKENS_A_MINUTE = 800_000
_SAVE_SECONDS, _TIMED_SAVE_SECONDS = 20, 50
CHECKPOINT, LOG = "checkpoint.pt", "log.jsonl"


@dataclass(frozen=True, slots=True)
class Training:
    """What is to be trained, and how long: so many tokens, or `minutes` by the clock if earlier."""

    shape: Shape
    tokens: int
    seed: int = 1
    device: str = "cpu"
    ladder: tuple[float, ...] = ()
    size: Size = SHIPPED
    minutes: float = math.inf
    workers: int = 0

    @property
    def is_timed(self) -> bool:
        """Whether the clock decides; else time is that of the processor."""
        return self.minutes < math.inf or self.device == "cuda"

    @property
    def save_seconds(self) -> int:
        """After how many seconds all is saved."""
        return _TIMED_SAVE_SECONDS if self.is_timed else _SAVE_SECONDS

    def clock(self) -> float:
        """Return seconds from some moment on."""
        return time.monotonic() if self.is_timed else time.process_time()


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

    def fraction(self, training: Training) -> float:
        """Return the part of the training that is over."""
        return max(self.seen / training.tokens, self.seconds / (60 * training.minutes))

    def describe(self, training: Training) -> dict[str, float]:
        """Return a line of the log."""
        return {
            "step": self.step,
            "tokens": self.seen,
            "seconds" if training.is_timed else "cpu_seconds": round(self.seconds),
            "loss": round(self.loss, 4),
        }


def tokens_in(minutes: float) -> int:
    """Return how many tokens one core sees in so many minutes, by measurement."""
    return int(minutes * _TOKENS_A_MINUTE)


def train(
    training: Training,
    tokenizer: Tokenizer,
    folder: Path,
    tell: Callable[[str], None],
    *,
    keep: Callable[[Weights], None] = lambda _weights: None,
) -> Weights:
    """Train until all is seen or the time is over; begins where the folder's checkpoint ends.

    `keep` is given the weights at every checkpoint.
    """
    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    weights = {
        name: one.to(training.device).requires_grad_()
        for name, one in new_weights(training.shape, training.seed).items()
    }
    optimizer, progress = Optimizer(weights), Progress()
    if (folder / CHECKPOINT).exists():
        progress = _restored(folder / CHECKPOINT, weights, optimizer)
    tell(f"{parameter_count(weights):,} parameters, {training.tokens:,} tokens")
    source = BatchSource(training.size, tokenizer, training.seed, training.workers)
    judge = _Judge(training, tokenizer)
    begun, told = training.clock() - progress.seconds, progress.seconds
    mean = torch.tensor(progress.loss, device=training.device)
    while progress.fraction(training) < 1:
        batch = _next_batch(training, source, progress)
        rate = rate_at(progress.fraction(training), progress.step)
        loss = _gradients(training, weights, batch)
        optimizer.step(rate)
        mean = torch.where(mean.isnan(), loss, 0.95 * mean + 0.05 * loss)
        progress.step += 1
        progress.seen += batch.size
        progress.seconds = training.clock() - begun
        _climb(training, weights, progress, folder)
        if progress.seconds - told > training.save_seconds or progress.fraction(training) >= 1:
            told, progress.loss = progress.seconds, float(mean)
            line = progress.describe(training) | judge.exact_calls(weights)
            _note(line, folder, tell)
            _save(folder / CHECKPOINT, weights, optimizer, progress)
            keep(_plain(weights))
    source.close()
    return _plain(weights)


def _plain(weights: Weights) -> Weights:
    return {name: one.detach().cpu() for name, one in weights.items()}


def rate_at(fraction: float, step: int) -> float:
    """Return the share of the full learning rate: a short rise, a plateau, one decay."""
    rise = min(1.0, (step + 1) / _WARM_UP)
    return rise * min(1.0, max(_LAST_RATE, (1 - fraction) / _DECAY))


def _next_batch(training: Training, source: BatchSource, progress: Progress) -> Batch:
    """Return the next batch of the stage; counts it."""
    is_early = progress.fraction(training) < training.size.copying
    stage = Stage.COPYING if is_early else Stage.DIALOGUES
    batches = source.pool(progress.pool, stage)
    if progress.batch >= len(batches):
        progress.pool, progress.batch = progress.pool + 1, 0
        batches = source.pool(progress.pool, stage)
    progress.batch += 1
    return batches[progress.batch - 1]


def _gradients(training: Training, weights: Weights, batch: Batch) -> torch.Tensor:
    """Find the gradients; returns the loss of what the model has to say."""
    tokens, counts = _placed(batch, training.device)
    guessed = _guess(training, weights, tokens[:, :-1])
    losses = functional.cross_entropy(
        guessed.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none"
    )
    due = counts[:, 1:].flatten()
    ((losses * due).sum() / due.sum()).backward()
    said = (due >= 1.0).float()
    return (losses.detach() * said).sum() / said.sum()


def _placed(batch: Batch, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.from_numpy(batch.tokens).to(device).long()
    return tokens, torch.from_numpy(batch.counts).to(device)


def _guess(training: Training, weights: Weights, tokens: torch.Tensor) -> torch.Tensor:
    """Return logits, computed with half the bits where the device is made for it."""
    is_half = training.device == "cuda"
    with torch.autocast(training.device, torch.bfloat16, enabled=is_half):
        return logits(weights, training.shape, tokens).float()


class _Judge:
    """Counts the calls that the network would write exactly, given all that stands before them."""

    def __init__(self, training: Training, tokenizer: Tokenizer) -> None:
        self._training = training
        size = training.size
        self._beds: dict[str, list[Batch]] = {}
        if size.held_out is not None:
            beds = {"seen": size.draw, "unseen": size.held_out}
            self._beds = {
                name: held_out_batches(draw, tokenizer, size) for name, draw in beds.items()
            }
        self._marker = tokenizer.token_to_id("<tool_call>")

    def exact_calls(self, weights: Weights) -> dict[str, float]:
        """Return the share of exact calls, with tools of seen and of unseen domains."""
        found: dict[str, float] = {}
        for name, batches in self._beds.items():
            right = [one for batch in batches for one in self._calls(weights, batch)]
            found[name] = round(sum(right) / len(right), 4)
        return found

    def _calls(self, weights: Weights, batch: Batch) -> Iterable[bool]:
        """Say of each call that counts whether all its tokens are the likeliest ones."""
        tokens, counts = _placed(batch, self._training.device)
        with torch.no_grad():
            best = _guess(self._training, weights, tokens[:, :-1]).argmax(-1)
        due = counts[:, 1:] >= 1.0
        places = due.nonzero().tolist()
        is_right = (best == tokens[:, 1:])[due].tolist()
        is_marker = (tokens[:, 1:] == self._marker)[due].tolist()
        calls: list[bool] = []
        before, is_call = [-1, -1], False
        for place, right, marker in zip(places, is_right, is_marker, strict=True):
            if place != [before[0], before[1] + 1]:  # another reply begins
                is_call = marker
                calls += [True] * is_call
            if is_call:
                calls[-1] = calls[-1] and right
            before = place
        return calls


def _climb(training: Training, weights: Weights, progress: Progress, folder: Path) -> None:
    """Keep the weights at each rung of the ladder."""
    for rung in training.ladder:
        if progress.seen >= rung * training.tokens and rung not in progress.saved:
            progress.saved.append(rung)
            torch.save(_plain(weights), folder / f"rung-{round(100 * rung)}.pt")


def _note(line: Mapping[str, float], folder: Path, tell: Callable[[str], None]) -> None:
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
