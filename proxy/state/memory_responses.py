"""Stores responses in the memory of this process, up to a number and a size.

Beyond a bound, the least recently used response of the owner with the most responses is removed.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import RLock

import msgspec

from proxy import shares
from proxy.dialects.openai_responses.store import ResponseStore, StoredResponse, id_of


class Bounds(msgspec.Struct, frozen=True):
    """The maximum number and size of stored responses, and their lifetime after the last use."""

    responses: int = 1_000
    bytes: int = 64 * 2**20
    seconds: float = 3_600.0


class _StoredEntry(msgspec.Struct):
    response: StoredResponse
    used_at: float


@dataclass(eq=False)
class MemoryStore(ResponseStore):
    """A thread-safe store of responses in memory; `now` returns seconds."""

    _now: Callable[[], float]
    _bounds: Bounds = field(default_factory=Bounds)
    _entries: OrderedDict[tuple[str, str], _StoredEntry] = field(default_factory=OrderedDict)
    _items: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    _size: int = 0
    _lock: RLock = field(default_factory=RLock)  # large requests are decoded in threads

    def keep(self, owner: str, response: StoredResponse) -> None:
        with self._lock:
            if response.size > self._bounds.bytes or (owner, response.id) in self._entries:
                return
            self._entries[owner, response.id] = _StoredEntry(response, self._now())
            self._size += response.size
            for item in response.items:
                if item_id := id_of(item):
                    self._items[owner, item_id] = (response.id, item)
            self._use(owner, response.id)  # so that its predecessors count as used
            self._evict()

    def chain(self, owner: str, response_id: str) -> list[StoredResponse]:
        with self._lock:
            self._evict()
            return self._use(owner, response_id)

    def item(self, owner: str, item_id: str) -> bytes | None:
        with self._lock:
            self._evict()
            match = self._items.get((owner, item_id))
            if match is None:
                return None
            response_id, item = match
            self._use(owner, response_id)
            return item

    def forget(self, owner: str, response_id: str) -> bool:
        with self._lock:
            self._evict()
            if is_known := (owner, response_id) in self._entries:
                self._drop((owner, response_id))
            return is_known

    def _use(self, owner: str, response_id: str | None) -> list[StoredResponse]:
        """Return a response and its predecessors, latest first, and mark them as used."""
        now, chain = self._now(), []
        while response_id is not None and (entry := self._entries.get((owner, response_id))):
            entry.used_at = now
            self._entries.move_to_end((owner, response_id))
            chain.append(entry.response)
            response_id = entry.response.previous_id
        return chain

    def _evict(self) -> None:
        oldest = self._now() - self._bounds.seconds
        while self._entries:
            key, entry = next(iter(self._entries.items()))
            if entry.used_at >= oldest:
                break
            self._drop(key)
        most, most_bytes = self._bounds.responses, self._bounds.bytes
        if len(self._entries) > most or self._size > most_bytes:
            entries = [(key, key[0], entry.response.size) for key, entry in self._entries.items()]
            for key in shares.find_excess(entries, most, most_bytes):
                self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        owner, response_id = key
        response = self._entries.pop(key).response
        self._size -= response.size
        for item in response.items:
            item_key = owner, id_of(item)
            # if a later response has the same item, the entry belongs to the later response
            if item_key in self._items and self._items[item_key][0] == response_id:
                del self._items[item_key]
