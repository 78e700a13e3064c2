"""How long a reply may become: an engine that does not know when to stop is stopped here.

Tokens are counted by what is at hand. No engine sends more pieces than tokens but one that cuts
them up, and no text has many more than eight characters a token: a reply that is beyond its limit
by both measures is beyond it, and one that keeps to it never seems to be.
"""

from collections.abc import Sequence

from proxy.conversation.replies import (
    Outlet,
    ReasoningDelta,
    ReplyEvent,
    ReplyFinished,
    ReplyUnreadable,
    TextDelta,
    ToolCallArgumentsDelta,
)

_CONTENT = (TextDelta, ReasoningDelta, ToolCallArgumentsDelta)
_ENDS = (ReplyFinished, ReplyUnreadable)
_CHARACTERS = 8


class ReplyLength:
    """Adds one reply up, which may have `most` tokens; None where nobody knows a bound."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._pieces = 0
        self._characters = 0

    def exceeds(self, batch: Sequence[ReplyEvent]) -> bool:
        """Take what came next; tells whether it is too much and still not the end."""
        if self._most is None:
            return False
        texts = [event.text for event in batch if isinstance(event, _CONTENT)]
        self._pieces += len(texts)
        self._characters += sum(map(len, texts))
        return (
            self._pieces > self._most
            and self._characters > self._most * _CHARACTERS
            and not isinstance(batch[-1], _ENDS)
        )

    def bounded(self, outlet: Outlet | None) -> Outlet | None:
        """Return an outlet that takes the same but what may be too much."""
        most = self._most
        if most is None or outlet is None:
            return outlet

        def take(batch: Sequence[ReplyEvent]) -> bool:
            if self._pieces + len(batch) > most or not outlet(batch):
                return False
            self.exceeds(batch)
            return True

        return take
