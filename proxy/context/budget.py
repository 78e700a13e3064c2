"""The token budget of a prompt: the window minus the reserve for the answer.

The window is the context window of one slot, as the engine reports it; each slot of an engine
processes one request at a time. The budget mode and the operator's limit may reduce the window.
"""

from typing import Literal, TypeAlias

import msgspec

from proxy.errors import ContextOverflow

NUDGES = 288  # tokens of the messages (nudges) that rejected replies in three attempts may add
LEAST_ANSWER = 64  # tokens that a prompt must leave for the answer

_ANSWER_SHARE = 0.25  # share of the window that is reserved if the client sends no `max_tokens`
# The largest share of the window that is reserved: agents send a `max_tokens` of 32,000 and more,
# although their answers are short.
_MOST_RESERVED = 0.5

# The window that prompts may use. "backend": the size that the engine reports; "manual": at most
# the operator's limit; "full": the whole slot; "fast": half of the slot.
BudgetMode: TypeAlias = Literal["backend", "manual", "full", "fast"]


class TokenBudget(msgspec.Struct, frozen=True):
    """A window and the reserve for the answer, in tokens.

    `count_error` is the factor by which a prompt may exceed its counted tokens.
    """

    window: int
    reserve: int
    count_error: float = 1.0

    @property
    def room(self) -> int:
        """The limit of a prompt in counted tokens; its true number of tokens may be larger."""
        return int(max(0, self.window - self.reserve) / self.count_error)

    @property
    def most(self) -> int:
        """The limit of a prompt that cannot be shortened, in counted tokens.

        Such a prompt leaves `LEAST_ANSWER` tokens for the answer, or the reserve if it is smaller.
        """
        return max(self.room, int((self.window - LEAST_ANSWER) / self.count_error))


class Window(msgspec.Struct, frozen=True):
    """The window of one `slot` in tokens, and the part of it that is used.

    The size of a slot is fixed when the engine starts. The mode "full" uses the whole slot, and the
    mode "fast" uses half of the slot. The operator's `limit` applies to every mode except
    "backend".
    """

    slot: int
    mode: BudgetMode = "backend"
    limit: int | None = None
    count_error: float = 1.0

    @property
    def size(self) -> int:
        size = self.slot // 2 if self.mode == "fast" else self.slot
        if self.limit is None or self.mode == "backend":
            return size
        return min(size, self.limit)

    def budget(self, max_tokens: int | None) -> TokenBudget:
        """Reserve `max_tokens`, at most half of the window, and `NUDGES` tokens."""
        answer = max_tokens or int(_ANSWER_SHARE * self.size)
        reserve = min(answer, int(_MOST_RESERVED * self.size)) + NUDGES
        return TokenBudget(self.size, reserve, self.count_error)


def check_size(size: int, client: int, budget: TokenBudget) -> None:
    """Raise `ContextOverflow` if a prompt of `size` tokens leaves no space even for a short answer.

    A prompt that cannot be shortened may use the reserve for the answer, because the engine accepts
    such a prompt. `client` is the size of the prompt before it was shortened.
    """
    if size > budget.most:
        too_long = f"the prompt has about {client} tokens, of which {size} cannot be removed"
        raise ContextOverflow(
            f"{too_long}. Please shorten the conversation.", client, budget.window
        )
