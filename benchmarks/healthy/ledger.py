"""What the backend was asked for, and when it said each token: its side of the story."""

import msgspec


class ReceivedRequest(msgspec.Struct):
    """One question; `sent` has the time of each delta, on the clock that all processes share."""

    id: str
    body: bytes
    sent: list[float] = []


class Ledger:
    """All questions since it was last handed out."""

    def __init__(self) -> None:
        self._received: list[ReceivedRequest] = []
        self._ids: set[str] = set()

    def note(self, request_id: str, body: bytes) -> tuple[ReceivedRequest, bool]:
        """Enter a question; tell whether the same request has asked before."""
        is_again = request_id in self._ids
        self._ids.add(request_id)
        received = ReceivedRequest(request_id, body)
        self._received.append(received)
        return received, is_again

    def handed_out(self) -> bytes:
        """Write what was asked, and start over."""
        document = msgspec.json.encode(self._received)
        self._received, self._ids = [], set()
        return document


def read_ledger(document: bytes) -> dict[str, list[ReceivedRequest]]:
    """Read what a backend handed out: the questions of each request."""
    requests: dict[str, list[ReceivedRequest]] = {}
    for received in msgspec.json.decode(document, type=list[ReceivedRequest]):
        requests.setdefault(received.id, []).append(received)
    return requests
