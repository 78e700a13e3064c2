"""The end of what compaction can do: a refusal with numbers, never a silent cut."""

from proxy.context.budget import Budget
from proxy.errors import ContextOverflow


def check_size(size: int, client: int, budget: Budget) -> None:
    """Raise `ContextOverflow` if a prompt of `size` tokens is too long for a budget.

    `client` is its size as the client wrote it.
    """
    if size <= budget.room:
        return
    wording = (
        f"the prompt has {client} tokens, at least {size} of them cannot be left out, and "
        f"{budget.reserve} are reserved for the answer. Please shorten the conversation."
    )
    raise ContextOverflow(wording, client, budget.window)
