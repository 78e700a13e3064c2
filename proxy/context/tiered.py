"""The strategy `tiered`: give up old results first, then old steps, at cuts that stay in place."""

from dataclasses import dataclass, field

from proxy.context.budget import Window
from proxy.context.compaction import Counts, Fitted
from proxy.context.overflow import check_size
from proxy.context.replay import Cuts, Replay, Rules
from proxy.context.text_cache import TextCache
from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool
from proxy.facts import Compacted


@dataclass(frozen=True, slots=True)
class Tiered:
    """Fits conversations into a window by the rules; `texts` spares writing things again."""

    counts: Counts
    window: Window
    rules: Rules
    texts: TextCache = field(default_factory=TextCache)

    def fit(
        self, messages: tuple[Message, ...], tools: tuple[Tool, ...], max_tokens: int | None
    ) -> Fitted:
        """Return the messages that leave room for `max_tokens` of answer.

        Raises `ContextOverflow` if no allowed step makes them fit.
        """
        budget = self.window.budget(max_tokens)
        fixed = self.counts.fixed(tools)
        replay = Replay(self.rules, self.counts, budget.room, fixed, texts=self.texts)
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


def _apply(cuts: Cuts, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Write the history as the cuts have left it."""
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
