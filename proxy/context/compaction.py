"""The contract of everything that fits a conversation into the window, and the strategy `none`.

Stateless and pure: the same history always gives the same result, so that the prompt prefix, and
with it the backend's cache, survives from turn to turn.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from proxy.conversation.messages import Message
from proxy.conversation.tools import Tool
from proxy.errors import ContextOverflow
from proxy.facts import Compacted, Fact


class Fitted(msgspec.Struct, frozen=True):
    """The messages to send, and what was done to make them fit; None where nobody counted."""

    messages: tuple[Message, ...]
    facts: tuple[Fact, ...] = ()
    compacted: Compacted | None = None


class Compaction(Protocol):
    """A strategy; it may shorten old messages but never touches tools."""

    def fit(
        self, messages: tuple[Message, ...], tools: tuple[Tool, ...], max_tokens: int | None
    ) -> Fitted:
        """Return the messages that leave room for `max_tokens` of answer.

        Raises `ContextOverflow` if no allowed step makes them fit.
        """


class TokenCounts(Protocol):
    """How many tokens things cost; stable, or cuts move and the cache is lost."""

    @property
    def overhead(self) -> int:
        """What a message costs beyond its own words."""

    def of(self, message: Message) -> int:
        """Count a message, its overhead included."""

    def count_besides(self, tools: tuple[Tool, ...]) -> int:
        """Count what a prompt holds besides messages."""

    def estimate(self, messages: Sequence[Message], tools: tuple[Tool, ...]) -> int:
        """Count a prompt as exactly as it is known; for telling, not for deciding."""


class Unchanged(msgspec.Struct, frozen=True):
    """What every strategy does to a prompt of so many tokens that is far from its limit."""

    size: int
    window: int

    def fit(
        self, messages: tuple[Message, ...], tools: tuple[Tool, ...], max_tokens: int | None
    ) -> Fitted:
        return Fitted(messages, compacted=Compacted(0, 0, 0, 0, self.size, self.size, self.window))


class AlreadyFitted(msgspec.Struct, frozen=True):
    """What a strategy has already made of the conversation."""

    fitted: Fitted

    def fit(
        self, messages: tuple[Message, ...], tools: tuple[Tool, ...], max_tokens: int | None
    ) -> Fitted:
        return self.fitted


class NoCompaction:
    """The strategy `none`: every message is sent as it came."""

    def fit(
        self,
        messages: tuple[Message, ...],
        tools: tuple[Tool, ...],
        max_tokens: int | None,
    ) -> Fitted:
        return Fitted(messages)


class Reported:
    """Counts and reports what a strategy would have done, and sends every message as it came."""

    def __init__(self, strategy: Compaction) -> None:
        self._strategy = strategy

    def fit(
        self,
        messages: tuple[Message, ...],
        tools: tuple[Tool, ...],
        max_tokens: int | None,
    ) -> Fitted:
        """Return the messages unchanged, with the strategy's account of them."""
        try:
            account = self._strategy.fit(messages, tools, max_tokens).compacted
        except ContextOverflow as overflow:
            tokens = overflow.prompt_tokens or 0
            account = Compacted(4, 0, 0, 0, tokens, tokens, overflow.window or 0)
        if account is None:
            return Fitted(messages)
        return Fitted(messages, compacted=replace(account, sent=account.client))
