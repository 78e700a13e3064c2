"""Bounds how many requests may retry at the same time, whatever their own ladders allow.

If every reply is bad, retries would triple the load when the backend can bear it least. With few
live requests, `FLOOR` of them may retry at once. With many, one request in `PRICE` may retry: one
or two retries for every ten first attempts, so at most 20% more work.
"""

FLOOR = 3
FEW = 15
PRICE = 10
MOST_SAVED = 100


class RetryTicket:
    """One request's share of the budget; once it may retry, it may until it ends."""

    def __init__(self, budget: "RetryBudget") -> None:
        self._budget = budget
        self.is_retrying = False

    def may_retry(self) -> bool:
        """Ask for permission to go beyond the first attempt."""
        self.is_retrying = self.is_retrying or self._budget.take()
        return self.is_retrying

    def __enter__(self) -> "RetryTicket":
        return self

    def __exit__(self, *_error: object) -> None:
        self._budget.end(is_retrying=self.is_retrying)


class RetryBudget:
    """Counts live requests, those that are retrying, and those whose arrival pays for a retry.

    Requests that wait for the backend count as live. A share of all of them would let each of the
    few running ones retry.
    """

    def __init__(self, floor: int = FLOOR) -> None:
        self._floor = floor
        self._live = 0
        self._retrying = 0
        self._saved = 0

    def request(self) -> RetryTicket:
        self._live += 1
        self._saved = min(MOST_SAVED, self._saved + 1)
        return RetryTicket(self)

    def end(self, *, is_retrying: bool) -> None:
        self._live -= 1
        self._retrying -= is_retrying

    def take(self) -> bool:
        is_quiet = self._live <= FEW
        is_left = self._retrying < self._floor if is_quiet else self._saved >= PRICE
        if is_left:
            self._retrying += 1
            self._saved = max(0, self._saved - PRICE)
        return is_left
