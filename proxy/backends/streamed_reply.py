"""One reply from a backend with a stream of its own: from bytes to batches of events.

The language is that of a `Decoder`, which cuts bytes into pieces, and a `Reader`, which tells what
a piece says; here is what happens around them.
"""

from collections.abc import Callable, Iterable
from typing import Generic, Protocol, TypeVar

from proxy.backends.client import ReplyEvents
from proxy.backends.refusals import Refusal, streamed_refusal
from proxy.backends.transport import Answer, BackendClient
from proxy.conversation.replies import ReplyEvent, ReplyFinished
from proxy.dialects.openai_chat.replies import ReplyPart, StreamedError
from proxy.errors import BackendFailed, BackendSpokeNonsense, BackendUnavailable, TemperError

Piece = TypeVar("Piece")
Cut = TypeVar("Cut", covariant=True)
Told = TypeVar("Told", contravariant=True)


class Decoder(Protocol[Cut]):
    """Cuts the bytes of a body into pieces; raises ValueError for what cannot be cut."""

    def feed(self, data: bytes, /) -> Iterable[Cut]:
        """Return the pieces that `data` completes."""

    def finish(self) -> Iterable[Cut]:
        """Return the pieces that the end of the body completes."""


class Reader(Protocol[Told]):
    """Tells what the pieces of one reply say; raises ValueError for what is no reply."""

    def feed(self, piece: Told, /) -> list[ReplyPart]:
        """Return what one piece says."""

    def finish(self) -> list[ReplyPart]:
        """Make sure that the end of the body is the end of the reply."""


class StreamedReply(Generic[Piece]):
    """Reads one reply; `meaning` says what an error in the middle of it means."""

    def __init__(
        self,
        connection: BackendClient,
        decoder: Decoder[Piece],
        reader: Reader[Piece],
        meaning: Callable[[str, Refusal], TemperError],
    ) -> None:
        self._backend = connection.name
        self._confidential = connection.confidential
        self._decoder = decoder
        self._reader = reader
        self._meaning = meaning
        self._has_begun = False

    def read(self, chunk: bytes) -> tuple[list[ReplyEvent], TemperError | None]:
        """Read a chunk, or the end of the body where it is empty; a failure comes last in it."""
        events: list[ReplyEvent] = []
        try:
            for piece in self._decoder.feed(chunk) if chunk else self._decoder.finish():
                for part in self._reader.feed(piece):
                    if isinstance(part, StreamedError):
                        error = self._confidential.out_of_error(part.error)
                        return events, self._meaning(self._backend, streamed_refusal(error))
                    events.append(part)
            if not chunk:
                self._reader.finish()
        except ValueError:
            return events, self._unreadable(chunk)
        finally:
            self._has_begun = self._has_begun or bool(events)
        return events, None

    async def batches(self, answer: Answer) -> ReplyEvents:
        """Stream the events of an answer until the reply is finished; raises what goes wrong."""
        is_open = True
        while is_open:
            chunk = await answer.next_chunk()
            is_open = bool(chunk)
            events, failed = self.read(chunk)
            if events and isinstance(events[-1], ReplyFinished):
                if not answer.is_whole:
                    if len(events) > 1:
                        yield events[:-1]
                    await answer.linger()
                    events = events[-1:]
                yield events
                return
            if events:
                yield events
            if failed is not None:
                raise failed

    def _unreadable(self, chunk: bytes) -> BackendFailed:
        if self._has_begun and not chunk:
            return BackendUnavailable(self._backend, "broke off in the middle of its reply")
        return BackendSpokeNonsense(self._backend, "sent no valid reply", chunk)
