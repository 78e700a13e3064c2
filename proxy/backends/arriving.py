"""What the transport needs of a response of which the body is still arriving."""

from collections.abc import Callable
from typing import Protocol


class Arriving(Protocol):
    """A response of which the body is still arriving; header names are lower case."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def is_over(self) -> bool:
        """Whether the whole body has come, as far as that is known."""

    def header(self, name: bytes) -> str:
        """Return a header, empty where it is missing."""

    async def receive(self, deadline: float) -> bytes:
        """Return more of the body, empty at its end; raises TimeoutError."""

    def set_sink(self, sink: Callable[[bytes], bool], idle: float) -> None:
        """Offer what comes to `sink` first, as far as possible; see `Connection`."""
