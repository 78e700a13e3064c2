"""How many requests may ask their model again, whatever their own ladders allow.

When every reply goes wrong at once, retries would multiply the load by three just when the backend
can bear it least. While few requests are alive, `FLOOR` of them may retry at the same time. Of many
every `PRICE`th may: a further attempt or two for ten first ones is a fifth more work at most.
"""

FLOOR = 3
FEW = 15
PRICE = 10
MOST_SAVED = 100


class RetryTicket:
    """The part that one request has in the budget; once it may retry, it may until it ends."""

    def __init__(self, budget: "RetryBudget") -> None:
        self._budget = budget
        self.is_retrying = False

    def may_retry(self) -> bool:
        """Ask for leave to go beyond the first attempt."""
        self.is_retrying = self.is_retrying or self._budget.take()
        return self.is_retrying

    def __enter__(self) -> "RetryTicket":
        return self

    def __exit__(self, *_error: object) -> None:
        self._budget.end(is_retrying=self.is_retrying)


class RetryBudget:
    """Counts live requests, those of them that are retrying, and those that came and saved for it.

    Requests that wait for the backend are alive, too: a share of them all would let each of the few
    that run retry.
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
