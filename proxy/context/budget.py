"""How many tokens a prompt may have: the window less what the answer needs.

The window is that of one slot as the backend reports it, never assumed; a mode may narrow it.
"""

from typing import Literal, TypeAlias

import msgspec

from proxy.errors import ContextOverflow

NUDGES = 288  # what three attempts may append
LEAST_ANSWER = 64

_ANSWER_SHARE = 0.25
_MOST_RESERVED = 0.5

# Who decides on the window: the backend, the operator, or the hardware: all, or half.
BudgetMode: TypeAlias = Literal["backend", "manual", "full", "fast"]


class TokenBudget(msgspec.Struct, frozen=True):
    """A window and what is kept free of it, both in tokens.

    `doubt` is how many times more tokens a prompt may have than it is counted to have.
    """

    window: int
    reserve: int
    doubt: float = 1.0

    @property
    def room(self) -> int:
        return int(max(0, self.window - self.reserve) / self.doubt)

    @property
    def most(self) -> int:
        """How long a prompt may be that cannot be made shorter, so that it leaves any answer."""
        return max(self.room, int((self.window - LEAST_ANSWER) / self.doubt))


class Window(msgspec.Struct, frozen=True):
    """The window of one `slot`, in tokens, and how much of it is used.

    A server has the window that it was started with, so `FULL` is all of that and `FAST` half of
    it. The operator's `limit` narrows every mode but `BACKEND`.
    """

    slot: int
    mode: BudgetMode = "backend"
    limit: int | None = None
    doubt: float = 1.0

    @property
    def size(self) -> int:
        """The window that is used; never more than the slot has."""
        wanted = self.slot // 2 if self.mode == "fast" else self.slot
        if self.limit is None or self.mode == "backend":
            return wanted
        return min(wanted, self.limit)

    def budget(self, max_tokens: int | None) -> TokenBudget:
        """Keep room for an answer of `max_tokens`, at most half of the window, and for nudges."""
        answer = max_tokens or int(_ANSWER_SHARE * self.size)
        reserve = min(answer, int(_MOST_RESERVED * self.size)) + NUDGES
        return TokenBudget(self.size, reserve, self.doubt)


def check_size(size: int, client: int, budget: TokenBudget) -> None:
    """Raise `ContextOverflow` if a prompt of `size` tokens leaves no room for an answer at all.

    What cannot be made shorter may use up what is kept for the answer: the backend would take it,
    so nobody is better off with a refusal. `client` is the size as the client wrote it.
    """
    if size > budget.most:
        too_long = f"the prompt has about {client} tokens, of which {size} cannot be left out"
        raise ContextOverflow(
            f"{too_long}. Please shorten the conversation.", client, budget.window
        )
