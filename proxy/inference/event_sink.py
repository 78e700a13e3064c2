"""The client as a turn sees it that brings content to it without waiting for anybody."""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

from proxy.conversation.replies import EventSink, ReplyEvent
from proxy.inference.turn import Turn


class Audience(Protocol):
    """A client that may be there and listening."""

    @property
    def is_ready(self) -> bool:
        """Whether it gets at once what it is shown, behind everything that was shown before."""

    def show(self, events: Sequence[ReplyEvent], /) -> None:
        """Show it events while it is ready."""


def sink_to(audience: Audience, turn: Turn) -> EventSink:
    """Return what takes content of a turn's reply as far as the audience is ready for it."""
    return partial(_is_taken, audience, turn)


def _is_taken(audience: Audience, turn: Turn, content: Sequence[ReplyEvent]) -> bool:
    if not audience.is_ready:
        return False
    shown: list[ReplyEvent] = []
    turn.receive_all(content, shown)
    if shown:
        audience.show(shown)
    return True
