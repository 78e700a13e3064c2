"""What was made of documents, kept for the next time: as many as fit, and none that are huge."""

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Made = TypeVar("Made")

# What is made of a schema takes fifteen times as much memory as the schema, with many small
# properties seventy times as much.
_MOST_BYTES = 2 * 2**20
_LARGEST = 256 * 2**10
_OVERHEAD = 2**10  # of the smallest document


class DocumentCache(Generic[Made]):
    """Makes something of documents, or finds it made; the documents themselves are not kept."""

    def __init__(
        self, make: Callable[[bytes], Made], *, most: int = _MOST_BYTES, largest: int = _LARGEST
    ) -> None:
        self._make = make
        self._left = most
        self._largest = largest
        self._kept: OrderedDict[bytes, tuple[Made, int]] = OrderedDict()

    def __call__(self, document: bytes) -> Made:
        """Return what is made of a document; raises what making it raises."""
        if len(document) > self._largest:
            return self._make(document)
        key = hashlib.blake2b(document, digest_size=32).digest()
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key][0]
        made, size = self._make(document), len(document) + _OVERHEAD
        self._kept[key] = made, size
        self._left -= size
        while self._left < 0:
            _, (_, freed) = self._kept.popitem(last=False)
            self._left += freed
        return made
