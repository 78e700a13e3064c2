"""Learns how many tokens texts have for a model, from the token counts that its engine reports.

    class        learns                                     from
    Rate         pieces per token (see `message_sizes`)     counted messages, totals of prompts
    Constants    tokens of the template, per message and    prompts whose messages were counted
                 per set of tools
    Growth       pieces per token of new messages           the last messages of prompts
    CountError   the factor by which counts are too low     prompts that the engine rejected

Compaction computes its cuts again on every turn, so these values must be stable: they change in
steps, and only if they are clearly wrong. A cut at another message changes the prompt, and the
engine reads the whole prompt again.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil, floor, log
from statistics import median_low

MARGIN = 1.10  # factor on every estimate
REQUEST = 64  # assumed tokens of a template besides messages and tools, until a total is known

_STEP = log(1.05)  # rates and count errors change in steps of five percent
# The limits of the rate, in steps. A piece has at most seven letters and a blank, each of which may
# be a token.
_FEWEST_PIECES, _MOST_PIECES = floor(log(1 / 8) / _STEP), floor(log(2.5) / _STEP)
_LEAST_PIECES = 250  # shorter texts are not used to learn a rate
_LATEST = 5  # the rate is the median of this many prompts
# Two prompts are compared only if their numbers of messages differ by at least this many; otherwise
# rounding errors are too large.
_LEAST_SPAN = 8
# The stored prompt of a set of tools is replaced only if it mispredicts a later prompt by more than
# this share of the later prompt's total.
_TOLERANCE = 0.02
_MOST_ANCHORS = 64  # sets of tools whose prompt is stored
_MOST_PER_MESSAGE = 64  # the most tokens that a template is assumed to add to a message
_MOST_COUNT_ERROR = 8.0
_TOO_LARGE = 1.25  # a count error above this multiple of the proven error is lowered


@dataclass(slots=True)
class Rate:
    """Pieces per token in steps of five percent.

    The initial rate is one token per piece, which is too many tokens for plain language.
    """

    _step: int = 0
    _median: float | None = None
    _latest: deque[float] = field(default_factory=lambda: deque(maxlen=_LATEST))

    def observe(self, size: int, tokens: int) -> None:
        """Learn from a text of `size` pieces; the median ignores a single unusual prompt."""
        if tokens <= 0 or size < _LEAST_PIECES:
            return
        self._latest.append(size / tokens)
        self._median = median_low(self._latest)
        step = log(self._median) / _STEP
        if abs(step - self._step) > 1:
            self._step = min(max(floor(step), _FEWEST_PIECES), _MOST_PIECES)

    def tokens(self, size: int, margin: float = MARGIN) -> int:
        per_token = 1.05**self._step
        return ceil(size / per_token * margin)

    def tokens_of_each(self, sizes: Iterable[int]) -> int:
        """Estimate the tokens of several texts, each rounded up, without a margin."""
        per_token = 1.05**self._step
        return sum([ceil(size / per_token) for size in sizes])

    @property
    def is_learned(self) -> bool:
        return self._median is not None

    def likely(self, size: int) -> int:
        """Estimate the tokens of `size` pieces from the latest rate, without a margin."""
        return self.tokens(size, 1) if self._median is None else round(size / self._median)

    def least(self, size: int) -> int:
        """Return the least number of tokens that `size` pieces may have."""
        return self.tokens(size, 0.5) if self.is_learned else int(size / 1.05**_MOST_PIECES)


@dataclass(slots=True)
class CountError:
    """The factor by which prompts may exceed their counted tokens.

    The factor is 1 until an engine rejects a prompt that was expected to fit. Cuts depend on the
    factor, so it is lowered only if the count of an accepted prompt shows that it is far too large.
    """

    factor: float = 1.0

    def learn_refused(self, counted: int, tokens: int) -> None:
        self.factor = max(self.factor, self._step(tokens / max(1, counted)))

    def learn_served(self, counted: int, tokens: int) -> None:
        proven = self._step(tokens / max(1, counted))
        if self.factor > _TOO_LARGE * proven:
            self.factor = proven

    def _step(self, error: float) -> float:
        return 1.05 ** ceil(log(min(max(1.0, error), _MOST_COUNT_ERROR)) / _STEP)


@dataclass(slots=True)
class Growth:
    """Predicts the tokens of new messages from the last messages of earlier prompts.

    `per_message` are the tokens that the template adds to each message, None while unknown.
    """

    per_message: float | None = None
    _size: float = 0.0
    _tokens: float = 0.0

    def observe(self, messages: int, size: int, tokens: int) -> None:
        """Learn from the new messages of a prompt.

        `tokens` are the new tokens of the prompt without the messages that the engine has counted.
        `size` is the number of pieces of the messages that the engine has not counted. If the
        engine has counted all messages, `size` is 0 and `tokens` belong to the template.
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
    """The tokens of the template: `overhead` per message, and a constant per set of tools.

        surplus = constant of the tools + overhead * messages

    The surplus is the number of tokens of a prompt that are not in the texts of its messages.
    """

    overhead: int = 6
    _span: int = 0
    # one prompt for each set of tools: its number of messages, and its surplus
    _anchors: dict[int, tuple[int, int]] = field(default_factory=dict)

    def count_besides(self, tools: int) -> int | None:
        """Return the tokens of a prompt that are not in its messages; None if unknown."""
        if (anchor := self._anchors.get(tools)) is None:
            return None
        messages, surplus = anchor
        return max(0, surplus - self.overhead * messages)

    def observe(self, tools: int, messages: int, surplus: int, total: int) -> None:
        """Learn from a prompt of `total` tokens, of which `surplus` are not texts of messages.

        The overhead is computed from two prompts with different numbers of messages. A larger
        difference gives a more exact overhead. So the overhead is computed again only if the
        difference is at least twice the difference that was used last.
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
