"""A size-bounded LRU cache of values that are computed from documents."""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

Value = TypeVar("Value")

# A compiled schema needs fifteen times the memory of its text, or seventy times if it has many
# small properties. Therefore, the bytes are limited: a cache that was limited only to 40 entries
# grew to 0.6 GB with schemas of 4 MB.
_MOST_BYTES = 2 * 2**20
_LARGEST = 256 * 2**10
_OVERHEAD = 2**10  # bytes per entry


class LruCache(Generic[Value]):
    """A thread-safe LRU cache of at most `most` bytes; documents above `largest` are not cached."""

    def __init__(self, *, most: int = _MOST_BYTES, largest: int = _LARGEST) -> None:
        self._free = most  # bytes
        self._largest = largest
        self._entries: OrderedDict[bytes, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()

    def find(self, document: bytes) -> Value | None:
        if len(document) > self._largest:
            return None
        with self._lock:
            if (entry := self._entries.get(document)) is None:
                return None
            self._entries.move_to_end(document)
            return entry[0]

    def keep(self, document: bytes, value: Value, further: int = 0) -> None:
        """Store a value, and evict the least recently used values if necessary.

        The entry counts as the bytes of the document, `further` bytes, and a constant overhead.
        """
        if len(document) > self._largest:
            return
        size = len(document) + _OVERHEAD + further
        with self._lock:
            if document in self._entries:
                return
            self._entries[document] = value, size
            self._free -= size
            while self._free < 0:
                _, (_, evicted_size) = self._entries.popitem(last=False)
                self._free += evicted_size


class DocumentCache(LruCache[tuple[Value]], Generic[Value]):
    """Computes the value of a document with `make`, or returns the cached value.

    `further` returns the bytes to count for a value, in addition to the bytes of its document.
    """

    def __init__(
        self,
        make: Callable[[bytes], Value],
        *,
        most: int = _MOST_BYTES,
        largest: int = _LARGEST,
        further: Callable[[Value], int] = lambda _: 0,
    ) -> None:
        super().__init__(most=most, largest=largest)
        self._make = make
        self._further = further

    def __call__(self, document: bytes) -> Value:
        """Return the value of a document; raises the exceptions of `make`."""
        value = self.find(document)
        if value is None:
            value = (self._make(document),)
            self.keep(document, value, self._further(value[0]))
        return value[0]
