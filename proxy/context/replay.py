"""Replays a history from its first message to decide which parts to shorten.

Theory of operation
-------------------
The history is replayed as it was sent: one request before each reply of the assistant, and one at
the end. At each of these requests the size of the history is compared with a high watermark. If the
size is above it, a cut shortens old messages until the size is below a low watermark, so that many
requests fit before the next cut. A stub is a summary in one line. A unit is a message of the
assistant with the results of its calls, or a message of the user. A cut has three steps:

    1  results of successful calls are replaced by stubs, then results of failed calls, oldest first
    2  whole units are replaced by one digest, oldest first
    3  the largest remaining results lose their middle, until the high watermark is reached

A cut is final. Every decision depends only on earlier messages, so a later request repeats the same
cuts, its prompt begins with the same bytes, and the engine can reuse its prompt cache.

Each replacement is written, and its tokens are counted, before the next decision, because the
number of tokens cannot be computed from the number of characters or words.

System messages, the first and the last user message, groups with outstanding results, and groups
with a call of a tool in `never_clear` are never shortened. A group is a message of the assistant
with calls and their results. The latest groups are exempt from steps 1 and 2. Each unit is visited
a bounded number of times, so the time is linear in the length of the history.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heapreplace

from proxy.context.budget import Window, check_size
from proxy.context.compaction import Fitted, TokenCounts
from proxy.context.digest import Digest
from proxy.context.shortening import TextCache, head_and_tail, with_content
from proxy.context.units import Grouping, Result, Unit, units_of
from proxy.conversation.messages import Message, Messages
from proxy.conversation.tools import Tool
from proxy.facts import Compacted

# The digest may use at most this share of the available tokens, and at most this number of tokens.
_DIGEST_SHARE = 0.16
_MOST_DIGEST = 8_192
_WORTHWHILE = 0.75  # a stub is used if it has at most this share of the result's tokens
# Step 3 halves a result repeatedly. A half is not written if it still has more tokens than this
# multiple of the high watermark, because it will be halved again.
_MOST_WRITTEN = 4
_SHORTEST = 64  # minimum tokens of a result that step 3 has shortened


@dataclass(frozen=True, slots=True)
class Rules:
    """The watermarks `high` and `low`, as shares of the available tokens, and the exemptions.

    `has_failed` recognizes the results of failed calls. The latest `recent` groups, and groups with
    tools in `never_clear`, are exempt. If the engine has counted all messages, `high_counted`
    replaces `high`.
    """

    has_failed: Callable[[str], bool]
    never_clear: frozenset[str] = frozenset()
    recent: int = 3
    high: float = 0.90
    low: float = 0.50
    high_counted: float = 1.0


@dataclass(slots=True)
class Cuts:
    """The changes to a history; `epoch` is the number of cuts.

    `stubs` (step 1) and `trims` (step 3) map indexes of messages to their replacements. `digest`
    replaces the `folded` units (step 2).
    """

    digest: Digest
    epoch: int = 0
    stubs: dict[int, Message] = field(default_factory=dict)
    trims: dict[int, Message] = field(default_factory=dict)
    folded: list[Unit] = field(default_factory=list)

    @property
    def tier(self) -> int:
        """The highest of the steps 1 to 3 that has changed the history; 0 if none has."""
        return 3 if self.trims else 2 if self.folded else 1 if self.stubs else 0


class HistoryReplay:
    """Replays one history.

    `room` is the limit of the prompt in tokens. `fixed` are the tokens of the tools and the
    template, which are never shortened.
    """

    def __init__(
        self, rules: Rules, counts: TokenCounts, room: int, fixed: int, *, texts: TextCache
    ) -> None:
        most_digest = min(int(_DIGEST_SHARE * (room - fixed)), _MOST_DIGEST)
        self.cuts = Cuts(Digest(counts, texts, rules.has_failed, most_digest))
        self.size = fixed
        self.client = fixed
        self._rules = rules
        self._counts = counts
        self._texts = texts
        self._high = int(rules.high * room)
        self._low = int(rules.low * room)
        self._tokens: list[int] = []
        self._grouping = Grouping()
        self._last_user = -1
        self._successes: deque[Unit] = deque()
        self._failures: deque[Result] = deque()
        self._foldable: deque[Unit] = deque()

    def add(self, message: Message) -> None:
        role = message.role
        if role == "assistant" and self.size > self._high:
            self.settle()
        tokens = self._counts.of(message)
        self._tokens.append(tokens)
        self.size += tokens
        self.client += tokens
        if role == "user":
            self._last_user = len(self._tokens) - 1
        unit = self._grouping.add(message)
        exempt = self._rules.never_clear
        if unit is None or (exempt and any(call.name in exempt for call in unit.message.calls)):
            return
        self._foldable.append(unit)
        if unit.is_group:
            self._successes.append(unit)

    def settle(self) -> bool:
        """Cut the history if it is above the high watermark; return whether it was cut."""
        if self.size <= self._high:
            return False
        steps = (self._clear_successes, self._clear_failures, self._fold, self._trim)
        has_cut = [step() for step in steps]  # each step does nothing below its watermark
        self.cuts.epoch += any(has_cut)
        return any(has_cut)

    def _is_recent(self, unit: Unit) -> bool:
        if unit.is_group:
            return unit.number >= self._grouping.groups - self._rules.recent
        return unit.indexes[0] == self._last_user

    def _clear_successes(self) -> bool:
        has_cleared = False
        while self.size > self._low and self._successes:
            if self._is_recent(self._successes[0]):  # all units after it are recent, too
                break
            unit = self._successes.popleft()
            for result in unit.results:
                if self._rules.has_failed(result.message.text):
                    self._failures.append(result)
                else:
                    has_cleared |= self._clear(result)
        return has_cleared

    def _clear_failures(self) -> bool:
        has_cleared = False
        while self.size > self._low and self._failures:
            has_cleared |= self._clear(self._failures.popleft())
        return has_cleared

    def _clear(self, result: Result) -> bool:
        """Replace a result by its stub; return False if the stub is hardly shorter."""
        stub = self._texts.stub(result)
        tokens = self._counts.of(stub)
        if tokens > _WORTHWHILE * self._tokens[result.index]:
            return False
        self._resize(result.index, tokens)
        self.cuts.stubs[result.index] = stub
        self.cuts.trims.pop(result.index, None)
        return True

    def _fold(self) -> bool:
        """Replace the oldest units by the digest; exempt units (`_is_recent`) stay in the queue."""
        visited: list[Unit] = []
        folding: list[Unit] = []
        staying: list[Unit] = []
        digest = self.cuts.digest.copy()
        size, size_besides_digest = self.size, self.size - digest.size
        while size > self._low and self._foldable:
            unit = self._foldable.popleft()
            visited.append(unit)
            if self._is_recent(unit):
                staying.append(unit)
                continue
            folding.append(unit)
            size_besides_digest -= sum([self._tokens[index] for index in unit.indexes])
            digest.add(unit)
            size = size_besides_digest + digest.size
        if size >= self.size:  # a digest of few short units may be longer than the units
            self._foldable.extendleft(reversed(visited))
            return False
        self._foldable.extendleft(reversed(staying))
        for index in [index for unit in folding for index in unit.indexes]:
            self._tokens[index] = 0
            self.cuts.stubs.pop(index, None)
            self.cuts.trims.pop(index, None)
        self.cuts.folded += folding
        self.cuts.digest = digest
        self.size = size
        return True

    def _trim(self) -> bool:
        """Halve the largest remaining result repeatedly until the history fits."""
        if self.size <= self._high:
            return False
        results = [result for unit in self._foldable for result in unit.results]
        heap = [(-self._tokens[result.index], result.index, result) for result in results]
        heapify(heap)
        has_trimmed = False
        while self.size > self._high and heap and heap[0][0] <= -2 * _SHORTEST:
            tokens, index, result = heap[0]
            target = -tokens // 2
            if target <= _MOST_WRITTEN * self._high:
                has_trimmed |= self._shorten_to(result, target)
            # `tokens` is negative, so that the heap begins with the largest result
            heapreplace(heap, (tokens // 2, index, result))
        return has_trimmed

    def _shorten_to(self, result: Result, target: int) -> bool:
        """Replace a result by its start and its end, which have about `target` tokens.

        Returns False, and leaves the result unchanged, if this saves no tokens.
        """
        limit = target - self._counts.overhead
        share = limit / self._counts.of(result.message)
        text = head_and_tail(result.message.text, limit, share)
        trimmed = with_content(result.message, text)
        tokens = self._counts.of(trimmed)
        if tokens >= self._tokens[result.index]:
            return False
        self._resize(result.index, tokens)
        self.cuts.trims[result.index] = trimmed
        return True

    def _resize(self, index: int, tokens: int) -> None:
        self.size += tokens - self._tokens[index]
        self._tokens[index] = tokens


@dataclass(frozen=True, slots=True)
class Tiered:
    """Shortens old results first, then old steps; `texts` caches the short messages."""

    counts: TokenCounts
    window: Window
    rules: Rules
    texts: TextCache = field(default_factory=TextCache)

    def fit(self, messages: Messages, tools: tuple[Tool, ...], max_tokens: int | None) -> Fitted:
        budget = self.window.budget(max_tokens)
        fixed = self.counts.count_besides(tools)
        replay = HistoryReplay(self.rules, self.counts, budget.room, fixed, texts=self.texts)
        for message in messages:
            replay.add(message)
        is_new = replay.settle()
        check_size(replay.size, replay.client, budget)
        cuts = replay.cuts
        sent = _apply(cuts, messages) if cuts.epoch else messages
        size = self.counts.estimate(sent, tools)
        compacted = Compacted(
            cuts.tier,
            len(cuts.stubs),
            len(cuts.folded),
            cuts.epoch,
            size,
            replay.client if cuts.epoch else size,
            budget.window,
            is_new,
            budget.window - size if replay.size > budget.room else None,
        )
        return Fitted(sent, compacted=compacted)


def _apply(cuts: Cuts, messages: Messages) -> Messages:
    sent: list[Message | None] = list(messages)
    first = len(sent)
    for unit in cuts.folded:
        first = min(first, unit.indexes[0])
        for index in unit.indexes:
            sent[index] = None
    if cuts.folded:
        sent[first] = cuts.digest.message()
    for index, replacement in (*cuts.stubs.items(), *cuts.trims.items()):
        sent[index] = replacement
    return tuple([message for message in sent if message is not None])


@dataclass(frozen=True, slots=True)
class Sliding:
    """Drops the oldest units, except the last unit and the user's last message.

    Used only as a baseline in comparisons. Every turn drops further units, so the prompt begins
    differently each time and the engine cannot reuse its prompt cache.
    """

    counts: TokenCounts
    window: Window

    def fit(self, messages: Messages, tools: tuple[Tool, ...], max_tokens: int | None) -> Fitted:
        budget = self.window.budget(max_tokens)
        tokens = [self.counts.of(message) for message in messages]
        client = size = self.counts.count_besides(tools) + sum(tokens)
        dropped: list[Unit] = []
        users = [index for index, message in enumerate(messages) if message.role == "user"]
        for unit in list(units_of(messages))[:-1]:
            if size <= budget.room:
                break
            if unit.indexes[0] not in users[-1:]:
                size -= sum(tokens[index] for index in unit.indexes)
                dropped.append(unit)
        check_size(size, client, budget)
        indexes = {index for unit in dropped for index in unit.indexes}
        sent = tuple(message for index, message in enumerate(messages) if index not in indexes)
        count = len(dropped)
        compacted = Compacted(
            2 if indexes else 0, 0, count, count, size, client, budget.window, is_new=bool(indexes)
        )
        return Fitted(sent if indexes else messages, compacted=compacted)
