"""Any engine that speaks OpenAI's chat completions: puts questions, reads replies.

It must not know HTTP's failures (`transport` does) nor judge what a model wrote.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias, cast

from proxy.backends.client import (
    Description,
    Health,
    Model,
    PassthroughRequest,
    Pieces,
    ReplyEvents,
)
from proxy.backends.directives import directives
from proxy.backends.refusals import Refusal, as_error, streamed_refusal
from proxy.backends.relaying import relayed
from proxy.backends.reply_reading import ReplyReading
from proxy.backends.transport import Answer, BackendClient, Document
from proxy.conversation import json
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import EventSink, ReplyEvent, ReplyFinished
from proxy.conversation.requests import Question
from proxy.dialects.openai_chat.encode import encode_question
from proxy.dialects.openai_chat.replies import ReplyPart, StreamedError, decode_error
from proxy.errors import (
    BackendFailed,
    BackendSpokeNonsense,
    BackendUnavailable,
    ContextOverflow,
    TemperError,
)

Directives: TypeAlias = Callable[[Question], Mapping[str, JsonValue]]

CHAT = "/v1/chat/completions"
MODELS = "/v1/models"
HEALTH_PATIENCE = 2.0


class OpenAICompatible:
    """An engine behind `/v1/chat/completions`; `directives` are what its adapter adds."""

    def __init__(self, connection: BackendClient, directives: Directives = directives) -> None:
        self._connection = connection
        self._directives = directives

    @property
    def name(self) -> str:
        """The engine's address."""
        return self._connection.name

    async def close(self) -> None:
        """Close every connection."""
        await self._connection.close()

    async def ask(
        self, question: Question, headers: dict[str, str], sink: EventSink | None = None
    ) -> ReplyEvents:
        """Put a question and stream the reply; `headers` (lower case) travel upstream."""
        async with self._connection.post(CHAT, self.body_of(question), headers) as answer:
            if not _is_success(answer.status):
                raise self._refused(await answer.whole())
            reading = ReplyReading()
            _set_sink(answer, reading, sink)
            is_open = True
            while is_open:
                chunk = await answer.next_chunk()
                is_open = bool(chunk)
                events, failure = self._events(reading, chunk)
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
                if failure is not None:
                    raise failure

    def body_of(self, question: Question) -> bytes:
        """Write what is sent for a question."""
        return encode_question(question, self._directives(question))

    def relay(self, passage: PassthroughRequest, headers: dict[str, str]) -> Pieces:
        """Pass a request on and stream its answer's lines; `headers` (lower case) travel too."""
        return relayed(self._connection, passage, headers)

    async def count(self, question: Question, headers: dict[str, str]) -> int | None:
        """Tell nothing: there is no common way to count tokens."""
        return None

    async def count_texts(
        self, texts: Sequence[str], headers: dict[str, str]
    ) -> tuple[int, ...] | None:
        """Tell nothing: there is no common way to count tokens."""
        return None

    async def models(self) -> tuple[Model, ...]:
        """List the models it serves."""
        served = models_in(await self.fetch(MODELS))
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
        document = await self._connection.get(path)
        if not _is_success(document.status):
            raise self._refused(document)
        try:
            value = json.parse(document.body)
        except ValueError as error:
            raise BackendSpokeNonsense(self.name, "sent no JSON", document.body) from error
        if not isinstance(value, dict):
            raise BackendSpokeNonsense(self.name, "sent no JSON object", document.body)
        return value

    def _events(
        self, reading: ReplyReading, chunk: bytes
    ) -> tuple[list[ReplyEvent], TemperError | None]:
        """Read a chunk, or the end of the body where it is empty; a failure comes last in it."""
        parts: list[ReplyPart] = []
        failure: TemperError | None = None
        try:
            reading.feed(chunk, parts) if chunk else reading.finish(parts)
        except ValueError:
            failure = self._unreadable(reading, chunk)
        if parts and isinstance(last := parts[-1], StreamedError):
            parts.pop()
            error = self._connection.confidential.out_of_error(last.error)
            failure = as_error(self.name, streamed_refusal(error))
        # an error is the last part: nothing is read behind it
        return cast("list[ReplyEvent]", parts), failure

    def _unreadable(self, reading: ReplyReading, chunk: bytes) -> BackendFailed:
        if reading.has_begun and not chunk:
            return BackendUnavailable(self.name, "broke off in the middle of its reply")
        return BackendSpokeNonsense(self.name, "sent no valid reply", chunk or reading.beginning)

    def _refused(self, document: Document) -> BackendFailed | ContextOverflow:
        error = decode_error(document.body)
        return as_error(self.name, Refusal(document.status, error, document.retry_after))


def _set_sink(answer: Answer, reading: ReplyReading, sink: EventSink | None) -> None:
    """Hand on what is like the content before as soon as it comes, if there is a sink."""
    if sink is not None:
        answer.set_sink(partial(_handed_on, reading, sink))


def _handed_on(reading: ReplyReading, sink: EventSink, chunk: bytes) -> bool:
    """Hand a chunk on; reports whether there was nothing else in it, and it was taken."""
    parts = reading.read_for_sink(chunk)
    return bool(parts) and sink(cast("list[ReplyEvent]", parts))


def models_in(listed: JsonObject) -> tuple[Model, ...] | None:
    """Read a list of models; None if it is none."""
    entries = listed.get("data")
    if not isinstance(entries, list):
        return None
    return tuple(
        Model(model_id, entry)
        for entry in entries
        if isinstance(entry, dict) and isinstance(model_id := entry.get("id"), str)
    )


def meant_by(model: str, served: Sequence[Model]) -> Sequence[Model]:
    """Find what a request's name stands for: where one model is served, whatever it says."""
    return served if len(served) == 1 else [one for one in served if one.id == model]


def names_among(served: Sequence[Model], model: str) -> tuple[str, ...]:
    """Return all names of a model; vLLM and SGLang tell in `root` what they really loaded."""
    named = [name for one in meant_by(model, served) for name in (one.id, one.details.get("root"))]
    names = dict.fromkeys(name for name in named if isinstance(name, str) and name)
    return tuple(names) or (model,)


def _is_success(status: int) -> bool:
    return 200 <= status < 300
