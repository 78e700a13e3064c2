"""Anthropic's API, or what speaks its Messages language: puts questions, reads replies.

The real one was never met here. It has no grammar, so a constrained attempt forces a call instead,
and no way to count texts, only prompts.
"""

from collections.abc import Sequence
from contextlib import aclosing

from proxy.backends.anthropic_refusals import is_unknown_model, meaning
from proxy.backends.client import (
    Description,
    Health,
    Model,
    PassthroughRequest,
    Pieces,
    ReplyEvents,
)
from proxy.backends.counting import TokenCounter
from proxy.backends.openai_compatible import MODELS, OpenAICompatible, meant_by, models_in
from proxy.backends.refusals import Refusal
from proxy.backends.streamed_reply import StreamedReply
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonObject, JsonValue
from proxy.conversation.replies import EventSink
from proxy.conversation.requests import Question
from proxy.dialects.anthropic_messages.upstream.decode import EventReader, decode_error
from proxy.dialects.anthropic_messages.upstream.encode import encode_count, encode_question
from proxy.dialects.anthropic_messages.upstream.fields import ModelLimits
from proxy.dialects.sse import EventDecoder
from proxy.errors import (
    BackendFailed,
    BackendRefused,
    BackendSpokeNonsense,
    InvalidRequest,
    UnknownModel,
)

ADDRESS = "https://api.anthropic.com"
KEY_HEADER = "x-api-key"
VERSION_HEADER = {"anthropic-version": "2023-06-01"}
MESSAGES = "/v1/messages"

_ALL_MODELS = f"{MODELS}?limit=1000"


class Anthropic:
    """Anthropic's API; its `connection` sends the key and the version of the API."""

    def __init__(self, connection: BackendClient) -> None:
        self._connection = connection
        self._plain = OpenAICompatible(connection)
        self._counter = TokenCounter(connection)
        self._listed: tuple[Model, ...] | None = None

    @property
    def name(self) -> str:
        """The address."""
        return self._connection.name

    async def close(self) -> None:
        """Close every connection."""
        await self._connection.close()

    async def ask(
        self, question: Question, headers: dict[str, str], sink: EventSink | None = None
    ) -> ReplyEvents:
        """Put a question and stream the reply; `headers` (lower case) travel upstream."""
        terms = await self._terms(question.request.model)
        body = encode_question(question, terms)
        try:
            async with aclosing(self._stream(body, headers)) as batches:
                async for batch in batches:
                    yield batch
        except BackendRefused as refusal:
            if not is_unknown_model(refusal):
                raise
            known = tuple(model.id for model in self._listed or ())
            raise UnknownModel(terms.model, known) from refusal

    def relay(self, passage: PassthroughRequest, headers: dict[str, str]) -> Pieces:
        """Pass a request on; Anthropic's own API has none of these paths and says so."""
        return self._plain.relay(passage, headers)

    async def count(self, question: Question, headers: dict[str, str]) -> int | None:
        """Tell how many tokens a question's prompt has; None if unknown, never raises."""
        try:
            body = encode_count(question, await self._terms(question.request.model))
        except InvalidRequest:
            return None
        return await self._counter.count_messages(body, headers)

    async def count_texts(
        self, texts: Sequence[str], headers: dict[str, str]
    ) -> tuple[int, ...] | None:
        """Tell nothing: a text by itself cannot be counted."""
        return None

    async def models(self) -> tuple[Model, ...]:
        """List the models it serves."""
        served = models_in(await self._plain.fetch(_ALL_MODELS))
        if served is None:
            raise BackendSpokeNonsense(self.name, "listed no models")
        self._listed = served
        return served

    async def describe(self, model: str) -> Description:
        """Tell what it says of a model; never raises."""
        try:
            served = await self.models()
        except BackendFailed:
            return Description((model,), is_provisional=True, takes_tools=True)
        found = next(iter(meant_by(model, served)), Model(model, {}))
        return Description(
            (found.id,),
            window=_tokens(found.details.get("max_input_tokens")),
            takes_tools=True,
            senses=("vision",) if _sees(found.details) else (),
            engine="Anthropic",
        )

    async def health(self) -> Health:
        """Tell whether it can answer now; never raises."""
        return await self._plain.health()

    async def _terms(self, model: str) -> ModelLimits:
        """Tell what is known of a model; its list is asked for once, where nobody has yet."""
        if self._listed is None:
            try:
                await self.models()
            except BackendFailed:
                self._listed = ()  # until somebody lists them
        found = next(iter(meant_by(model, self._listed or ())), Model(model, {}))
        if not (name := model or found.id):
            raise InvalidRequest("Name a model; GET /v1/models lists them.", "model")
        details = found.details
        longest, window = details.get("max_tokens"), details.get("max_input_tokens")
        return ModelLimits(name, _tokens(longest), _tokens(window))

    async def _stream(self, body: bytes, headers: dict[str, str]) -> ReplyEvents:
        async with self._connection.post(MESSAGES, body, headers) as answer:
            if answer.status != 200:
                document = await answer.whole()
                error = decode_error(document.body)
                raise meaning(self.name, Refusal(document.status, error, document.retry_after))
            reply = StreamedReply(self._connection, EventDecoder(), EventReader(), meaning)
            async with aclosing(reply.batches(answer)) as batches:
                async for batch in batches:
                    yield batch


def _sees(details: JsonObject) -> bool:
    """Tell whether a model takes pictures."""
    capabilities = details.get("capabilities")
    told = capabilities.get("image_input") if isinstance(capabilities, dict) else None
    return isinstance(told, dict) and told.get("supported") is True


def _tokens(value: JsonValue) -> int | None:
    is_count = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return value if is_count and isinstance(value, int) else None
