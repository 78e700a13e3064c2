"""Computes for each delta which delta releases it to the client; it runs a turn without a server.

At any time, the client has a prefix of the final reply. Therefore, a delta may have to wait until
the model has sent later deltas, no matter how fast Temper is. Example of deltas and their releases:

    index      0      1           2          3
    delta      "I'll" " check"    " it."     the end of the reply
    released   by 0   by 3        by 3

This module passes the deltas of a reply to a turn one by one, and records the releases. Pure
functions.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from functools import cache

from benchmarks.healthy.replies import KINDS, Delta, ReplyChoice
from benchmarks.healthy.request import body_of
from proxy.conversation.replies import (
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ToolCallArgumentsDelta,
    ToolCalled,
    ToolCallStarted,
)
from proxy.dialects.openai_chat.decode import decode_request
from proxy.inference.plan import Policy
from proxy.inference.preparation import begin, plan_request


@cache
def releases(kind: str, number: int) -> tuple[int, ...]:
    """Return for each delta the index of the delta that releases it.

    The index of the end of the reply is the number of deltas. No answer tool is offered, which is
    the default for a client that streams.
    """
    reply = KINDS[kind](number)
    request = decode_request(body_of(ReplyChoice(kind, number)))
    turn = begin(plan_request(request, Policy()), lambda: "call", lambda: False)
    turn.next_request()
    waiting = _Waiting(reply.deltas)
    for index, event in enumerate(map(_upstream_event, reply.deltas)):
        waiting.release(turn.receive(event), index)
    waiting.release(turn.receive(ReplyFinished(reply.reason)), len(reply.deltas))
    return tuple(waiting.released_at)


class _Waiting:
    """The deltas of a reply that are not released yet, by channel."""

    def __init__(self, deltas: tuple[Delta, ...]) -> None:
        self.released_at = [len(deltas)] * len(deltas)
        self._shown: dict[str, int] = {}
        self._waiting: dict[str, deque[tuple[int, int]]] = {}
        ends: dict[str, int] = {}
        for index, delta in enumerate(deltas):
            ends[delta.channel] = ends.get(delta.channel, 0) + len(delta.text)
            self._waiting.setdefault(delta.channel, deque()).append((index, ends[delta.channel]))

    def release(self, events: Iterable[ReplyEvent], now: int) -> None:
        """Record the events that the delta with index `now` has released."""
        for event in events:
            for channel, text in _channel_texts(event):
                self._shown[channel] = self._shown.get(channel, 0) + len(text)
                waiting = self._waiting.get(channel, ())
                while waiting and waiting[0][1] <= self._shown[channel]:
                    self.released_at[waiting.popleft()[0]] = now


def _upstream_event(delta: Delta) -> ReplyEvent:
    """Return the backend's event for a delta."""
    channel, _, number = delta.channel.partition(" ")
    if channel == "name":
        return ToolCallStarted(int(number), f"call_{number}", delta.text)
    if channel == "arguments":
        return ToolCallArgumentsDelta(int(number), delta.text)
    return TextDelta(delta.text)


def _channel_texts(event: ReplyEvent) -> Iterator[tuple[str, str]]:
    """Yield the channels that an event adds to, and the added text."""
    match event:
        case TextDelta(text):
            yield "text", text
        case ToolCallStarted(index, _, name):
            yield f"name {index}", name
        case ToolCallArgumentsDelta(index, text):
            yield f"arguments {index}", text
        case ToolCalled(index, call):
            yield f"name {index}", call.name
            yield f"arguments {index}", call.arguments
        case _:
            pass
