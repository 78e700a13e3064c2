"""How many requests may ask their model again at the same time, whatever their own ladders allow.

When every reply goes wrong at once, retries would multiply the load by three just when the backend
can bear it least. So only a share of the requests that are alive may be beyond their first attempt.
"""

from collections.abc import Generator
from contextlib import contextmanager

SHARE = 0.2
FLOOR = 3


class Ticket:
    """The part that one request has in the budget; once it may retry, it may until it ends."""

    def __init__(self, budget: "RetryBudget") -> None:
        self._budget = budget
        self._is_retrying = False

    def may_retry(self) -> bool:
        """Ask for leave to go beyond the first attempt."""
        self._is_retrying = self._is_retrying or self._budget.take()
        return self._is_retrying

    @property
    def is_retrying(self) -> bool:
        """Whether leave was given."""
        return self._is_retrying


class RetryBudget:
    """Counts live requests, and those of them that are retrying: at most `share`, or `floor`."""

    def __init__(self, share: float = SHARE, floor: int = FLOOR) -> None:
        self._share = share
        self._floor = floor
        self._live = 0
        self._retrying = 0

    @contextmanager
    def request(self) -> Generator[Ticket, None, None]:
        """Count a request while the block runs."""
        ticket = Ticket(self)
        self._live += 1
        try:
            yield ticket
        finally:
            self._live -= 1
            self._retrying -= ticket.is_retrying

    def take(self) -> bool:
        """Take one retry out of the budget, if there is one left."""
        is_left = self._retrying < max(self._floor, int(self._share * self._live))
        self._retrying += is_left
        return is_left
