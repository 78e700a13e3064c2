"""Learns rates, constants and doubt of a model and its template from the totals of prompts.

Compaction repeats its cuts from the history on every turn, so the values that it computes with must
be stable: they move in steps, and only when they are clearly wrong. A cut that moves changes the
prompt, and the engine reads all of it again.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil, floor, log
from statistics import median_low

MARGIN = 1.10  # factor on every estimate
REQUEST = 64  # tokens of a template around messages and tools, until a total is known

_STEP = log(1.05)
# a piece has up to seven letters and a blank, each of which may be a token
_DENSEST, _LIGHTEST = floor(log(1 / 8) / _STEP), floor(log(2.5) / _STEP)
_LEAST_PIECES = 250  # fewer are too few to learn a rate from
_LATEST = 5  # prompts
_LEAST_SPAN = 8  # messages between two prompts: over fewer, rounding errors of words dominate
_TOLERANCE = 0.02  # of a total, by which estimates of words may be wrong without moving the anchor
_MOST_ANCHORS = 64
_MOST_PER_MESSAGE = 64
_MOST_DOUBT = 8.0
_TOO_MUCH = 1.25  # a doubt above this multiple of the proven factor is lowered


@dataclass(slots=True)
class Rate:
    """Pieces per token in steps of five percent; starts below the rate of plain language."""

    _step: int = 0
    _seen: float | None = None
    _latest: deque[float] = field(default_factory=lambda: deque(maxlen=_LATEST))

    def observe(self, size: int, tokens: int) -> None:
        """Learn from `size` pieces; the median ignores a single odd prompt."""
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
    def is_learned(self) -> bool:
        return self._seen is not None

    def likely(self, size: int) -> int:
        """Estimate the tokens of `size` pieces from the latest rate, without a margin."""
        return self.tokens(size, 1) if self._seen is None else round(size / self._seen)

    def least(self, size: int) -> int:
        """Return the lower bound for `size` pieces: half of the learned rate, or the lightest."""
        return self.tokens(size, 0.5) if self.is_learned else int(size / 1.05**_LIGHTEST)


@dataclass(slots=True)
class CountingDoubt:
    """The factor by which prompts may exceed their counted tokens.

    It is 1 until an engine refuses a prompt that was expected to fit. Then it is stable, as cuts
    depend on it, until a prompt proves it far too large.
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
    """The tokens of the newest messages of prompts, which predict the next ones.

    `per_message` are the tokens that the template adds to each message, None while unknown.
    """

    per_message: float | None = None
    _size: float = 0.0
    _tokens: float = 0.0

    def observe(self, messages: int, size: int, tokens: int) -> None:
        """Learn from new messages with `tokens` in total.

        `size` are the pieces of the uncounted messages. If all were counted, the rest of the
        tokens belongs to the template.
        """
        if not size:
            self.per_message = min(max(tokens / messages, 0), _MOST_PER_MESSAGE)
            return
        words = tokens - messages * (self.per_message or 0)
        if words > 0:
            self._size = self._size / 2 + size
            self._tokens = self._tokens / 2 + words

    def tokens(self, size: int) -> int | None:
        """Estimate the tokens of `size` new pieces; None while too little is known."""
        if self._size < _LEAST_PIECES:
            return None
        return round(size * self._tokens / self._size)


@dataclass(slots=True)
class Constants:
    """The tokens of the template: `overhead` per message, and a constant per set of tools."""

    overhead: int = 6
    _span: int = 0
    # one prompt per set of tools: its number of messages, and its tokens that are not their words
    _anchors: dict[int, tuple[int, int]] = field(default_factory=dict)

    def count_besides(self, tools: int) -> int | None:
        """Return the tokens of a prompt with these tools besides its messages; None if unknown."""
        if (anchor := self._anchors.get(tools)) is None:
            return None
        messages, surplus = anchor
        return max(0, surplus - self.overhead * messages)

    def observe(self, tools: int, messages: int, surplus: int, total: int) -> None:
        """Learn from a prompt of `total` tokens, of which `surplus` are not words of messages.

        The overhead follows from two prompts of different length. A longer distance is more exact
        and replaces the estimate once it is twice as long.
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
