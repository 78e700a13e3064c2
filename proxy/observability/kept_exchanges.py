"""The latest recorded exchanges in memory: bounded in bytes, the oldest go first."""

from collections import OrderedDict, deque

_MOST_REMEMBERED = 2000  # numbers of exchanges that were not kept, and of those that are gone


class KeptExchanges:
    """Lines of a recording by the numbers of their requests, at most `most_bytes` of them."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._lines: OrderedDict[int, bytes] = OrderedDict()
        self._too_large: deque[int] = deque(maxlen=_MOST_REMEMBERED)
        self._dropped: deque[int] = deque(maxlen=_MOST_REMEMBERED)

    def keep(self, number: int, line: bytes) -> None:
        """Keep a line, unless it is too large."""
        if len(line) > self._most_bytes:
            self.leave_out(number)
            return
        self._lines[number] = line
        self._bytes += len(line)
        while self._bytes > self._most_bytes:
            oldest, gone = self._lines.popitem(last=False)
            self._bytes -= len(gone)
            self._dropped.append(oldest)

    def leave_out(self, number: int) -> None:
        """Note that an exchange was too large to be recorded."""
        self._too_large.append(number)

    def has(self, number: int) -> bool:
        """Whether the exchange of a request is here."""
        return number in self._lines

    def line(self, number: int) -> bytes | None:
        """Return the exchange of a request as it was recorded."""
        return self._lines.get(number)

    def reason(self, number: int) -> str:
        """Tell in a word why the exchange of a request that is over is not here."""
        if number in self._too_large:
            return "too_large"
        return "dropped" if number in self._dropped else "not_understood"
