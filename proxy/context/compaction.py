"""The interface of the strategies that fit a conversation into the window.

Strategies are pure: the same history always gives the same result. So the prompt of the next turn
begins with the same messages, and the engine can reuse its prompt cache.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec.structs import replace

from proxy.context.budget import Window
from proxy.conversation.messages import Message, Messages
from proxy.conversation.tools import Tool
from proxy.errors import ContextOverflow
from proxy.facts import Compacted, Fact


class Fitted(msgspec.Struct, frozen=True):
    """The messages to send; `compacted` describes the cuts, None if no tokens were counted."""

    messages: Messages
    facts: tuple[Fact, ...] = ()
    compacted: Compacted | None = None


class Compaction(Protocol):
    """A strategy; it may shorten old messages but never touches tools."""

    def fit(self, messages: Messages, tools: tuple[Tool, ...], max_tokens: int | None) -> Fitted:
        """Leave space for `max_tokens` of answer; raises `ContextOverflow` if impossible."""


class TokenCounts(Protocol):
    """Token counts; they must not change between turns, because cuts depend on them."""

    @property
    def overhead(self) -> int:
        """The tokens of a message in addition to its text."""

    def of(self, message: Message) -> int:
        """Count a message, including its overhead."""

    def count_besides(self, tools: tuple[Tool, ...]) -> int:
        """Count the tokens of a prompt that are not in its messages (tools and template)."""

    def estimate(self, messages: Sequence[Message], tools: tuple[Tool, ...]) -> int:
        """Count a prompt as exactly as possible; used only for reports, never to decide on cuts."""


def leave_unchanged(messages: Messages, size: int, window: int) -> Fitted:
    """Return the result for a prompt of `size` tokens that needs no cuts."""
    return Fitted(messages, compacted=Compacted(0, 0, 0, 0, size, size, window))


class Unshortened(msgspec.Struct, frozen=True):
    """Sends every message unchanged; a prompt that does not fit is an error."""

    counts: TokenCounts
    window: Window

    def fit(self, messages: Messages, tools: tuple[Tool, ...], max_tokens: int | None) -> Fitted:
        budget = self.window.budget(max_tokens)
        size = self.counts.estimate(messages, tools)
        if size > budget.most:
            problem = f"the prompt has {size} tokens, and compaction is disabled"
            remedy = "Please shorten the conversation (context.strategy is 'none')."
            raise ContextOverflow(f"{problem}. {remedy}", size, budget.window)
        return leave_unchanged(messages, size, budget.window)


class Reported(msgspec.Struct, frozen=True):
    """Reports the cuts that a strategy would make and sends every message unchanged."""

    strategy: Compaction

    def fit(self, messages: Messages, tools: tuple[Tool, ...], max_tokens: int | None) -> Fitted:
        try:
            account = self.strategy.fit(messages, tools, max_tokens).compacted
        except ContextOverflow as overflow:
            tokens = overflow.prompt_tokens or 0
            account = Compacted(4, 0, 0, 0, tokens, tokens, overflow.window or 0)
        if account is not None:
            account = replace(account, sent=account.client)
        return Fitted(messages, compacted=account)
