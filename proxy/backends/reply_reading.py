"""One reply, from the bytes of a body to events, in either form that engines answer in.

The form is told by the first character and not by the content type, which some engines get
wrong. It knows no HTTP and does no I/O.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from proxy.dialects.openai_chat.decode import ChunkDecoder, ReplyPart
from proxy.dialects.sse import EventDecoder


@dataclass(slots=True)
class ReplyReading:
    """Reads one reply; `has_begun` tells whether anything in it made sense.

    `beginning` is what came first, for a look at what made none.
    Both methods raise ValueError for what is no reply.
    """

    has_begun: bool = False
    beginning: bytes = b""
    _events: EventDecoder = field(default_factory=EventDecoder)
    _chunks: ChunkDecoder = field(default_factory=ChunkDecoder)
    _completion: bytearray | None = None
    _is_blank: bool = True

    def feed(self, piece: bytes) -> Iterator[ReplyPart]:
        """Yield the parts that `piece` completes."""
        if self._is_blank:
            piece = piece.lstrip()
            self._is_blank = not piece
            self.beginning = piece
            self._completion = bytearray() if piece.startswith(b"{") else None
        if self._completion is not None:
            self._completion += piece
            return
        for event in self._events.feed(piece):
            parts = self._chunks.feed(event.data)
            if parts:
                self.has_begun = True
                yield from parts

    def finish(self) -> Iterator[ReplyPart]:
        """Yield the parts that the end of the body completes."""
        if self._completion is not None:
            yield from self._read(self._completion.decode())
        for event in self._events.finish():
            yield from self._read(event.data)
        yield from self._chunks.finish()

    def _read(self, document: str) -> Iterator[ReplyPart]:
        parts = self._chunks.feed(document)
        self.has_begun = self.has_begun or bool(parts)
        yield from parts
