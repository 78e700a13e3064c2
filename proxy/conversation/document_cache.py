"""A size-bounded LRU cache of values that are computed from documents."""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

Made = TypeVar("Made")

# A compiled schema takes fifteen times the memory of its text, seventy times with many small
# properties. Bounded by entries, a cache of 40 schemas of 4 MB took 0.6 GB.
_MOST_BYTES = 2 * 2**20
_LARGEST = 256 * 2**10
_OVERHEAD = 2**10  # bytes per entry


class KeptByDocument(Generic[Made]):
    """A thread-safe LRU cache of at most `most` bytes; documents above `largest` are not cached."""

    def __init__(self, *, most: int = _MOST_BYTES, largest: int = _LARGEST) -> None:
        self._left = most
        self._largest = largest
        self._kept: OrderedDict[bytes, tuple[Made, int]] = OrderedDict()
        self._lock = Lock()

    def find(self, document: bytes) -> Made | None:
        if len(document) > self._largest:
            return None
        with self._lock:
            if (value := self._kept.get(document)) is None:
                return None
            self._kept.move_to_end(document)
            return value[0]

    def keep(self, document: bytes, made: Made, further: int = 0) -> None:
        """Store a value, evicting the least recently used ones.

        Its size is that of the document plus `further` bytes.
        """
        if len(document) > self._largest:
            return
        size = len(document) + _OVERHEAD + further
        with self._lock:
            if document in self._kept:
                return
            self._kept[document] = made, size
            self._left -= size
            while self._left < 0:
                _, (_, freed) = self._kept.popitem(last=False)
                self._left += freed


class DocumentCache(KeptByDocument[tuple[Made]], Generic[Made]):
    """Computes values of documents, or returns cached ones."""

    def __init__(
        self,
        make: Callable[[bytes], Made],
        *,
        most: int = _MOST_BYTES,
        largest: int = _LARGEST,
        further: Callable[[Made], int] = lambda _: 0,
    ) -> None:
        super().__init__(most=most, largest=largest)
        self._make = make
        self._further = further  # bytes that count in addition to those of the document

    def __call__(self, document: bytes) -> Made:
        """Return the value of a document; raises the exceptions of `make`."""
        value = self.find(document)
        if value is None:
            value = (self._make(document),)
            self.keep(document, value, self._further(value[0]))
        return value[0]
