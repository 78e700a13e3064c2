"""The end of what compaction can do: a refusal with numbers, never a silent cut."""

from proxy.context.budget import Budget
from proxy.errors import ContextOverflow


def check_size(size: int, client: int, budget: Budget) -> None:
    """Raise `ContextOverflow` if a prompt of `size` tokens leaves no room for an answer at all.

    What cannot be made shorter may use up what is kept for the answer: the backend would take it,
    so nobody is better off with a refusal. `client` is the size as the client wrote it.
    """
    if size <= budget.most:
        return
    wording = (
        f"the prompt has {client} tokens, and at least {size} of them cannot be left out. "
        "Please shorten the conversation."
    )
    raise ContextOverflow(wording, client, budget.window)
