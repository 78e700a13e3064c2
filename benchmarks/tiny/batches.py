"""Batches of rows of like length, drawn in pools; other processes may draw them ahead."""

import random
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from multiprocessing import get_context

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from benchmarks.tiny import copying
from benchmarks.tiny.copying import Row
from benchmarks.tiny.dialogues import Segment
from benchmarks.tiny.sizes import SIZES, Size
from benchmarks.tiny.tokenizer import CONTROL, MARKERS


class Stage(Enum):
    """What is learnt from."""

    COPYING = "copying"
    DIALOGUES = "dialogues"


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of tokens, filled up with zeros, and how much each token counts; `size` in tokens."""

    tokens: npt.NDArray[np.int32]
    counts: npt.NDArray[np.float32]
    size: int


@dataclass(slots=True)
class BatchSource:
    """Hands out the pools of a seed one after the other.

    With `workers` dialogues are drawn ahead by other processes; they must be asked for in order.
    """

    size: Size
    tokenizer: Tokenizer
    seed: int
    workers: int = 0
    _key: tuple[int, Stage] = (-1, Stage.COPYING)
    _batches: list[Batch] = field(default_factory=list)
    _ahead: deque[Future[list[Batch]]] = field(default_factory=deque)
    _executor: ProcessPoolExecutor | None = None

    def pool(self, number: int, stage: Stage) -> list[Batch]:
        """Return the batches of a pool."""
        if self._key != (number, stage):
            self._key = number, stage
            is_ahead = self.workers > 0 and stage is Stage.DIALOGUES
            self._batches = self._take(number) if is_ahead else self._draw(number, stage)
        return self._batches

    def close(self) -> None:
        """End the processes."""
        if self._executor is not None:
            self._executor.shutdown(cancel_futures=True)

    def _draw(self, number: int, stage: Stage) -> list[Batch]:
        return batches_of(self.size, self.tokenizer, f"{self.seed} {number}", stage)

    def _take(self, number: int) -> list[Batch]:
        if self._executor is None:
            context = get_context("spawn")
            self._executor = ProcessPoolExecutor(self.workers, mp_context=context)
        while len(self._ahead) <= 2 * self.workers:
            later = f"{self.seed} {number + len(self._ahead)}"
            text = self.tokenizer.to_str()
            self._ahead.append(self._executor.submit(_draw_elsewhere, self.size.name, text, later))
        return self._ahead.popleft().result()


def _draw_elsewhere(size: str, tokenizer: str, seed: str) -> list[Batch]:
    return batches_of(SIZES[size], _read_tokenizer(tokenizer), seed, Stage.DIALOGUES)


@lru_cache(maxsize=1)
def _read_tokenizer(text: str) -> Tokenizer:
    return Tokenizer.from_str(text)


def batches_of(size: Size, tokenizer: Tokenizer, seed: str, stage: Stage) -> list[Batch]:
    """Draw a pool of rows and cut it into batches of rows of like length."""
    draw = random.Random(seed)  # noqa: S311 - training data
    plain = tokenizer.get_vocab_size() - len(CONTROL) - len(MARKERS)
    if stage is Stage.COPYING:
        rows = [copying.draw_row(draw, 0, plain) for _ in range(size.pool)]
    else:
        rows = [encode(size.draw(draw), tokenizer) for _ in range(size.pool)]
    found = cut(rows, size.batch)
    draw.shuffle(found)
    return [pad(rows) for rows in found]


def cut(rows: list[Row], most: int) -> list[list[Row]]:
    """Put rows of like length together, up to so many tokens with what fills them up."""
    rows.sort(key=lambda row: len(row[0]))
    batches: list[list[Row]] = [[]]
    for row in rows:
        if batches[-1] and (len(batches[-1]) + 1) * len(row[0]) > most:
            batches.append([])
        batches[-1].append(row)
    return batches


def encode(segments: Iterable[Segment], tokenizer: Tokenizer) -> Row:
    """Cut a dialogue into tokens, each of which counts as its segment does."""
    tokens: list[int] = []
    weights: list[float] = []
    for segment in segments:
        found = tokenizer.encode(segment.text).ids
        tokens += found
        weights += [segment.weight] * len(found)
    return tokens, weights


def pad(rows: list[Row]) -> Batch:
    """Fill rows up to the same length."""
    shape = len(rows), max(len(row[0]) for row in rows)
    tokens, counts = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    for place, (found, due) in enumerate(rows):
        tokens[place, : len(found)] = found
        counts[place, : len(due)] = due
    return Batch(tokens, counts, sum(len(row[0]) for row in rows))


def held_out_batches(
    draw_one: Callable[[random.Random], Iterable[Segment]], tokenizer: Tokenizer, size: Size
) -> list[Batch]:
    """Draw the dialogues that a training is measured with, always the same."""
    draw = random.Random("held out")  # noqa: S311 - made-up tasks
    rows = [encode(draw_one(draw), tokenizer) for _ in range(size.held_out_count)]
    return [pad(one) for one in cut(rows, size.batch)]
