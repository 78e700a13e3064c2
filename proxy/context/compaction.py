"""Fits a conversation into the window. For now it only passes everything on.

Stateless and pure: the same history always gives the same result, so that the prompt prefix, and
with it the backend's cache, survives from turn to turn.
"""

from dataclasses import dataclass
from typing import Protocol

from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool
from proxy.facts import Fact


@dataclass(frozen=True, slots=True)
class Fitted:
    """The messages to send, and what was done to make them fit."""

    messages: tuple[Message, ...]
    facts: tuple[Fact, ...] = ()


class Compaction(Protocol):
    """A strategy; it may shorten old messages but never touches tools."""

    def fit(
        self, messages: tuple[Message, ...], tools: tuple[Tool, ...], max_tokens: int | None
    ) -> Fitted:
        """Return the messages that leave room for `max_tokens` of answer.

        Raises `ContextOverflow` if no allowed step makes them fit.
        """


class NoCompaction:
    """The strategy `none`: every message is sent as it came."""

    def fit(
        self,
        messages: tuple[Message, ...],
        tools: tuple[Tool, ...],
        max_tokens: int | None,
    ) -> Fitted:
        """Return the messages unchanged."""
        return Fitted(messages)
