"""What was made of documents, kept for the next time: as many as fit, and none that are huge."""

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

Made = TypeVar("Made")

# What is made of a schema takes fifteen times as much memory as the schema, with many small
# properties seventy times as much.
_MOST_BYTES = 2 * 2**20
_LARGEST = 256 * 2**10
_OVERHEAD = 2**10  # of the smallest document


class KeptByDocument(Generic[Made]):
    """Keeps what was made of documents, for any thread: `most` bytes of all, `largest` of one."""

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
        """Keep what was made of a document, at the expense of what was used longest ago.

        It counts with the size of its document and with so many further bytes.
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
    """Makes something of documents, or finds it made."""

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
        """Return what is made of a document; raises what making it raises."""
        value = self.find(document)
        if value is None:
            value = (self._make(document),)
            self.keep(document, value, self._further(value[0]))
        return value[0]
