"""The backend's ledger: the received requests, and the time at which each token was sent."""

import msgspec


class ReceivedRequest(msgspec.Struct):
    """A request; `sent` has the time of each delta, on the clock that all processes share."""

    id: str
    body: bytes
    sent: list[float] = []


class Ledger:
    """All requests since the ledger was last cleared."""

    def __init__(self) -> None:
        self._received: list[ReceivedRequest] = []
        self._ids: set[str] = set()

    def note(self, request_id: str, body: bytes) -> tuple[ReceivedRequest, bool]:
        """Add a request; returns its entry, and True if its id was already in the ledger."""
        is_repeated = request_id in self._ids
        self._ids.add(request_id)
        received = ReceivedRequest(request_id, body)
        self._received.append(received)
        return received, is_repeated

    def dump_and_clear(self) -> bytes:
        """Return the ledger as JSON, and clear it."""
        document = msgspec.json.encode(self._received)
        self._received, self._ids = [], set()
        return document


def read_ledger(document: bytes) -> dict[str, list[ReceivedRequest]]:
    """Read the JSON of a ledger: the requests by id."""
    requests: dict[str, list[ReceivedRequest]] = {}
    for received in msgspec.json.decode(document, type=list[ReceivedRequest]):
        requests.setdefault(received.id, []).append(received)
    return requests
