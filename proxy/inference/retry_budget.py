"""Bounds how many requests may retry at the same time.

Each request has a limit of attempts, but if every reply is bad, retries would triple the load of an
overloaded backend. Up to `FEW` live requests, `FLOOR` of them may retry at once. With more live
requests, one request in `PRICE` may retry. A request retries at most twice by default, so retries
add at most 20 % to the work.

A fixed share of the live requests would not work as a limit, because waiting requests also count as
live. With four slots and a hundred clients, a fifth of the live requests is twenty requests, so all
four running requests could retry (decision 0015).
"""

FLOOR = 3  # requests that may retry at once, as long as at most `FEW` requests are live
FEW = 15  # live requests; up to this number, `FLOOR` is the limit, above it `PRICE`
PRICE = 10  # the number of first attempts that allow one request to retry
# The maximum number of saved first attempts, which pay for later retries. A larger number would
# allow a burst of retries after an hour without retries.
MOST_SAVED = 100


class RetryTicket:
    """The permission of one request to retry; once granted, it lasts until the request ends."""

    def __init__(self, budget: "RetryBudget") -> None:
        self._budget = budget
        self.is_retrying = False

    def may_retry(self) -> bool:
        """Request a retry from the budget; once a retry was granted, always return True."""
        self.is_retrying = self.is_retrying or self._budget.take()
        return self.is_retrying

    def __enter__(self) -> "RetryTicket":
        return self

    def __exit__(self, *_error: object) -> None:
        self._budget.end(is_retrying=self.is_retrying)


class RetryBudget:
    """Counts live and retrying requests, and the saved first attempts (`PRICE` per retry)."""

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
        is_granted = self._retrying < self._floor if is_quiet else self._saved >= PRICE
        if is_granted:
            self._retrying += 1
            self._saved = max(0, self._saved - PRICE)
        return is_granted
