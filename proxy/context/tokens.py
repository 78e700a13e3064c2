"""Token counts of messages: exact if the engine has counted a message, otherwise estimated.

The engine counts the `countable` text of a message. The tokens that the template adds are learned
from the totals of whole prompts. Estimates are computed from pieces, which are words, signs and
digits (see `rough_tokens`), not the tokens of the model. This module sends no requests: its caller
lets the engine count the messages in the result of `unknown`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil

import msgspec

from proxy.context.calibration import MARGIN, REQUEST, Constants, CountError, Growth, Rate
from proxy.context.message_sizes import LruCache, MessageSizes, RoughSize, key_of_tools
from proxy.conversation.messages import Message, Messages
from proxy.conversation.tools import Tool

MOST_PROMPTS = 4_096  # prompts whose totals are stored


class KnownPromptTotals:
    """The token counts of the latest prompts; `tools` is the key of a set of tools."""

    def __init__(self, capacity: int = MOST_PROMPTS) -> None:
        self._totals: LruCache[int, int] = LruCache(capacity)
        self._latest: tuple[Sequence[Message], int, list[int]] = ((), 0, [0])

    def note(self, messages: Sequence[Message], tools: int, total: int) -> None:
        self._totals.keep(self._keys(messages, tools)[-1], total)

    def longest(self, messages: Sequence[Message], tools: int) -> tuple[int, int] | None:
        """Return the longest prefix with a known total, as its number of messages and the total."""
        keys = self._keys(messages, tools)
        for count in range(len(keys) - 1, 0, -1):
            if (total := self._totals.find(keys[count])) is not None:
                return count, total
        return None

    def _keys(self, messages: Sequence[Message], tools: int) -> list[int]:
        """Return the keys of all prefixes of a prompt; the keys of the latest prompt are cached."""
        latest, latest_tools, keys = self._latest
        if latest != messages or latest_tools != tools:
            key, keys = tools, [tools]
            for message in messages:
                key = hash((key, message.source))
                keys.append(key)
            self._latest = messages, tools, keys
        return keys


CAPACITY = 65_536  # messages: the histories of a few hundred sessions

_NEAR = 0.5  # a prompt below this share of the window was certainly not truncated


class Expected(msgspec.Struct, frozen=True):
    """The expected size of a prompt in `tokens`; `guessed` of these tokens are estimates."""

    tokens: int
    guessed: int

    @property
    def most(self) -> int:
        return self.tokens + ceil((MARGIN - 1) * self.guessed)

    @property
    def least(self) -> int:
        """A lower bound of the tokens: the true number may be an eighth of an estimate."""
        return self.tokens - self.guessed * 7 // 8


class TokenBook:
    """The token counts of one model with its template; several books may share the cache `sizes`.

    Compaction uses `of` and `count_besides`. Their results rarely change, so compaction shortens
    the history at the same message on every turn. Reports use `expect`, which is as exact as
    possible: it adds the new messages to the known total of the previous prompt.
    """

    def __init__(self, capacity: int = CAPACITY, sizes: MessageSizes | None = None) -> None:
        self._sizes = sizes or MessageSizes()
        self._learned: LruCache[int, int] = LruCache(capacity)
        self._rate = Rate()
        self._counted = (0, 0)  # pieces and tokens of all counted messages
        self._constants = Constants()
        self._totals = KnownPromptTotals()
        self._growth = Growth()
        self._count_error = CountError()
        self._guessed: list[Message] | None = None
        self._reports_uncached_only = False

    @property
    def overhead(self) -> int:
        return self._constants.overhead

    @property
    def count_error(self) -> float:
        """The factor by which a prompt may exceed the sum of `count_besides` and its messages."""
        return self._count_error.factor

    @property
    def can_guess(self) -> bool:
        """True if the tokens per piece were learned; until then, an estimate may be far off."""
        return self._rate.is_learned

    def of(self, message: Message) -> int:
        learned = self._lookup(message)
        if learned is None:
            if self._guessed is not None:
                self._guessed.append(message)
            weighed = self._sizes.weigh(message)
            learned = self._rate.tokens(weighed.pieces) + weighed.media
        return learned + self._constants.overhead

    @contextmanager
    def note_guesses(self) -> Iterator[list[Message]]:
        """Yield a list; during the block, messages whose tokens are estimated are added to it."""
        self._guessed = guessed = list[Message]()
        try:
            yield guessed
        finally:
            self._guessed = None

    def count_besides(self, tools: tuple[Tool, ...]) -> int:
        """Return the tokens of a prompt that are not in its messages (tools and template)."""
        key = key_of_tools(tools)
        learned = self._constants.count_besides(key)
        guess = self._rate.tokens
        return REQUEST + guess(self._sizes.weigh_tools(tools)) if learned is None else learned

    def knows(self, tools: tuple[Tool, ...]) -> bool:
        """Return whether the total of a prompt with these tools is known."""
        return self._constants.count_besides(key_of_tools(tools)) is not None

    def estimate(self, messages: Sequence[Message], tools: tuple[Tool, ...]) -> int:
        return self.expect(messages, tools).tokens

    def expect(self, messages: Sequence[Message], tools: tuple[Tool, ...]) -> Expected:
        longest = self._totals.longest(messages, key_of_tools(tools))
        start, tokens = longest or (0, self.count_besides(tools))
        guessed = 0.0 if start or self.knows(tools) else float(tokens)
        per_message = self._growth.per_message if start else None
        per_message = self.overhead if per_message is None else per_message
        tokens += ceil((len(messages) - start) * per_message)
        new = messages[start:]
        for count, size in zip(self._lookup_all(new), self._sizes.weigh_all(new), strict=True):
            if count is None:
                likely = self._growth.tokens(size.pieces)
                count = self._rate.likely(size.pieces) if likely is None else likely
                count += size.media
                guessed += count
            tokens += count
        return Expected(tokens, ceil(guessed))

    def learn(self, message: Message, tokens: int) -> None:
        self._learned.keep(hash(message.source), tokens)
        size, counted = self._counted
        self._counted = size + self._sizes.weigh(message).pieces, counted + tokens
        self._rate.observe(*self._counted)

    def unknown(self, messages: Sequence[Message]) -> Messages:
        """Return the messages that the engine has not counted, without repetitions."""
        uncounted = (message for message in messages if self._lookup(message) is None)
        return tuple({hash(message.source): message for message in uncounted}.values())

    def calibrate(
        self,
        messages: Sequence[Message],
        tools: tuple[Tool, ...],
        total: int,
        sizes: Sequence[RoughSize] | None = None,
    ) -> None:
        """Learn from the `total` that a backend reported for a prompt.

        If the engine has counted all messages, the other tokens of the total belong to the
        template. If it has counted less than half of the tokens, the pieces per token are learned
        from the total. Otherwise nothing is learned.
        """
        key = key_of_tools(tools)
        self._grow(messages, key, total)
        known = media = 0
        pieces: list[int] = []
        sizes = self._sizes.weigh_all(messages) if sizes is None else sizes
        for learned, weighed in zip(self._lookup_all(messages), sizes, strict=True):
            if learned is not None:
                known += learned
            else:
                media += weighed.media
                pieces.append(weighed.words + weighed.thoughts)
        guessed, size = self._rate.tokens_of_each(pieces) + media, sum(pieces)
        if guessed <= known:
            if not guessed:
                self._constants.observe(key, len(messages), total - known, total)
            return
        template = known + self._constants.overhead * len(messages)
        fixed = self._constants.count_besides(key)
        if fixed is None:
            size += self._sizes.weigh_tools(tools)
            fixed = REQUEST
        self._rate.observe(size, total - template - fixed)

    def count_whole(self, messages: Sequence[Message], tools: tuple[Tool, ...], total: int) -> None:
        """Learn from the exact `total` of a prompt; this may lower the count error."""
        self.calibrate(messages, tools, total)
        self._count_error.learn_served(self._count_for_cuts(messages, tools), total)

    def refuse(
        self,
        messages: Sequence[Message],
        tools: tuple[Tool, ...],
        total: int | None,
        window: int | None,
    ) -> None:
        """Learn from a rejected prompt.

        `total` and `window` are None if the engine did not report them.
        """
        if total:
            self.calibrate(messages, tools, total)
        # a rejected prompt has more tokens than the window
        least = max(total or 0, (window or 0) + 1)
        self._count_error.learn_refused(self._count_for_cuts(messages, tools), least)

    def _count_for_cuts(self, messages: Sequence[Message], tools: tuple[Tool, ...]) -> int:
        return self.count_besides(tools) + sum(map(self.of, messages))

    def observe_total(
        self, messages: Sequence[Message], tools: tuple[Tool, ...], total: int, window: int
    ) -> int | None:
        """Learn from the `total` that an engine without a tokenizer endpoint reports for a prompt.

        Returns the estimated size of the prompt if the engine silently truncated it to fit the
        window; None if the engine may have read the whole prompt.
        """
        if self._count_error.factor > 1:
            self._count_error.learn_served(self._count_for_cuts(messages, tools), total)
        if self._counted[1]:
            self.calibrate(messages, tools, total)
            return None
        sizes = self._sizes.weigh_all(messages)
        missing = self._find_missing(sizes, tools, total, window)
        # if the estimate exceeds the window, the engine may have truncated a small part
        is_suspect = self._reports_uncached_only or total <= window < self.estimate(messages, tools)
        if missing is None and not is_suspect:
            self.calibrate(messages, tools, total, sizes)
        return missing

    def _find_missing(
        self, sizes: Sequence[RoughSize], tools: tuple[Tool, ...], total: int, window: int
    ) -> int | None:
        """Return the estimated size of the prompt if the engine has truncated it, else None.

        A `total` below half of the expected tokens has two possible causes. If the prompt is large
        enough to fill the window, the engine has truncated it. If the prompt is short, the engine
        reports only uncached tokens, and truncations cannot be recognized from its totals.
        """
        size = sum([weighed.words for weighed in sizes])
        size += self._sizes.weigh_tools(tools) // 2
        least = self._rate.least(size)
        if self._reports_uncached_only or total >= least:
            return None
        if not self._rate.is_learned:
            return least if least > window else None
        self._reports_uncached_only = 2 * least < _NEAR * window
        return None if self._reports_uncached_only else max(2 * least, window + 1)

    def _grow(self, messages: Sequence[Message], tools: int, total: int) -> None:
        longest = self._totals.longest(messages, tools)
        if longest is not None and longest[0] < len(messages):
            new = messages[longest[0] :]
            learned = self._lookup_all(new)
            known = sum(tokens or 0 for tokens in learned)
            guessed = [
                message for message, tokens in zip(new, learned, strict=True) if tokens is None
            ]
            size = sum(weighed.pieces for weighed in self._sizes.weigh_all(guessed))
            self._growth.observe(len(new), size, total - longest[1] - known)
        self._totals.note(messages, tools, total)

    def _lookup_all(self, messages: Sequence[Message]) -> Sequence[int | None]:
        return [*map(self._lookup, messages)] if any(self._counted) else [None] * len(messages)

    def _lookup(self, message: Message) -> int | None:
        return self._learned.find(hash(message.source))
