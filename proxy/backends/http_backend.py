"""An engine behind HTTP: the common part of all adapters.

An adapter says how a question is put (`prepare`), how its replies and errors are read
(`new_reading`, `error_in`, `meaning`), and what to do about a failure (`recover`). HTTP's own
failures belong to `transport`. This module does not judge what a model wrote.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar, cast

from proxy.backends.capabilities import Capability
from proxy.backends.client import (
    BackendModel,
    Description,
    Health,
    PassthroughRequest,
    Pieces,
    ReplyEvents,
)
from proxy.backends.refusals import Confidential, Refusal, as_error, read_streamed_refusal
from proxy.backends.transport import BackendClient, BackendResponse, WholeResponse
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import EventSink, ReplyEvent, ReplyFinished, ReplyUnreadable
from proxy.conversation.requests import Question
from proxy.dialects.openai_chat.replies import ReplyPart, StreamedError, decode_error
from proxy.errors import (
    BackendFailed,
    BackendSpokeNonsense,
    BackendTimedOut,
    BackendUnavailable,
    ContextOverflow,
    TemperError,
)

MODELS = "/v1/models"
HEALTH_PATIENCE = 2.0

_LAST = (ReplyFinished, StreamedError)
_MEMBERS_OF_ERRORS = (b'"error"', b'"message"', b'"detail"')

Piece = TypeVar("Piece")
Cut = TypeVar("Cut", covariant=True)
Told = TypeVar("Told", contravariant=True)


class _Whole(Enum):
    """Says that a reply has ended, and the body with it."""

    WHOLE = "whole"


_WHOLE = _Whole.WHOLE
_End: TypeAlias = Literal[_Whole.WHOLE] | ReplyFinished | TemperError | None


@dataclass(slots=True)
class OutgoingQuestion:
    """A question as it goes out; `asked` may be put otherwise than the client's `question`.

    An engine that `may_pause` within its reply gets as much time there as before it. `began_at` is
    a time of the event loop, and `lacks` what the engine was known to lack by then.
    """

    path: str
    body: bytes
    question: Question
    asked: Question
    may_pause: bool = False
    began_at: float = 0.0
    lacks: Collection[Capability] = ()
    has_begun: bool = False


class ReplyDecoder(Protocol):
    """Reads one reply; both methods append to `parts`, and raise ValueError for what is none."""

    @property
    def beginning(self) -> bytes:
        """What came first, for a look at what made no sense."""

    @property
    def has_begun(self) -> bool:
        """Whether anything made sense so far."""

    def feed(self, piece: bytes, parts: list[ReplyPart], /) -> None:
        """Append the parts that `piece` completes; a `StreamedError` is the last one."""

    def finish(self, parts: list[ReplyPart], /) -> None:
        """Append the parts that the end of the body completes."""

    def read_for_sink(self, piece: bytes, /) -> list[ReplyPart] | None:
        """Return the parts of a piece like those before; None for any other, which is not read."""


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


class PieceReading(Generic[Piece]):
    """Reads a reply in a language of its own, piece by piece."""

    beginning = b""

    def __init__(self, decoder: Decoder[Piece], reader: Reader[Piece]) -> None:
        self.has_begun = False
        self._decoder = decoder
        self._reader = reader

    def feed(self, piece: bytes, parts: list[ReplyPart]) -> None:
        self._read(self._decoder.feed(piece), parts)

    def finish(self, parts: list[ReplyPart]) -> None:
        if not self._read(self._decoder.finish(), parts):
            parts += self._reader.finish()

    def read_for_sink(self, piece: bytes) -> None:
        """Leave all of it to `feed`."""

    def _read(self, pieces: Iterable[Piece], parts: list[ReplyPart]) -> bool:
        """Append what pieces say; reports whether an error has ended them."""
        for piece in pieces:
            for part in self._reader.feed(piece):
                parts.append(part)
                self.has_begun = True
                if isinstance(part, StreamedError):
                    return True
        return False


class HttpBackend(ABC):
    """An engine at an address; a subclass knows its language."""

    def __init__(self, connection: BackendClient) -> None:
        self._connection = connection

    @property
    def name(self) -> str:
        return self._connection.name

    async def close(self) -> None:
        await self._connection.close()

    @abstractmethod
    async def prepare(self, question: Question) -> OutgoingQuestion:
        """Write what is sent for a question; raises `InvalidRequest` for what cannot be asked."""

    @abstractmethod
    def new_reading(self) -> ReplyDecoder:
        """Begin to read a reply."""

    async def recover(
        self, attempt: OutgoingQuestion, error: BackendFailed
    ) -> OutgoingQuestion | ReplyUnreadable:
        """Return what to ask instead, or that the reply is lost; raises what the error means."""
        raise error

    def error_in(self, body: bytes) -> JsonObject:
        """Find the error in the body of a failure; it has a string `message`."""
        return decode_error(body)

    def meaning(self, refusal: Refusal) -> BackendFailed | ContextOverflow:
        """Return the error that a refusal means for us."""
        return as_error(self.name, refusal)

    async def ask(
        self, question: Question, headers: dict[str, str], sink: EventSink | None = None
    ) -> ReplyEvents:
        attempt = await self.prepare(question)
        while True:
            try:
                async with self._connection.post(
                    attempt.path, attempt.body, headers, may_pause=attempt.may_pause
                ) as answer:
                    reading = await self._begin(answer, sink)
                    end: _End = None
                    while end is None:
                        events, end = self._read(answer, reading, await answer.next_chunk())
                        if events:
                            attempt.has_begun = True
                            yield events
                    if end is not _WHOLE:
                        yield await _last(answer, end)
                    return
            except BackendFailed as error:
                again = await self.recover(attempt, error)
            if isinstance(again, ReplyUnreadable):
                yield (again,)
                return
            attempt = again

    async def _begin(self, answer: BackendResponse, sink: EventSink | None) -> ReplyDecoder:
        """Begin to read an answer; raises what it means where that is no success."""
        if not _is_success(answer.status):
            raise self.read_refusal(await answer.whole())
        reading = self.new_reading()
        if sink is not None:
            answer.set_sink(partial(_hand_on, reading, sink))
        return reading

    async def relay(self, passage: PassthroughRequest, headers: dict[str, str]) -> Pieces:
        """Pass a request on and stream its answer's lines; `headers` (lower case) travel too.

        Nothing is judged or changed: only what is confidential is taken out of errors. A line comes
        in one piece, so that another can stand before and behind it.
        """
        confidential = self._connection.confidential
        async with self._connection.post(passage.path, passage.body(), headers) as answer:
            if not _is_success(answer.status):
                refusal = self.read_refusal(await answer.whole())
                if isinstance(refusal, ContextOverflow):
                    refusal.param = passage.text_field
                raise refusal
            rest: list[bytes] = []
            while piece := await answer.next_chunk():
                whole, newline, beginning = piece.rpartition(b"\n")
                if newline:
                    yield _redact(b"".join((*rest, whole, newline)), confidential)
                    rest.clear()
                rest.append(beginning)
            if left := b"".join(rest):
                yield _redact(left, confidential)

    async def count(self, question: Question, headers: dict[str, str]) -> int | None:
        """Tell nothing: there is no common way to count tokens."""
        return None

    async def count_texts(
        self, texts: Sequence[str], headers: dict[str, str]
    ) -> tuple[int, ...] | None:
        """Tell nothing: there is no common way to count tokens."""
        return None

    async def models(self) -> tuple[BackendModel, ...]:
        return self.read_models(await self.fetch(MODELS))

    def read_models(
        self, found: JsonObject, entries: str = "data", id_field: str = "id"
    ) -> tuple[BackendModel, ...]:
        """Read a list of models; raises `BackendSpokeNonsense` if it is none."""
        served = models_in(found, entries, id_field)
        if served is None:
            raise BackendSpokeNonsense(self.name, "listed no models")
        return served

    async def describe(self, model: str) -> Description:
        """Tell by which names a model goes; never raises."""
        try:
            served = await self.models()
        except BackendFailed:
            return Description((model,), is_provisional=True)
        return Description(names_among(served, model))

    async def health(self) -> Health:
        """Return whether it can answer now; never raises.

        A list of models that is refused or missing does not keep a client with a key of its own
        from getting an answer.
        """
        status = await self.probe(MODELS)
        if status is None:
            return Health.UNREACHABLE
        if status == 503:
            return Health.LOADING
        return Health.READY if status < 500 else Health.UNREACHABLE

    async def probe(self, path: str) -> int | None:
        """Return the status with which a small document comes, None if none comes soon."""
        try:
            return (await self._connection.get(path, patience=HEALTH_PATIENCE)).status
        except BackendFailed:
            return None

    async def fetch(self, path: str) -> JsonObject:
        """Return a small JSON object of its own."""
        return self.object_in(await self._connection.get(path))

    async def submit(self, path: str, body: JsonObject, within: float) -> JsonObject:
        """Post a small object of its own; returns the one that answers `within` seconds."""
        try:
            async with (
                asyncio.timeout(within),
                self._connection.post(path, json.dump(body), {}) as answer,
            ):
                document = await answer.whole()
        except TimeoutError as error:
            raise BackendTimedOut(self.name, "was silent for too long") from error
        return self.object_in(document)

    def object_in(self, document: WholeResponse) -> JsonObject:
        """Read a small JSON object; raises what a refusal means, and for anything else."""
        if not _is_success(document.status):
            raise self.read_refusal(document)
        try:
            value = json.parse(document.body)
        except ValueError as error:
            raise BackendSpokeNonsense(self.name, "sent no JSON", document.body) from error
        if not isinstance(value, dict):
            raise BackendSpokeNonsense(self.name, "sent no JSON object", document.body)
        return value

    def read_refusal(self, document: WholeResponse) -> BackendFailed | ContextOverflow:
        """Return what an answer means that is no success."""
        error = self.error_in(document.body)
        return self.meaning(Refusal(document.status, error, document.retry_after))

    def _read(
        self, answer: BackendResponse, reading: ReplyDecoder, chunk: bytes
    ) -> tuple[list[ReplyEvent], _End]:
        """Read a chunk, or the end of the body where it is empty; an error comes last in it.

        The end of the reply is told by itself where that of the body has not come with it.
        """
        parts: list[ReplyPart] = []
        end: _End = None
        try:
            reading.feed(chunk, parts) if chunk else reading.finish(parts)
        except ValueError:
            end = self._unreadable(reading, chunk)
        # both are the last part: nothing is read behind them
        if parts and isinstance(last := parts[-1], _LAST):
            if isinstance(last, StreamedError):
                error = self._connection.confidential.out_of_error(last.error)
                end = self.meaning(read_streamed_refusal(error))
            else:
                end = _WHOLE if answer.is_whole else last
            if end is not _WHOLE:
                parts.pop()
        return cast("list[ReplyEvent]", parts), end

    def _unreadable(self, reading: ReplyDecoder, chunk: bytes) -> BackendFailed:
        if reading.has_begun and not chunk:
            return BackendUnavailable(self.name, "broke off in the middle of its reply")
        return BackendSpokeNonsense(self.name, "sent no valid reply", chunk or reading.beginning)


async def _last(answer: BackendResponse, end: ReplyFinished | TemperError) -> tuple[ReplyFinished]:
    """Return the end of a reply, after a short wait for that of the body; raises an error."""
    if isinstance(end, TemperError):
        raise end
    await answer.linger()
    return (end,)


def _hand_on(reading: ReplyDecoder, sink: EventSink, chunk: bytes) -> bool:
    """Hand a chunk on; reports whether there was nothing else in it, and it was taken."""
    parts = reading.read_for_sink(chunk)
    return bool(parts) and sink(cast("list[ReplyEvent]", parts))


def _redact(lines: bytes, confidential: Confidential) -> bytes:
    """Take what is confidential out of lines that may be an error; quotes in a text are escaped."""
    may_quote = any(member in lines for member in _MEMBERS_OF_ERRORS)
    return confidential.out_of(lines) if may_quote else lines


def models_in(
    found: JsonObject, entries: str = "data", id_field: str = "id"
) -> tuple[BackendModel, ...] | None:
    """Read a list of models; None if it is none."""
    listed = found.get(entries)
    if not isinstance(listed, list):
        return None
    return tuple(
        BackendModel(model_id, entry)
        for entry in listed
        if isinstance(entry, dict) and isinstance(model_id := entry.get(id_field), str)
    )


def meant_by(model: str, served: Sequence[BackendModel]) -> Sequence[BackendModel]:
    """Find what a request's name stands for: where one model is served, whatever it says."""
    return served if len(served) == 1 else [one for one in served if one.id == model]


def names_among(served: Sequence[BackendModel], model: str) -> tuple[str, ...]:
    """Return all names of a model; vLLM and SGLang tell in `root` what they really loaded."""
    named = [name for one in meant_by(model, served) for name in (one.id, one.details.get("root"))]
    names = dict.fromkeys(name for name in named if isinstance(name, str) and name)
    return tuple(names) or (model,)


def _is_success(status: int) -> bool:
    return 200 <= status < 300
