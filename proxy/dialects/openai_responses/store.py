"""Responses that are kept for a while, so that a client may go on from one instead of repeating it.

`MemoryStore` is bounded, and gone with the process; other rooms may have stores that last longer.
Each response holds its own items only and names the one it goes on from. Whoever uses a response
uses all before it: so the one that is left alone for longest never stands in the middle of a
conversation that is still used, and goes first.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from threading import RLock
from typing import Protocol

import msgspec

from proxy.conversation import json
from proxy.conversation.json import JsonValue

_OVERHEAD = 2**10  # of a response beside its bytes


class Bounds(msgspec.Struct, frozen=True):
    """How much is kept, and for how many seconds after it was used last."""

    responses: int = 1_000
    bytes: int = 64 * 2**20
    seconds: float = 3_600.0


class StoredResponse(msgspec.Struct, frozen=True):
    """A response that ended well: the items it was asked with and its own, and the whole object."""

    id: str
    inputs: Sequence[bytes]
    output: Sequence[bytes]
    whole: bytes
    previous_id: str | None = None

    @property
    def items(self) -> list[bytes]:
        """All that it adds to the conversation."""
        return [*self.inputs, *self.output]

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return _OVERHEAD + len(self.whole) + sum(map(len, self.items))


class _Entry(msgspec.Struct):
    response: StoredResponse
    used_at: float


class ResponseStore(Protocol):
    """Keeps responses by the owner of the key that asked for them.

    What cannot be kept is lost, and what cannot be read is not there; only `forget` may raise.
    """

    def keep(self, owner: str, response: StoredResponse) -> None:
        """Keep a response, once, at the expense of those that were not used for longest."""

    def find(self, owner: str, response_id: str) -> StoredResponse | None:
        """Return a response, and count that as a use of it and of all before it."""

    def history(self, owner: str, response_id: str) -> list[bytes] | None:
        """Return all items up to the end of a response; None if a part of them is not known."""

    def inputs(self, owner: str, response_id: str) -> list[bytes] | None:
        """Return what a response was made from, as far as it is known; None without a response."""

    def item(self, owner: str, item_id: str) -> bytes | None:
        """Return an item by its own id, whichever response it belongs to."""

    def forget(self, owner: str, response_id: str) -> bool:
        """Forget a response; reports whether there was one."""


class MemoryStore:
    """Keeps responses in this process; `now` is a time in seconds.

    Large requests are decoded by threads of their own, so several may come at once.
    """

    def __init__(self, now: Callable[[], float], bounds: Bounds | None = None) -> None:
        self._now = now
        self._bounds = bounds or Bounds()
        self._entries: OrderedDict[tuple[str, str], _Entry] = OrderedDict()
        self._items: dict[tuple[str, str], tuple[str, bytes]] = {}
        self._size = 0
        self._lock = RLock()

    def keep(self, owner: str, response: StoredResponse) -> None:
        """Keep a response, once, at the expense of those that were not used for longest."""
        with self._lock:
            if response.size > self._bounds.bytes or (owner, response.id) in self._entries:
                return
            self._entries[owner, response.id] = _Entry(response, self._now())
            self._size += response.size
            for item in response.items:
                if item_id := id_of(item):
                    self._items[owner, item_id] = (response.id, item)
            self._use(owner, response.id)
            self._evict()

    def find(self, owner: str, response_id: str) -> StoredResponse | None:
        """Return a response, and count that as a use of it and of all before it."""
        with self._lock:
            self._evict()
            self._use(owner, response_id)
            entry = self._entries.get((owner, response_id))
            return None if entry is None else entry.response

    def history(self, owner: str, response_id: str) -> list[bytes] | None:
        """Return all items up to the end of a response; None if a part of them is not known."""
        with self._lock:
            if self.find(owner, response_id) is None:
                return None
            chain = [*self._chain(owner, response_id)]
            if chain[-1].previous_id is not None:
                return None
            return [item for response in reversed(chain) for item in response.items]

    def inputs(self, owner: str, response_id: str) -> list[bytes] | None:
        """Return what a response was made from, as far as it is known; None without a response."""
        with self._lock:
            found = self.find(owner, response_id)
            if found is None:
                return None
            earlier = reversed([*self._chain(owner, found.previous_id)])
            return [item for one in earlier for item in one.items] + [*found.inputs]

    def item(self, owner: str, item_id: str) -> bytes | None:
        """Return an item by its own id, whichever response it belongs to."""
        with self._lock:
            self._evict()
            found = self._items.get((owner, item_id))
            if found is None:
                return None
            self._use(owner, found[0])
            return found[1]

    def forget(self, owner: str, response_id: str) -> bool:
        """Forget a response; reports whether there was one."""
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


def id_of(item: bytes) -> str:
    """Return the id of an item, "" where it has none."""
    value: JsonValue = json.parse(item)
    found = value.get("id") if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""
