"""Limits the length of a reply, for engines that do not stop by themselves.

The exact token count is not known, so two lower bounds are used. The first is the number of deltas,
because most engines send at most one per token. The second is an eighth of the number of
characters, because hardly any text has more than eight characters per token. A reply is too long
only if both bounds exceed the limit.

`ReplyLength` finds that a reply is too long, and `backends.learning` then ends the reply. A reply
within its limit that makes no progress is ended by `guardrails.reading`.
"""

import math
from collections.abc import Sequence
from operator import attrgetter

from proxy.conversation import json, replies
from proxy.conversation.endings import LENGTH, STOP

_ENDS = (replies.ReplyFinished, replies.ReplyUnreadable)
_MOST_CHARACTERS_PER_TOKEN = 8  # hardly any text has more characters per token
_USUAL_CHARACTERS_PER_TOKEN = 4  # in English text
_MOST_BLANKS = 256  # consecutive characters of white space, which grammars for JSON do not limit
_CLOSED = "}"
_text_of = attrgetter("text")


class ReplyLength:
    """Measures one reply, which may have `most` tokens. No limit is known if `most` is None.

    If `is_constrained`, a grammar restricts the reply to a call. A constrained reply also counts as
    too long after a long run of white space, because a grammar allows any amount of white space. If
    the model writes only white space after the arguments of the call, `end` adds the missing brace.
    """

    def __init__(self, most: int | None, *, is_constrained: bool = False) -> None:
        self._most = most
        self._is_constrained = is_constrained
        self._blanks = 0
        self._texts: list[str] = []
        self._deltas = 0
        self._characters = 0

    @property
    def tokens(self) -> int:
        """An estimate of the tokens of the reply so far."""
        return max(self._deltas, math.ceil(self._characters / _USUAL_CHARACTERS_PER_TOKEN))

    def exceeds(self, batch: Sequence[replies.ReplyEvent]) -> bool:
        """Count the next events; return whether the reply is too long and has not ended."""
        if self._is_constrained and self._has_too_many_blanks(batch):
            return not isinstance(batch[-1], _ENDS)
        for event in batch:
            if isinstance(event, replies.DELTAS):
                self._deltas += 1
                self._characters += len(event.text)
        if self._most is None:
            return False
        most_characters = self._most * _MOST_CHARACTERS_PER_TOKEN
        is_beyond = self._deltas > self._most and self._characters > most_characters
        return is_beyond and not isinstance(batch[-1], _ENDS)

    def _has_too_many_blanks(self, batch: Sequence[replies.ReplyEvent]) -> bool:
        text = "".join(event.text for event in batch if isinstance(event, replies.TextDelta))
        self._texts.append(text)
        content = text.rstrip()
        self._blanks = len(text) - len(content) + (0 if content else self._blanks)
        return self._blanks > _MOST_BLANKS

    def end(self, batch: Sequence[replies.ReplyEvent]) -> Sequence[replies.ReplyEvent]:
        """Return the last batch of a reply that is cut off.

        A constrained call that lacks only its last brace is completed.
        """
        events = [event for event in batch if not isinstance(event, replies.ReplyFinished)]
        if not self._is_constrained or not self._is_nearly_closed():
            return (*events, replies.ReplyFinished(LENGTH))
        index = next(
            (
                index
                for index, event in enumerate(events)
                if isinstance(event, replies.UsageReported)
            ),
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
        """Wrap `sink` to count the deltas, and to reject deltas beyond the limit.

        Returns None without a sink, and for a constrained reply, whose text `exceeds` examines.
        """
        most = math.inf if self._most is None else self._most
        if self._is_constrained or sink is None:
            return None

        def take(batch: Sequence[replies.ReplyEvent]) -> bool:
            if self._deltas + len(batch) > most or not sink(batch):
                return False
            self._deltas += len(batch)
            self._characters += sum(map(len, map(_text_of, batch)))
            return True

        return take
