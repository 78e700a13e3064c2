"""Responses in this process: bounded, and gone with it."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from threading import RLock

import msgspec

from proxy.dialects.openai_responses.store import StoredResponse, id_of


class Bounds(msgspec.Struct, frozen=True):
    """How much is kept, and for how many seconds after it was used last."""

    responses: int = 1_000
    bytes: int = 64 * 2**20
    seconds: float = 3_600.0


class _StoredEntry(msgspec.Struct):
    response: StoredResponse
    used_at: float


class MemoryStore:
    """Keeps responses in this process; `now` is a time in seconds.

    Large requests are decoded by threads of their own, so several may come at once.
    """

    def __init__(self, now: Callable[[], float], bounds: Bounds | None = None) -> None:
        self._now = now
        self._bounds = bounds or Bounds()
        self._entries: OrderedDict[tuple[str, str], _StoredEntry] = OrderedDict()
        self._items: dict[tuple[str, str], tuple[str, bytes]] = {}
        self._size = 0
        self._lock = RLock()

    def keep(self, owner: str, response: StoredResponse) -> None:
        with self._lock:
            if response.size > self._bounds.bytes or (owner, response.id) in self._entries:
                return
            self._entries[owner, response.id] = _StoredEntry(response, self._now())
            self._size += response.size
            for item in response.items:
                if item_id := id_of(item):
                    self._items[owner, item_id] = (response.id, item)
            self._use(owner, response.id)
            self._evict()

    def find(self, owner: str, response_id: str) -> StoredResponse | None:
        with self._lock:
            self._evict()
            self._use(owner, response_id)
            entry = self._entries.get((owner, response_id))
            return None if entry is None else entry.response

    def history(self, owner: str, response_id: str) -> list[bytes] | None:
        with self._lock:
            if self.find(owner, response_id) is None:
                return None
            chain = [*self._chain(owner, response_id)]
            if chain[-1].previous_id is not None:
                return None
            return [item for response in reversed(chain) for item in response.items]

    def inputs(self, owner: str, response_id: str) -> list[bytes] | None:
        with self._lock:
            found = self.find(owner, response_id)
            if found is None:
                return None
            earlier = reversed([*self._chain(owner, found.previous_id)])
            return [item for one in earlier for item in one.items] + [*found.inputs]

    def item(self, owner: str, item_id: str) -> bytes | None:
        with self._lock:
            self._evict()
            found = self._items.get((owner, item_id))
            if found is None:
                return None
            self._use(owner, found[0])
            return found[1]

    def forget(self, owner: str, response_id: str) -> bool:
        with self._lock:
            self._evict()
            if (owner, response_id) not in self._entries:
                return False
            self._drop((owner, response_id))
            return True

    def _chain(self, owner: str, response_id: str | None) -> Iterator[StoredResponse]:
        """Yield a response and those before it, the latest first, as far as they are known."""
        while response_id is not None and (entry := self._entries.get((owner, response_id))):
            yield entry.response
            response_id = entry.response.previous_id

    def _use(self, owner: str, response_id: str) -> None:
        now = self._now()
        for response in self._chain(owner, response_id):
            key = owner, response.id
            self._entries[key].used_at = now
            self._entries.move_to_end(key)

    def _evict(self) -> None:
        oldest = self._now() - self._bounds.seconds
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            is_too_much = len(self._entries) > self._bounds.responses
            if entry.used_at >= oldest and not is_too_much and self._size <= self._bounds.bytes:
                return
            self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        owner, response_id = key
        response = self._entries.pop(key).response
        self._size -= response.size
        for item in response.items:
            place = owner, id_of(item)
            if place in self._items and self._items[place][0] == response_id:
                del self._items[place]
