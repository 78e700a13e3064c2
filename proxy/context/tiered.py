"""The strategy `tiered`: give up old results first, then old steps, at cuts that stay in place."""

from dataclasses import dataclass, field

from proxy.context.budget import Window
from proxy.context.compaction import Counts, Fitted
from proxy.context.digest import digest
from proxy.context.overflow import check_size
from proxy.context.replay import Cuts, Replay, Rules
from proxy.context.shortening import head_and_tail, stub, with_content
from proxy.context.units import Result
from proxy.context.written import Written
from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool
from proxy.facts import Compacted


@dataclass(frozen=True, slots=True)
class Tiered:
    """Fits conversations into a window by the rules; `written` spares writing things again."""

    counts: Counts
    window: Window
    rules: Rules
    written: Written = field(default_factory=Written)

    def fit(
        self, messages: tuple[Message, ...], tools: tuple[Tool, ...], max_tokens: int | None
    ) -> Fitted:
        """Return the messages that leave room for `max_tokens` of answer.

        Raises `ContextOverflow` if no allowed step makes them fit.
        """
        budget = self.window.budget(max_tokens)
        replay = Replay(self.rules, self.counts, budget.room, self.counts.fixed(tools))
        for message in messages:
            replay.add(message)
        is_new = replay.settle()
        check_size(replay.size, replay.client, budget)
        cuts = replay.cuts
        sent = self._apply(cuts, messages) if cuts.epoch else messages
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

    def _apply(self, cuts: Cuts, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Write the history as the cuts have left it."""
        sent: list[Message | None] = list(messages)
        first = len(sent)
        for unit in cuts.folded:
            first = min(first, unit.places[0])
            for place in unit.places:
                sent[place] = None
        if cuts.folded:
            sent[first] = self._digest(cuts, messages)
        for place, (result, limit) in cuts.stubs.items():
            sent[place] = self._stub(messages[place], result, limit)
        for place, (result, limit) in cuts.trims.items():
            share = limit / self.counts.of(messages[place])
            text = head_and_tail(result.text, limit, share)
            sent[place] = with_content(messages[place], text)
        return tuple([message for message in sent if message is not None])

    def _digest(self, cuts: Cuts, messages: tuple[Message, ...]) -> Message:
        limit = cuts.digest - self.counts.overhead
        folded = tuple([messages[place].source for unit in cuts.folded for place in unit.places])

        def write() -> Message:
            return digest(cuts.folded, limit, self.rules.has_failed)

        return self.written.get(hash((limit, folded)), write)

    def _stub(self, message: Message, result: Result, limit: int) -> Message:
        def write() -> Message:
            return with_content(message, stub(result.call, result.text, limit))

        key = hash((limit, message.source, result.call.name, result.call.arguments))
        return self.written.get(key, write)
