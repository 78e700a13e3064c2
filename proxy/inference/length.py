"""The limit of a reply: an engine that does not stop by itself is stopped here.

The exact token count is not known, so two estimates are used. Apart from engines that cut tokens
up, no engine sends more pieces than tokens, and hardly any text has more than eight characters per
token. A reply counts as too long only if both estimates exceed the limit.

`ReplyLength` decides; `backends.learning` then ends the reply. A reply within its limit that makes
no progress is ended by `guardrails.reading`.
"""

import math
from collections.abc import Sequence
from operator import attrgetter

from proxy.conversation import json, replies
from proxy.conversation.endings import LENGTH, STOP

_ENDS = (replies.ReplyFinished, replies.ReplyUnreadable)
_CHARACTERS = 8  # per token, more than nearly any text has
_USUAL_CHARACTERS = 4  # per token of English text
_MOST_BLANKS = 256  # between two parts of a call; grammars for JSON allow any number
_CLOSED = "}"
_text_of = attrgetter("text")


class ReplyLength:
    """Measures one reply, which may have `most` tokens; None if no limit is known.

    A reply that `is_constrained` to be a call is also too long once it contains only white space
    for too long: a grammar allows that for ever. All that may follow a call's arguments is the end
    of the object around them.
    """

    def __init__(self, most: int | None, *, is_constrained: bool = False) -> None:
        self._most = most
        self._is_constrained = is_constrained
        self._blanks = 0
        self._texts: list[str] = []
        self._pieces = 0
        self._characters = 0

    @property
    def tokens(self) -> int:
        """An estimate of the tokens of the reply so far."""
        return max(self._pieces, math.ceil(self._characters / _USUAL_CHARACTERS))

    def exceeds(self, batch: Sequence[replies.ReplyEvent]) -> bool:
        """Count the next events; return whether the reply is too long and still not over."""
        if self._is_constrained and self._drifts_off(batch):
            return not isinstance(batch[-1], _ENDS)
        for event in batch:
            if isinstance(event, replies.DELTAS):
                self._pieces += 1
                self._characters += len(event.text)
        if self._most is None:
            return False
        is_beyond = self._pieces > self._most and self._characters > self._most * _CHARACTERS
        return is_beyond and not isinstance(batch[-1], _ENDS)

    def _drifts_off(self, batch: Sequence[replies.ReplyEvent]) -> bool:
        text = "".join(event.text for event in batch if isinstance(event, replies.TextDelta))
        self._texts.append(text)
        content = text.rstrip()
        self._blanks = len(text) - len(content) + (0 if content else self._blanks)
        return self._blanks > _MOST_BLANKS

    def end(self, batch: Sequence[replies.ReplyEvent]) -> Sequence[replies.ReplyEvent]:
        """Return the last batch of a reply that is cut off.

        A call that only lacks its last brace is complete: the schema lets nothing else follow.
        """
        events = [event for event in batch if not isinstance(event, replies.ReplyFinished)]
        if not self._is_constrained or not self._is_nearly_closed():
            return (*events, replies.ReplyFinished(LENGTH))
        index = next(
            (at for at, event in enumerate(events) if isinstance(event, replies.UsageReported)),
            len(events),
        )
        events.insert(index, replies.TextDelta(_CLOSED))
        return (*events, replies.ReplyFinished(STOP))

    def _is_nearly_closed(self) -> bool:
        try:
            return isinstance(json.parse("".join((*self._texts, _CLOSED))), dict)
        except ValueError:
            return False

    def bound(self, sink: replies.EventSink | None) -> replies.EventSink | None:
        """Return a sink that takes the same deltas until there are too many."""
        most = math.inf if self._most is None else self._most
        if self._is_constrained or sink is None:
            return None

        def take(batch: Sequence[replies.ReplyEvent]) -> bool:
            if self._pieces + len(batch) > most or not sink(batch):
                return False
            self._pieces += len(batch)
            self._characters += sum(map(len, map(_text_of, batch)))
            return True

        return take
