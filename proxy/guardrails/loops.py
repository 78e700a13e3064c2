"""Notices a model that goes in circles: the same call with the same result over and over."""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.conversation.json import JsonObject
from proxy.guardrails.transcript import CompletedCall

MOST_REPEATS = 3
MOST_ROUNDS = 50


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
    if times < limit or last.arguments is None:
        return None
    return Loop(last.name, last.arguments, times)
