"""The strategy `sliding`: drop the oldest steps, for comparison; it moves its cut on every turn."""

from dataclasses import dataclass

from proxy.context.budget import Window
from proxy.context.compaction import Counts, Fitted
from proxy.context.overflow import check_size
from proxy.context.units import Unit, units_of
from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool
from proxy.facts import Compacted


@dataclass(frozen=True, slots=True)
class Sliding:
    """Drops whole steps from the front, and nothing of the last one or of the user's question."""

    counts: Counts
    window: Window

    def fit(
        self, messages: tuple[Message, ...], tools: tuple[Tool, ...], max_tokens: int | None
    ) -> Fitted:
        """Return the messages that leave room for `max_tokens` of answer.

        Raises `ContextOverflow` if dropping old steps does not make them fit.
        """
        budget = self.window.budget(max_tokens)
        tokens = [self.counts.of(message) for message in messages]
        client = size = self.counts.fixed(tools) + sum(tokens)
        dropped: list[Unit] = []
        for unit in _droppable(messages):
            if size <= budget.room:
                break
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


def _droppable(messages: tuple[Message, ...]) -> list[Unit]:
    """List the steps before the last one, without the last message of the user."""
    users = [place for place, message in enumerate(messages) if message.role == "user"]
    last = max(users, default=-1)
    return [unit for unit in list(units_of(messages))[:-1] if unit.places[0] != last]
