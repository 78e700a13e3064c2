"""The strategies: `Tiered` gives up old results first, then old steps, at cuts that stay in place.

`Sliding` is there for comparison: it drops the oldest steps, and moves its cut on every turn.
"""

from dataclasses import dataclass, field

from proxy.context.budget import Window, check_size
from proxy.context.compaction import Fitted, TokenCounts
from proxy.context.replay import Cuts, HistoryReplay, Rules
from proxy.context.shortening import TextCache
from proxy.context.units import Unit, units_of
from proxy.conversation.messages import Message, Messages
from proxy.conversation.tools import Tool
from proxy.facts import Compacted


@dataclass(frozen=True, slots=True)
class Tiered:
    """Fits conversations into a window by the rules; `texts` spares writing things again."""

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
        first = min(first, unit.places[0])
        for place in unit.places:
            sent[place] = None
    if cuts.folded:
        sent[first] = cuts.digest.message()
    for place, shorter in (*cuts.stubs.items(), *cuts.trims.items()):
        sent[place] = shorter
    return tuple([message for message in sent if message is not None])


@dataclass(frozen=True, slots=True)
class Sliding:
    """Drops whole steps from the front, and nothing of the last one or of the user's question."""

    counts: TokenCounts
    window: Window

    def fit(self, messages: Messages, tools: tuple[Tool, ...], max_tokens: int | None) -> Fitted:
        budget = self.window.budget(max_tokens)
        tokens = [self.counts.of(message) for message in messages]
        client = size = self.counts.count_besides(tools) + sum(tokens)
        dropped: list[Unit] = []
        users = [place for place, message in enumerate(messages) if message.role == "user"]
        for unit in list(units_of(messages))[:-1]:
            if size <= budget.room:
                break
            if unit.places[0] not in users[-1:]:
                size -= sum(tokens[place] for place in unit.places)
                dropped.append(unit)
        check_size(size, client, budget)
        gone = {place for unit in dropped for place in unit.places}
        sent = tuple(message for place, message in enumerate(messages) if place not in gone)
        count = len(dropped)
        compacted = Compacted(
            2 if gone else 0, 0, count, count, size, client, budget.window, is_new=bool(gone)
        )
        return Fitted(sent if gone else messages, compacted=compacted)
