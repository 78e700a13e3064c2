"""Notices a model that goes in circles: the same call with the same result over and over.

What is repeated on purpose is no circle: the user spoke in between, the result was another one, or
it says that something is still going on. Nor are many rounds, as long as they find something new.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.conversation.json import JsonObject
from proxy.guardrails.transcript import CompletedCall, Rounds, is_pending

MOST_REPEATS = 3
MOST_ROUNDS = 50
MOST_FAILURES = 3
_MOST_IDLE = 5


@dataclass(frozen=True, slots=True)
class Loop:
    """A call that was made `times` times in a row, each time with the same result."""

    name: str
    arguments: JsonObject
    times: int


def loop_at_end(completed: Sequence[CompletedCall], limit: int = MOST_REPEATS) -> Loop | None:
    """Return the loop that a conversation ends in; one shorter than `limit` is none yet."""
    if not completed:
        return None
    last = completed[-1]
    times = 0
    for call in reversed(completed):
        if call != last:
            break
        times += 1
    if times < limit or last.arguments is None or is_pending(last.result):
        return None
    return Loop(last.name, last.arguments, times)


def is_stuck(rounds: Rounds, most: int = MOST_ROUNDS) -> bool:
    """Return whether there were `most` rounds since the user spoke, and the last led nowhere."""
    return rounds.made >= most and rounds.idle >= max(1, min(_MOST_IDLE, most // 10))
