"""An engine at an HTTP address: the common part of all adapters.

An adapter writes requests (`prepare`), reads replies and errors (`new_decoder`, `error_in`,
`meaning`), and handles failures (`recover`). `transport` handles failures of HTTP itself.

    lacks_of -> without_missing_features -> prepare -> post -> decoder -> events
                   ^                     |
                   +---- _adapt <--------+ refused: learn, and send again without the feature
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Generic, Protocol, TypeVar, cast

import msgspec
from msgspec.structs import replace

from proxy import bounds, errors
from proxy.backends import capabilities, client
from proxy.backends.refusals import (
    Confidential,
    Refusal,
    answer_limit_in,
    as_error,
    read_streamed_refusal,
)
from proxy.backends.transport import BackendClient, BackendResponse, WholeResponse
from proxy.conversation import endings, json, replies
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.requests import UpstreamRequest
from proxy.dialects.lenient_json import as_text
from proxy.dialects.openai_chat.replies import ReplyPart, StreamedError, decode_error
from proxy.guardrails.history_repair.refused_forms import find_new_picture

MODELS = "/v1/models"
_HEALTH_SECONDS = 2.0  # seconds for one health check

_MOST_REFUSALS = 5  # a refused request is changed and sent again at most this many times
_LEAST_TOKENS = 64  # tokens of an answer; if fewer fit into the window, the prompt is too long
_STOP = replies.ReplyFinished(endings.STOP)

_ENDS = (replies.ReplyFinished, StreamedError)
_MEMBERS_OF_ERRORS = (b'"error"', b'"message"', b'"detail"')  # FastAPI sends `detail`

Piece = TypeVar("Piece")
Piece_co = TypeVar("Piece_co", covariant=True)
Piece_contra = TypeVar("Piece_contra", contravariant=True)


class OutgoingRequest(msgspec.Struct):
    """An upstream request in the engine's format, without the features that the engine lacks.

    If the engine `may_pause` within its reply, the long timeout for the first byte applies to every
    later byte as well. `began_at` is the event loop's time when the request was written. `lacks`
    are the features that the engine was known to lack at that time. `has_begun` is True once a part
    of the reply's content has arrived.
    """

    path: str
    body: bytes
    upstream_request: UpstreamRequest
    may_pause: bool = False
    began_at: float = 0.0
    lacks: capabilities.Lacks = msgspec.field(default_factory=dict)
    has_begun: bool = False


class ReplyDecoder(Protocol):
    """Decodes the body of one reply, chunk by chunk; raises ValueError for invalid bytes.

    `beginning` is the first chunk, for error messages. `has_begun` is True once a valid part was
    decoded. `is_ending` is True once the reply is complete except for its end mark (`[DONE]`).
    """

    @property
    def beginning(self) -> bytes: ...

    @property
    def has_begun(self) -> bool: ...

    @property
    def is_ending(self) -> bool: ...

    def feed(self, chunk: bytes, parts: list[ReplyPart], /) -> None:
        """Append the parts that `chunk` completes; a `StreamedError` is always the last part."""

    def finish(self, parts: list[ReplyPart], /) -> None:
        """Append the parts that the end of the body completes."""

    def read_for_sink(self, chunk: bytes, /) -> Sequence[replies.ReplyEvent] | None:
        """Return a chunk's events if they differ from the previous events only in their text.

        Returns None, and decodes nothing, for any other chunk. The caller then passes it to `feed`.
        """


class Decoder(Protocol[Piece_co]):
    """Splits a body into pieces: lines, or SSE events; raises ValueError for invalid bytes."""

    def feed(self, data: bytes, /) -> Iterable[Piece_co]: ...

    def finish(self) -> Iterable[Piece_co]: ...


class Reader(Protocol[Piece_contra]):
    """Converts the pieces of one reply; raises ValueError for an invalid or incomplete reply."""

    def feed(self, piece: Piece_contra, /) -> list[ReplyPart]: ...

    def finish(self) -> list[ReplyPart]: ...


class PieceDecoder(Generic[Piece]):
    """Decodes a reply in a format other than chat completions.

    `decoder` splits the body into pieces, and `reader` converts each piece into parts.
    """

    beginning = b""
    is_ending = False

    def __init__(self, decoder: Decoder[Piece], reader: Reader[Piece]) -> None:
        self.has_begun = False
        self._decoder = decoder
        self._reader = reader

    def feed(self, chunk: bytes, parts: list[ReplyPart]) -> None:
        self._read(self._decoder.feed(chunk), parts)

    def finish(self, parts: list[ReplyPart]) -> None:
        if not self._read(self._decoder.finish(), parts):
            parts += self._reader.finish()

    def read_for_sink(self, chunk: bytes) -> None:
        """Return None, so that the caller passes every chunk to `feed`."""

    def _read(self, pieces: Iterable[Piece], parts: list[ReplyPart]) -> bool:
        """Convert pieces and append their parts; return whether an error ended the reply."""
        for piece in pieces:
            for part in self._reader.feed(piece):
                parts.append(part)
                self.has_begun = True
                if isinstance(part, StreamedError):
                    return True
        return False


class _Yielder:
    """Yields to other tasks while bytes without events arrive, such as SSE comments.

    Reading from a full socket never waits, so a flood of comments would stop all other requests.
    """

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._since = self._clock()

    async def yield_if_due(self) -> None:
        if self._clock() - self._since > _MOST_BLOCKING:
            await asyncio.sleep(0)
            self._since = self._clock()


_MOST_BLOCKING = 0.01  # seconds
# These events have no content: after them, the request can still be sent again.
_WITHOUT_CONTENT = frozenset((replies.ReplyStarted, replies.PromptProgress))
_TEXTS = (replies.TextDelta, replies.ReasoningDelta, replies.ToolCallArgumentsDelta)
_MANY_EVENTS = 256  # the events of a longer list are yielded one by one
_LONG_TEXT = 16_384  # characters; a longer text is split, because it would block other tasks


class HttpBackend(ABC):
    """An engine at an address; a subclass implements its API."""

    takes_tools: bool | None = None  # whether all models take tools; None if the template decides
    # the features to drop, one after the other, if the engine's parser cannot read a reply
    parsers: tuple[capabilities.Capability, ...] = (capabilities.Capability.TOOLS,)

    def __init__(
        self, connection: BackendClient, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connection = connection
        self.learned = capabilities.LearnedRefusals(connection.name, clock)
        self._created: dict[str, JsonValue] = {}

    @property
    def name(self) -> str:
        return self._connection.name

    def lacks(self, model: str) -> capabilities.Lacks:
        """Return the known missing features of the engine for a model."""
        return self.learned.of(model)

    def lacks_of(
        self, upstream_request: UpstreamRequest, headers: client.Headers
    ) -> capabilities.Lacks:
        """Return the missing features for a request.

        The tools of a conversation stay where they were in its first request: in the prompt, or in
        the API's `tools` field. Moving them would invalidate the prompt cache.
        """
        request = upstream_request.request
        return self.learned.for_conversation(self.lacks(request.model), request, headers)

    def name_lacks(self, *names: str, is_only: bool) -> tuple[str, ...]:
        """Return the names of the features that are missing for a model with these `names`.

        An engine's only model (`is_only`) answers to every name, so features that were refused
        under any other name are missing as well.
        """
        models = (*names, *self.learned.models()) if is_only else names
        return tuple(
            sorted({capability.name.lower() for name in models for capability in self.lacks(name)})
        )

    async def close(self) -> None:
        await self._connection.close()

    @abstractmethod
    async def prepare(
        self, upstream_request: UpstreamRequest, lacks: capabilities.Lacks
    ) -> OutgoingRequest:
        """Write an upstream request, without the features in `lacks`, in the engine's format.

        Raises `InvalidRequest` for a request that the engine cannot express.
        """

    @abstractmethod
    def new_decoder(self) -> ReplyDecoder:
        """Return the decoder of one reply."""

    def readdress(self, request: client.PassthroughRequest) -> client.PassthroughRequest:
        """Replace the model of a forwarded request by the engine's name for it."""
        return request

    async def recover(
        self, attempt: OutgoingRequest, error: errors.BackendFailed
    ) -> OutgoingRequest | replies.ReplyUnreadable:
        """Return the request to send after a failed attempt, or `ReplyUnreadable`.

        Raises `error`, or a more specific error, if the failure is final.
        """
        raise error

    def error_in(self, body: bytes) -> JsonObject:
        """Return the error object in the body of a failure; it has a string `message`."""
        return decode_error(body)

    def meaning(self, refusal: Refusal) -> errors.BackendFailed | errors.ContextOverflow:
        return as_error(self.name, refusal)

    async def stream(
        self,
        upstream_request: UpstreamRequest,
        headers: client.Headers,
        sink: replies.EventSink | None = None,
    ) -> client.ReplyEvents:
        lacks = self.lacks_of(upstream_request, headers)
        attempt: OutgoingRequest | Sequence[replies.ReplyEvent] = await self._prepare_without(
            upstream_request, lacks
        )
        while isinstance(attempt, OutgoingRequest):  # repeated only after a failure
            try:
                async with self._connection.post(
                    attempt.path, attempt.body, headers, may_pause=attempt.may_pause
                ) as response:
                    decoder = await self._begin(response, sink)
                    events: list[replies.ReplyEvent] = []
                    end, may_be_long, yielder = None, False, None
                    while end is None:
                        events, end = self._read(response, decoder, await response.next_chunk())
                        attempt.has_begun = attempt.has_begun or _has_content(events)
                        if may_be_long and events:
                            async for part in _split_long(events):
                                yield part
                        elif events:
                            yield events
                        else:
                            yielder = yielder or _Yielder()
                            await yielder.yield_if_due()
                        may_be_long = not events  # the next event spans several chunks
                    # the client gets the end only after the connection is free for the next request
                    if not (events and events[-1] is end):
                        yield await _end_of_reply(response, end)
                    return
            except (errors.ContextOverflow, errors.BackendFailed) as error:
                attempt = await self._next_attempt(upstream_request, attempt, error, headers)
        yield attempt

    async def _prepare_without(
        self, upstream_request: UpstreamRequest, lacks: capabilities.Lacks
    ) -> OutgoingRequest:
        if (limit := upstream_request.refusals.most_tokens) is not None:
            upstream_request = replace(
                upstream_request, request=upstream_request.request.limit_tokens(limit)
            )
        attempt = await self.prepare(
            capabilities.without_missing_features(upstream_request, lacks), lacks
        )
        attempt.lacks = lacks
        return attempt

    async def _next_attempt(
        self,
        upstream_request: UpstreamRequest,
        attempt: OutgoingRequest,
        error: errors.ContextOverflow | errors.BackendFailed,
        headers: client.Headers,
    ) -> OutgoingRequest | Sequence[replies.ReplyEvent]:
        """Return the request to send after a failure, or the last events of the reply.

        Raises an error if the failure is final.
        """
        if (text := _failed_text(attempt, error)) is not None:
            return (replies.ReplyStarted(), replies.TextDelta(text), _STOP)
        # if the client requests more tokens than fit into the window, request as many as fit
        if not attempt.has_begun and _lower_limit(upstream_request, len(attempt.body), error):
            return await self._prepare_without(upstream_request, attempt.lacks)
        if isinstance(error, errors.ContextOverflow):
            raise error
        changed = await self._adapt(upstream_request, attempt, error, headers)
        changed = changed or await self.recover(attempt, error)
        return (changed,) if isinstance(changed, replies.ReplyUnreadable) else changed

    async def _adapt(
        self,
        upstream_request: UpstreamRequest,
        attempt: OutgoingRequest,
        error: errors.BackendFailed,
        headers: client.Headers,
    ) -> OutgoingRequest | replies.ReplyUnreadable | None:
        """Learn the refused feature; return a request without it, or `ReplyUnreadable`.

        Raises `InvalidRequest` for a feature that cannot be dropped.
        """
        if not isinstance(error, errors.BackendRefused):
            return None
        is_lost = error.failed_text is not None
        is_lost = is_lost or capabilities.is_unreadable(error, attempt.upstream_request.messages)
        for missing, known in self._blamed_features(attempt.upstream_request, error):
            if missing in attempt.lacks:
                continue
            retry = await self._prepare_without(upstream_request, {**attempt.lacks, missing: known})
            if retry.body != attempt.body:  # the request uses the feature
                self.learned.add(upstream_request.request.model, missing, known)
                if missing is capabilities.Capability.TOOLS:
                    self.learned.note_described_tools(upstream_request.request, headers)
                upstream_request.refusals.acted += 1
                if is_lost or (attempt.has_begun and upstream_request.tools):
                    # the engine's grammar failed during the reply; the turn retries without the
                    # grammar
                    is_lost = True
                elif not attempt.has_begun and upstream_request.refusals.acted <= _MOST_REFUSALS:
                    return retry
                break
        return replies.ReplyUnreadable(error.message) if is_lost else None

    def _blamed_features(
        self, upstream_request: UpstreamRequest, error: errors.BackendRefused
    ) -> Iterable[tuple[capabilities.Capability, str]]:
        """Return the features that a refusal blames.

        Raises `InvalidRequest` if the engine refuses images, and the user sent one since the last
        answer.
        """
        if capabilities.refuses_pictures(error):
            field = find_new_picture(upstream_request.messages)
            if field is not None:
                raise errors.InvalidRequest(error.message, field) from error
            features = [capabilities.Capability.RESULT_PICTURES] if "tool" in error.message else []
            return [
                (capability, "") for capability in (*features, capabilities.Capability.PICTURES)
            ]
        if error.failed_text is not None:
            return ()
        if capabilities.is_unreadable(error, upstream_request.messages):
            return [(capability, "") for capability in self.parsers]
        return capabilities.suspected_features(error, upstream_request)

    async def _begin(
        self, response: BackendResponse, sink: replies.EventSink | None
    ) -> ReplyDecoder:
        """Return the decoder of a successful response; raises an error for a refusal."""
        if not _is_success(response.status):
            raise self.read_refusal(await response.read_all())
        decoder = self.new_decoder()
        if sink is not None:
            response.set_sink(partial(_offer_to_sink, decoder, sink))
        return decoder

    async def relay(
        self, request: client.PassthroughRequest, headers: client.Headers
    ) -> client.Pieces:
        """Stream the reply to a forwarded request, with the secrets in its errors redacted.

        Each piece consists of whole lines, so that the caller can insert an error event or a
        keep-alive between two pieces.
        """
        request = self.readdress(request)
        confidential = self._connection.confidential
        sending = self._connection.post(
            request.path, request.body(), headers, method=request.method
        )
        async with sending as response:
            if not _is_success(response.status):
                refusal = self.read_refusal(await response.read_all())
                if isinstance(refusal, errors.ContextOverflow):
                    refusal.param = request.text_field
                raise refusal
            incomplete_line: list[bytes] = []
            while piece := await response.next_chunk():
                lines, newline, beginning = piece.rpartition(b"\n")
                if newline:
                    yield _redact(b"".join((*incomplete_line, lines, newline)), confidential)
                    incomplete_line.clear()
                incomplete_line.append(beginning)
            if last_line := b"".join(incomplete_line):
                yield _redact(last_line, confidential)

    # Engines have no common endpoint that counts tokens, so these counts are unknown here.

    async def count(self, upstream_request: UpstreamRequest, headers: client.Headers) -> int | None:
        return None

    async def count_texts(
        self, texts: Iterable[str], headers: client.Headers
    ) -> tuple[int, ...] | None:
        return None

    async def prompt_tokens(
        self, upstream_request: UpstreamRequest, headers: client.Headers
    ) -> client.PromptTokens:
        return None

    async def models(self) -> tuple[client.BackendModel, ...]:
        return self.read_models(await self.fetch(MODELS))

    def read_models(
        self, document: JsonObject, entries: str = "data", id_field: str = "id"
    ) -> tuple[client.BackendModel, ...]:
        """Read a list of models; raises `BackendReplyInvalid` for any other document.

        llama-server and vLLM report the current time as `created`. The result repeats the value of
        the first call for each model, so that the list changes only if the models change.
        """
        served = models_in(document, entries, id_field)
        if served is None:
            raise errors.BackendReplyInvalid(self.name, "sent an invalid list of models")
        self._created = {
            model.id: self._created.get(model.id, model.details["created"])
            for model in served
            if "created" in model.details
        }
        return tuple(
            client.BackendModel(model.id, {**model.details, "created": self._created[model.id]})
            if model.id in self._created
            else model
            for model in served
        )

    async def describe(self, model: str) -> client.Description:
        try:
            served = await self.models()
        except errors.BackendFailed:
            return client.Description((model,), is_provisional=True, takes_tools=self.takes_tools)
        return await self.describe_listed(served, model)

    async def describe_listed(
        self, served: Sequence[client.BackendModel], model: str
    ) -> client.Description:
        """Describe a model by its entry in the list, if it has one."""
        return client.Description(names_of_model(served, model))

    async def health(self) -> client.Health:
        # a server that refuses the list, or has none, may still answer a client with its own key
        match await self.probe(MODELS):
            case 503:
                return client.Health.LOADING
            case int(status) if status < 500:
                return client.Health.READY
            case _:
                return client.Health.UNREACHABLE

    async def probe(self, path: str) -> int | None:
        """Return the status of a GET request for a small document; None without a response."""
        try:
            return (await self._connection.fetch(path, within=_HEALTH_SECONDS)).status
        except errors.BackendFailed:
            return None

    async def fetch(self, path: str) -> JsonObject:
        """Fetch a small JSON object."""
        return self.object_in(await self._connection.fetch(path))

    async def read_text(self, path: str, member: str) -> str:
        """Fetch a text member of a small JSON object, "" if there is none; never raises."""
        try:
            return as_text((await self.fetch(path)).get(member))
        except errors.BackendFailed:
            return ""

    async def submit(self, path: str, body: JsonObject, within: float) -> JsonObject:
        """Post a small JSON object; return the response, which must arrive `within` seconds."""
        content = json.dump(body)
        return self.object_in(await self._connection.fetch(path, content, within=within))

    def object_in(self, document: WholeResponse) -> JsonObject:
        """Parse a small JSON object; raises `BackendFailed` for a refusal and for other content."""
        if not _is_success(document.status):
            refusal = self.read_refusal(document)
            # the request had no prompt, so it cannot be too long
            if isinstance(refusal, errors.ContextOverflow):
                refusal = errors.BackendRefused(self.name, document.status, refusal.problem)
            raise refusal
        try:
            value = json.parse(document.body)
        except ValueError as error:
            problem = "sent invalid JSON"
            if len(document.body) == bounds.DOCUMENT_BYTES:  # the transport reads no more
                problem = f"sent more than {bounds.DOCUMENT_BYTES} bytes"
            raise errors.BackendReplyInvalid(self.name, problem, document.body) from error
        if not isinstance(value, dict):
            problem = "sent JSON that is not an object"
            raise errors.BackendReplyInvalid(self.name, problem, document.body)
        return value

    def read_refusal(
        self, document: WholeResponse
    ) -> errors.BackendFailed | errors.ContextOverflow:
        error = self.error_in(document.body)
        return self.meaning(Refusal(document.status, error, document.retry_after))

    def _read(
        self, response: BackendResponse, decoder: ReplyDecoder, chunk: bytes
    ) -> tuple[list[replies.ReplyEvent], replies.ReplyFinished | errors.TemperError | None]:
        """Decode a chunk; return its events, and the end of the reply if it has been reached.

        The chunk is b"" at the end of the body. The events include the end of the reply only if the
        whole body has arrived.
        """
        parts: list[ReplyPart] = []
        end: replies.ReplyFinished | errors.TemperError | None = None
        try:
            decoder.feed(chunk, parts) if chunk else decoder.finish(parts)
        except ValueError:
            end = self._unreadable(decoder, chunk)
            if decoder.is_ending:  # data after the finish reason cannot make the reply invalid
                with suppress(ValueError):
                    decoder.finish(parts)
                    end = None
        if decoder.is_ending and (parts or not response.is_end_expected):
            response.expect_end()
        # nothing is decoded after the end of the reply or an error
        if parts and isinstance(last := parts[-1], _ENDS):
            if isinstance(last, replies.ReplyFinished):
                end = last
            else:
                error = self._connection.confidential.redact_error(last.error)
                end = self.meaning(read_streamed_refusal(error))
            if end is not last or not response.is_whole:
                parts.pop()
        return cast("list[replies.ReplyEvent]", parts), end

    def _unreadable(self, decoder: ReplyDecoder, chunk: bytes) -> errors.BackendFailed:
        if decoder.has_begun and not chunk:
            problem = "closed the connection during its reply"
            return errors.BackendUnavailable(self.name, problem)
        return errors.BackendReplyInvalid(
            self.name, "sent an invalid reply", chunk or decoder.beginning
        )


def _failed_text(attempt: OutgoingRequest, error: errors.TemperError) -> str | None:
    """Return the model's text if the engine could not parse it, and quotes it in its error."""
    if attempt.has_begun or not isinstance(error, errors.BackendRefused):
        return None
    return error.failed_text or None


def _lower_limit(upstream_request: UpstreamRequest, size: int, error: errors.TemperError) -> bool:
    """Lower the answer's token limit to the free part of the window; return whether it was lowered.

    It is lowered only if the prompt fits. If the engine does not report the exact length of the
    prompt (vLLM reports "at least N"), the length is estimated from the `size` of the body in
    bytes. Some engines count only roughly, so a part of the window stays free. If the computed free
    part is not smaller than the refused limit, the limit is divided by four instead.
    """
    limit = upstream_request.refusals.most_tokens or upstream_request.request.max_tokens
    if limit is None or limit <= _LEAST_TOKENS:
        return False
    free_tokens: int | None = None
    if isinstance(error, errors.BackendRefused):
        free_tokens = answer_limit_in(error.message)
    elif isinstance(error, errors.ContextOverflow) and (window := error.window) is not None:
        # Without a reported length, two estimates are used: a low one (4 bytes per token) to decide
        # whether the prompt fits, and a high one (3 bytes per token) to compute the free part.
        prompt = error.prompt_tokens
        if (size // 4 if prompt is None else prompt) + _LEAST_TOKENS <= window:
            free_tokens = window - window // 64 - (size // 3 if prompt is None else prompt)
    if free_tokens is None:
        return False
    upstream_request.refusals.most_tokens = max(
        free_tokens if free_tokens < limit else limit // 4, _LEAST_TOKENS
    )
    return True


def _has_content(events: list[replies.ReplyEvent]) -> bool:
    return not _WITHOUT_CONTENT.issuperset(map(type, events))


async def _end_of_reply(
    response: BackendResponse, end: replies.ReplyFinished | errors.TemperError
) -> tuple[replies.ReplyFinished]:
    """Wait briefly for the end of the body, then return the end of the reply.

    Raises the error that ended the reply, if there is one.
    """
    if isinstance(end, errors.TemperError):
        raise end
    await response.linger()  # a connection is reusable only after its body was read
    return (end,)


def _offer_to_sink(decoder: ReplyDecoder, sink: replies.EventSink, chunk: bytes) -> bool:
    """Offer a chunk to the sink; return whether it contains only text and the sink took it."""
    events = decoder.read_for_sink(chunk)
    return sink(events) if events else False


async def _split_long(events: list[replies.ReplyEvent]) -> client.ReplyEvents:
    """Yield many or long events in parts, so that other tasks run in between."""
    if len(events) <= _MANY_EVENTS and not any(map(_is_long, events)):
        yield events
        return
    for event in events:
        if isinstance(event, _TEXTS) and _is_long(event):
            for start in range(0, len(event.text), _LONG_TEXT):
                yield [replace(event, text=event.text[start : start + _LONG_TEXT])]
                await asyncio.sleep(0)
        else:
            yield [event]
            await asyncio.sleep(0)


def _is_long(event: replies.ReplyEvent) -> bool:
    return isinstance(event, _TEXTS) and len(event.text) > _LONG_TEXT


def _redact(lines: bytes, confidential: Confidential) -> bytes:
    r"""Redact secrets in lines that may be an error, because they have a member like `"error"`.

    The same word in the text of a reply does not match, because JSON escapes the quotes in strings:
    `\"error\"`.
    """
    may_quote = any(member in lines for member in _MEMBERS_OF_ERRORS)
    return confidential.redact(lines) if may_quote else lines


def models_in(
    document: JsonObject, entries: str = "data", id_field: str = "id"
) -> tuple[client.BackendModel, ...] | None:
    """Read a list of models; None if the document contains no list."""
    models = document.get(entries)
    if not isinstance(models, list):
        return None
    return tuple(
        client.BackendModel(model_id, entry)
        for entry in models
        if isinstance(entry, dict) and isinstance(model_id := entry.get(id_field), str)
    )


def models_named(
    model: str, served: Sequence[client.BackendModel]
) -> Sequence[client.BackendModel]:
    """Return the served models with this name; an engine's only model matches every name."""
    return served if len(served) == 1 else [entry for entry in served if entry.id == model]


def names_of_model(served: Sequence[client.BackendModel], model: str) -> tuple[str, ...]:
    """Return all names of a model; vLLM and SGLang report the loaded model in `root`."""
    candidates = [
        name
        for match in models_named(model, served)
        for name in (match.id, match.details.get("root"))
    ]
    names = dict.fromkeys(name for name in candidates if isinstance(name, str) and name)
    return tuple(names) or (model,)


def _is_success(status: int) -> bool:
    return 200 <= status < 300
