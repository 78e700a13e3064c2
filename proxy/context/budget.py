"""The token budget of a prompt: the window minus the reserve for the answer.

The window is that of one slot, as reported by the engine and never assumed; a mode may narrow it.
"""

from typing import Literal, TypeAlias

import msgspec

from proxy.errors import ContextOverflow

NUDGES = 288  # tokens that three attempts may append
LEAST_ANSWER = 64

_ANSWER_SHARE = 0.25
# Agents send 32,000 and more as a mere ceiling, which would leave no room for the prompt.
_MOST_RESERVED = 0.5

# What sets the window: the engine, the operator's limit, all of the slot, or half of it.
BudgetMode: TypeAlias = Literal["backend", "manual", "full", "fast"]


class TokenBudget(msgspec.Struct, frozen=True):
    """A window and the reserve for the answer, in tokens.

    `doubt` is the factor by which a prompt may exceed its counted tokens.
    """

    window: int
    reserve: int
    doubt: float = 1.0

    @property
    def room(self) -> int:
        return int(max(0, self.window - self.reserve) / self.doubt)

    @property
    def most(self) -> int:
        """The limit for a prompt that cannot be shortened: it leaves the shortest answer."""
        return max(self.room, int((self.window - LEAST_ANSWER) / self.doubt))


class Window(msgspec.Struct, frozen=True):
    """The window of one `slot` in tokens, and the part of it that is used.

    The size of a slot is fixed when the engine starts: mode "full" uses all of it, "fast" half. The
    operator's `limit` narrows every mode but "backend".
    """

    slot: int
    mode: BudgetMode = "backend"
    limit: int | None = None
    doubt: float = 1.0

    @property
    def size(self) -> int:
        """The used window, at most that of the slot."""
        wanted = self.slot // 2 if self.mode == "fast" else self.slot
        if self.limit is None or self.mode == "backend":
            return wanted
        return min(wanted, self.limit)

    def budget(self, max_tokens: int | None) -> TokenBudget:
        """Reserve `max_tokens` for the answer, at most half of the window, and room for nudges."""
        answer = max_tokens or int(_ANSWER_SHARE * self.size)
        reserve = min(answer, int(_MOST_RESERVED * self.size)) + NUDGES
        return TokenBudget(self.size, reserve, self.doubt)


def check_size(size: int, client: int, budget: TokenBudget) -> None:
    """Raise `ContextOverflow` if a prompt of `size` tokens leaves no room for an answer at all.

    A prompt that cannot be shortened may use the reserve of the answer, because the engine accepts
    it and a refusal would not help the client. `client` is the size as the client sent it.
    """
    if size > budget.most:
        too_long = f"the prompt has about {client} tokens, of which {size} cannot be removed"
        raise ContextOverflow(
            f"{too_long}. Please shorten the conversation.", client, budget.window
        )
