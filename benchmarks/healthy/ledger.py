"""What the backend was asked for, and when it said each token: its side of the story."""

import msgspec


class Asked(msgspec.Struct):
    """One question; `sent` has the time of each delta, on the clock that all processes share."""

    id: str
    body: bytes
    sent: list[float] = []


class Ledger:
    """All questions since it was last handed out."""

    def __init__(self) -> None:
        self._asked: list[Asked] = []
        self._ids: set[str] = set()

    def note(self, request_id: str, body: bytes) -> tuple[Asked, bool]:
        """Enter a question; tell whether the same request has asked before."""
        is_again = request_id in self._ids
        self._ids.add(request_id)
        asked = Asked(request_id, body)
        self._asked.append(asked)
        return asked, is_again

    def handed_out(self) -> bytes:
        """Write what was asked, and start over."""
        told = msgspec.json.encode(self._asked)
        self._asked, self._ids = [], set()
        return told


def read_ledger(document: bytes) -> dict[str, list[Asked]]:
    """Read what a backend handed out: the questions of each request."""
    found: dict[str, list[Asked]] = {}
    for asked in msgspec.json.decode(document, type=list[Asked]):
        found.setdefault(asked.id, []).append(asked)
    return found
