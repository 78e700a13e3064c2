"""The contract of a response whose body is still arriving."""

import zlib
from collections.abc import Callable
from typing import Protocol

from proxy.backends.connection_pool import Connection


class Arriving(Protocol):
    """A response whose body is still arriving; header names are lower case."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def is_over(self) -> bool:
        """Whether the whole body is known to have arrived."""

    def header(self, name: bytes) -> str:
        """Return a header, "" if it is missing."""

    async def receive(self, deadline: float) -> bytes:
        """Return more of the body, empty at its end; raises TimeoutError."""

    def set_sink(self, sink: Callable[[bytes], bool], idle: float) -> None:
        """Offer arriving bytes to `sink` first, if possible; see `Connection`."""


class Unpacked:
    """An answer that arrives in gzip or deflate; the body is empty if it cannot be read.

    Of what one packet makes no more than `limit` bytes are unpacked.
    """

    def __init__(self, line: Connection, limit: int) -> None:
        self._line = line
        self._limit = limit
        self._unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)  # whichever of the two it is

    @property
    def status(self) -> int:
        return self._line.status

    @property
    def is_over(self) -> bool:
        """Whether the whole body has come."""
        return self._line.is_over

    def header(self, name: bytes) -> str:
        return self._line.header(name)

    async def receive(self, deadline: float) -> bytes:
        """Return more of the body, unpacked and empty at its end; raises TimeoutError."""
        while packed := await self._line.receive(deadline):
            try:
                unpacked = self._unpacker.decompress(packed, self._limit)
            except zlib.error:
                return b""
            if unpacked:
                return unpacked
        return b""

    def set_sink(self, sink: Callable[[bytes], bool], idle: float) -> None:
        """Offer nothing to a sink: an error is read whole."""
