"""How many tokens messages have: exactly where the backend has counted them, else estimated.

Counts of messages are of `countable` text; what the template puts around it is learnt from totals.
Nothing here asks a backend: `unknown` names the messages that are worth asking for.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil

import msgspec

from proxy.context.calibration import MARGIN, REQUEST, Constants, CountingDoubt, Growth, Rate
from proxy.context.message_sizes import Latest, MessageSizes, RoughSize, key_of_tools
from proxy.conversation.messages import Message, Messages
from proxy.conversation.tools import Tool

MOST_PROMPTS = 4_096  # prompts


class KnownPromptTotals:
    """Remembers the totals of the latest prompts; `tools` is the key of their tools."""

    def __init__(self, capacity: int = MOST_PROMPTS) -> None:
        self._totals: Latest[int, int] = Latest(capacity)
        self._latest: tuple[Sequence[Message], int, list[int]] = ((), 0, [0])

    def note(self, messages: Sequence[Message], tools: int, total: int) -> None:
        self._totals.keep(self._keys(messages, tools)[-1], total)

    def longest(self, messages: Sequence[Message], tools: int) -> tuple[int, int] | None:
        """Return how many messages of a prompt are known to have which total; None without any."""
        keys = self._keys(messages, tools)
        for count in range(len(keys) - 1, 0, -1):
            if (total := self._totals.find(keys[count])) is not None:
                return count, total
        return None

    def _keys(self, messages: Sequence[Message], tools: int) -> list[int]:
        """Return the keys of all beginnings of a prompt; one is asked about several times."""
        latest, its_tools, keys = self._latest
        if latest != messages or its_tools != tools:
            key, keys = tools, [tools]
            for message in messages:
                key = hash((key, message.source))
                keys.append(key)
            self._latest = messages, tools, keys
        return keys


CAPACITY = 65_536  # messages: the histories of some hundred sessions

_NEAR = 0.5  # of the window: a prompt that is thought to fill so much of it may be too long


class Expected(msgspec.Struct, frozen=True):
    """What a prompt is expected to have, in tokens, and how many of them are `guessed`."""

    tokens: int
    guessed: int

    @property
    def most(self) -> int:
        return self.tokens + ceil((MARGIN - 1) * self.guessed)

    @property
    def least(self) -> int:
        """What it has at least: pieces may cost an eighth of what they are thought to."""
        return self.tokens - self.guessed * 7 // 8


class TokenBook:
    """The counts of one model with its template; books may share their `sizes`.

    What compaction decides with, `of` and `fixed`, must hold still. What is told, `expect`, is as
    near as it can be: the exact total of the prompt that this one goes on from, and what is new.
    """

    def __init__(self, capacity: int = CAPACITY, sizes: MessageSizes | None = None) -> None:
        self._sizes = sizes or MessageSizes()
        self._learnt: Latest[int, int] = Latest(capacity)
        self._rate = Rate()
        self._counted = (0, 0)  # pieces and tokens of all that was learnt
        self._constants = Constants()
        self._totals = KnownPromptTotals()
        self._growth = Growth()
        self._doubt = CountingDoubt()
        self._guessed: list[Message] | None = None
        self._tells_parts = False

    @property
    def overhead(self) -> int:
        return self._constants.overhead

    @property
    def doubt(self) -> float:
        """How many times more tokens a prompt may have than `of` and `fixed` say."""
        return self._doubt.factor

    @property
    def can_guess(self) -> bool:
        """Whether it is known what the pieces of a text cost; they differ by eight times."""
        return self._rate.is_learnt

    def of(self, message: Message) -> int:
        learnt = self._lookup(message)
        if learnt is None:
            if self._guessed is not None:
                self._guessed.append(message)
            weighed = self._sizes.weigh(message)
            learnt = self._rate.tokens(weighed.pieces) + weighed.media
        return learnt + self._constants.overhead

    @contextmanager
    def note_guesses(self) -> Iterator[list[Message]]:
        """Note the messages whose count is wanted meanwhile, and has to be guessed."""
        self._guessed = noted = list[Message]()
        try:
            yield noted
        finally:
            self._guessed = None

    def count_besides(self, tools: tuple[Tool, ...]) -> int:
        key = key_of_tools(tools)
        learnt = self._constants.count_besides(key)
        guess = self._rate.tokens
        return REQUEST + guess(self._sizes.weigh_tools(tools)) if learnt is None else learnt

    def knows(self, tools: tuple[Tool, ...]) -> bool:
        """Return whether a total has taught what a prompt with these tools holds."""
        return self._constants.count_besides(key_of_tools(tools)) is not None

    def estimate(self, messages: Sequence[Message], tools: tuple[Tool, ...]) -> int:
        return self.expect(messages, tools).tokens

    def expect(self, messages: Sequence[Message], tools: tuple[Tool, ...]) -> Expected:
        found = self._totals.longest(messages, key_of_tools(tools))
        start, tokens = found or (0, self.count_besides(tools))
        guessed = 0.0 if start or self.knows(tools) else float(tokens)
        around = self._growth.around if start else None
        tokens += ceil((len(messages) - start) * (self.overhead if around is None else around))
        rest = messages[start:]
        for cost, weighed in zip(self._lookup_all(rest), self._sizes.weigh_all(rest), strict=True):
            if cost is None:
                likely = self._growth.tokens(weighed.pieces)
                cost = self._rate.likely(weighed.pieces) if likely is None else likely
                cost += weighed.media
                guessed += cost
            tokens += cost
        return Expected(tokens, ceil(guessed))

    def learn(self, message: Message, tokens: int) -> None:
        self._learnt.keep(hash(message.source), tokens)
        size, counted = self._counted
        self._counted = size + self._sizes.weigh(message).pieces, counted + tokens
        self._rate.observe(*self._counted)

    def unknown(self, messages: Sequence[Message]) -> Messages:
        """Return the messages that nobody has counted: counted later, one would move a cut."""
        unlearnt = (message for message in messages if self._lookup(message) is None)
        return tuple({hash(message.source): message for message in unlearnt}.values())

    def calibrate(
        self,
        messages: Sequence[Message],
        tools: tuple[Tool, ...],
        total: int,
        sizes: Sequence[RoughSize] | None = None,
    ) -> None:
        """Learn from the `total` that a backend reported for a prompt.

        If all of it was counted before, it reports what the template adds; if little was, how many
        bytes a token has. In between, what was guessed wrong would be blamed on the template.
        """
        key = key_of_tools(tools)
        self._grow(messages, key, total)
        known = media = 0
        pieces: list[int] = []
        sizes = self._sizes.weigh_all(messages) if sizes is None else sizes
        for learnt, weighed in zip(self._lookup_all(messages), sizes, strict=True):
            if learnt is not None:
                known += learnt
            else:
                media += weighed.media
                pieces.append(weighed.words + weighed.thoughts)
        guessed, size = self._rate.tokens_of_each(pieces) + media, sum(pieces)
        if guessed <= known:
            if not guessed:
                self._constants.observe(key, len(messages), total - known, total)
            return
        around = known + self._constants.overhead * len(messages)
        fixed = self._constants.count_besides(key)
        if fixed is None:
            size += self._sizes.weigh_tools(tools)
            fixed = REQUEST
        self._rate.observe(size, total - around - fixed)

    def count_whole(self, messages: Sequence[Message], tools: tuple[Tool, ...], total: int) -> None:
        """Learn from the exact `total` of a prompt, which also ends a doubt that it disproves."""
        self.calibrate(messages, tools, total)
        self._doubt.learn_served(self._count_to_decide(messages, tools), total)

    def refuse(
        self,
        messages: Sequence[Message],
        tools: tuple[Tool, ...],
        total: int | None,
        window: int | None,
    ) -> None:
        """Learn from a prompt that was too long; the backend may keep silent about both numbers."""
        if total:
            self.calibrate(messages, tools, total)
        least = max(total or 0, (window or 0) + 1)
        self._doubt.learn_refused(self._count_to_decide(messages, tools), least)

    def _count_to_decide(self, messages: Sequence[Message], tools: tuple[Tool, ...]) -> int:
        return self.count_besides(tools) + sum(map(self.of, messages))

    def hear(
        self, messages: Sequence[Message], tools: tuple[Tool, ...], total: int, window: int
    ) -> int | None:
        """Learn from a `total` that nobody could count before, unless it is not the whole prompt's.

        Returns how many tokens a prompt must have had of which the backend has dropped a part to
        make it fit into the window; None where all was read, as far as anyone can tell.
        """
        if self._doubt.factor > 1:
            self._doubt.learn_served(self._count_to_decide(messages, tools), total)
        if self._counted[1]:
            self.calibrate(messages, tools, total)
            return None
        sizes = self._sizes.weigh_all(messages)
        missing = self._find_missing(sizes, tools, total, window)
        # what was thought too long for the window may have been cut, if not by much
        is_suspect = self._tells_parts or total <= window < self.estimate(messages, tools)
        if missing is None and not is_suspect:
            self.calibrate(messages, tools, total, sizes)
        return missing

    def _find_missing(
        self, sizes: Sequence[RoughSize], tools: tuple[Tool, ...], total: int, window: int
    ) -> int | None:
        """Compare a total with what it has to be at least; an estimate is no proof.

        It has to be under half of what was learnt to expect, of a prompt that could fill the
        window. Where one is that low far from the window, the backend must be telling only the new
        part of its prompts, and nothing can be told from that.
        """
        size = sum([weighed.words for weighed in sizes])
        size += self._sizes.weigh_tools(tools) // 2
        least = self._rate.least(size)
        if self._tells_parts or total >= least:
            return None
        if not self._rate.is_learnt:
            return least if least > window else None
        self._tells_parts = 2 * least < _NEAR * window
        return None if self._tells_parts else max(2 * least, window + 1)

    def _grow(self, messages: Sequence[Message], tools: int, total: int) -> None:
        found = self._totals.longest(messages, tools)
        if found is not None and found[0] < len(messages):
            new = messages[found[0] :]
            learnt = self._lookup_all(new)
            known = sum(tokens or 0 for tokens in learnt)
            guessed = [one for one, tokens in zip(new, learnt, strict=True) if tokens is None]
            size = sum(weighed.pieces for weighed in self._sizes.weigh_all(guessed))
            self._growth.observe(len(new), size, total - found[1] - known)
        self._totals.note(messages, tools, total)

    def _lookup_all(self, messages: Sequence[Message]) -> Sequence[int | None]:
        return [*map(self._lookup, messages)] if any(self._counted) else [None] * len(messages)

    def _lookup(self, message: Message) -> int | None:
        return self._learnt.find(hash(message.source))
