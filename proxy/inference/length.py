"""How long a reply may become: an engine that does not know when to stop is stopped here.

Tokens are counted by what is at hand. No engine sends more pieces than tokens but one that cuts
them up, and no text has many more than eight characters a token: a reply that is beyond its limit
by both measures is beyond it, and one that keeps to it never seems to be.
"""

from collections.abc import Sequence

from proxy.conversation import json, replies

_ENDS = (replies.ReplyFinished, replies.ReplyUnreadable)
_CHARACTERS = 8
_MOST_BLANKS = 256
_CLOSED = "}"
CUT_OFF = "length"


class ReplyLength:
    """Adds one reply up, which may have `most` tokens; None where nobody knows a bound.

    One that `is_constrained` to be a call may drift off into white space: a grammar allows that for
    ever. All that may follow its arguments is the end of the object that they stand in.
    """

    def __init__(self, most: int | None, *, is_constrained: bool = False) -> None:
        self._most = most
        self._is_constrained = is_constrained
        self._blanks = 0
        self._texts: list[str] = []
        self._pieces = 0
        self._characters = 0

    def exceeds(self, batch: Sequence[replies.ReplyEvent]) -> bool:
        """Take what came next; reports whether it is too much and still not the end."""
        if self._is_constrained and self._drifts_off(batch):
            return not isinstance(batch[-1], _ENDS)
        if self._most is None:
            return False
        self._count(batch)
        is_beyond = self._pieces > self._most and self._characters > self._most * _CHARACTERS
        return is_beyond and not isinstance(batch[-1], _ENDS)

    def _count(self, batch: Sequence[replies.ReplyEvent]) -> None:
        for event in batch:
            if isinstance(event, replies.DELTAS):
                self._pieces += 1
                self._characters += len(event.text)

    def _drifts_off(self, batch: Sequence[replies.ReplyEvent]) -> bool:
        text = "".join(event.text for event in batch if isinstance(event, replies.TextDelta))
        self._texts.append(text)
        said = text.rstrip()
        self._blanks = len(text) - len(said) + (0 if said else self._blanks)
        return self._blanks > _MOST_BLANKS

    def end(self, batch: Sequence[replies.ReplyEvent]) -> Sequence[replies.ReplyEvent]:
        """Return the last batch of a reply that is cut off.

        A call that only lacks its last brace is complete: the schema lets nothing else follow.
        """
        events = [event for event in batch if not isinstance(event, replies.ReplyFinished)]
        if not self._is_constrained or not self._is_nearly_closed():
            return (*events, replies.ReplyFinished(CUT_OFF))
        place = next(
            (at for at, event in enumerate(events) if isinstance(event, replies.UsageReported)),
            len(events),
        )
        events.insert(place, replies.TextDelta(_CLOSED))
        return (*events, replies.ReplyFinished("stop"))

    def _is_nearly_closed(self) -> bool:
        try:
            return isinstance(json.parse("".join((*self._texts, _CLOSED))), dict)
        except ValueError:
            return False

    def bound(self, sink: replies.EventSink | None) -> replies.EventSink | None:
        """Return a sink that takes the same but what may be too much."""
        most = self._most
        if self._is_constrained:
            return None
        if most is None or sink is None:
            return sink

        def take(batch: Sequence[replies.ReplyEvent]) -> bool:
            if self._pieces + len(batch) > most or not sink(batch):
                return False
            self._count(batch)
            return True

        return take
