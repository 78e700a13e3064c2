"""What totals of the backend teach about a model and its template; it changes rarely.

A cut is found again from the history on every turn, so what it is computed with must hold still:
values move in steps, and only when they are clearly wrong.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil, floor, log
from statistics import median_low

MARGIN = 1.10  # on every estimate
REQUEST = 64  # tokens of a template around messages and tools, until a total is known

_STEP = log(1.05)
# a piece is up to seven letters and a blank, each of which may be a token
_DENSEST, _LIGHTEST = floor(log(1 / 8) / _STEP), floor(log(2.5) / _STEP)
_LEAST_PIECES = 250  # of which a rate is worth learning
_LATEST = 5  # prompts
_LEAST_SPAN = 8
_TOLERANCE = 0.02
_MOST_ANCHORS = 64
_MOST_AROUND = 64
_MOST_DOUBT = 8.0
_TOO_MUCH = 1.25  # times what a prompt proves, of a doubt


@dataclass(slots=True)
class Rate:
    """Pieces per token, in steps of five percent; at the start less than in plain language."""

    _step: int = 0
    _seen: float | None = None
    _latest: deque[float] = field(default_factory=lambda: deque(maxlen=_LATEST))

    def observe(self, size: int, tokens: int) -> None:
        """Learn from so many pieces; one odd prompt among the latest changes nothing."""
        if tokens <= 0 or size < _LEAST_PIECES:
            return
        self._latest.append(size / tokens)
        self._seen = median_low(self._latest)
        seen = log(self._seen) / _STEP
        if abs(seen - self._step) > 1:
            self._step = min(max(floor(seen), _DENSEST), _LIGHTEST)

    def tokens(self, size: int, margin: float = MARGIN) -> int:
        per_token = 1.05**self._step
        return ceil(size / per_token * margin)

    def tokens_of_each(self, sizes: Iterable[int]) -> int:
        """Estimate the tokens of several texts, each rounded up, without a margin."""
        per_token = 1.05**self._step
        return sum([ceil(size / per_token) for size in sizes])

    @property
    def is_learnt(self) -> bool:
        return self._seen is not None

    def likely(self, size: int) -> int:
        """Estimate the tokens of so many pieces by what was seen last, without a margin."""
        return self.tokens(size, 1) if self._seen is None else round(size / self._seen)

    def least(self, size: int) -> int:
        """Return how few tokens so many pieces can be: half of what was learnt, or next to none."""
        return self.tokens(size, 0.5) if self.is_learnt else int(size / 1.05**_LIGHTEST)


@dataclass(slots=True)
class CountingDoubt:
    """How many times more tokens prompts have than they are counted to have, at most.

    It is 1 until a backend refuses a prompt that was thought to fit. Then it holds still, as cuts
    depend on it, unless a prompt proves it far too large.
    """

    factor: float = 1.0

    def learn_refused(self, counted: int, tokens: int) -> None:
        self.factor = max(self.factor, self._step(tokens / max(1, counted)))

    def learn_served(self, counted: int, tokens: int) -> None:
        proven = self._step(tokens / max(1, counted))
        if self.factor > _TOO_MUCH * proven:
            self.factor = proven

    def _step(self, times: float) -> float:
        return 1.05 ** ceil(log(min(max(1.0, times), _MOST_DOUBT)) / _STEP)


@dataclass(slots=True)
class Growth:
    """What the newest messages of prompts cost: those to come will be like them.

    `around` is what a template adds to each, None until it is known.
    """

    around: float | None = None
    _size: float = 0.0
    _tokens: float = 0.0

    def observe(self, messages: int, size: int, tokens: int) -> None:
        """Learn from new messages that cost so many `tokens`.

        `size` are the pieces of those that nobody has counted; without any, only what is around
        them is left.
        """
        if not size:
            self.around = min(max(tokens / messages, 0), _MOST_AROUND)
            return
        words = tokens - messages * (self.around or 0)
        if words > 0:
            self._size = self._size / 2 + size
            self._tokens = self._tokens / 2 + words

    def tokens(self, size: int) -> int | None:
        """Estimate the tokens of so many new pieces; None as long as little is known."""
        if self._size < _LEAST_PIECES:
            return None
        return round(size * self._tokens / self._size)


@dataclass(slots=True)
class Constants:
    """What a template adds: `overhead` to each message, and something for every set of tools."""

    overhead: int = 6
    _span: int = 0
    # of one prompt its messages, and the tokens of it that are not their words
    _anchors: dict[int, tuple[int, int]] = field(default_factory=dict)

    def count_besides(self, tools: int) -> int | None:
        """Return what a prompt with these tools holds besides messages; None if never seen."""
        if (anchor := self._anchors.get(tools)) is None:
            return None
        messages, surplus = anchor
        return max(0, surplus - self.overhead * messages)

    def observe(self, tools: int, messages: int, surplus: int, total: int) -> None:
        """Learn from a prompt of `total` tokens, of which `surplus` are not words of messages.

        Two prompts that differ in their length tell the overhead; a wider difference tells it
        better, and is believed once it is twice as wide.
        """
        anchor = self._anchors.get(tools)
        if anchor is not None:
            span = messages - anchor[0]
            if abs(span) >= max(_LEAST_SPAN, 2 * self._span):
                self._span = abs(span)
                self.overhead = max(0, round((surplus - anchor[1]) / span))
            expected = (self.count_besides(tools) or 0) + self.overhead * messages
            if abs(expected - surplus) <= _TOLERANCE * total:
                return
        self._anchors.pop(tools, None)
        self._anchors[tools] = messages, surplus
        if len(self._anchors) > _MOST_ANCHORS:
            del self._anchors[next(iter(self._anchors))]
