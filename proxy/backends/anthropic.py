"""Client of Anthropic's Messages API, or of a server that implements it.

It was not tested with the real API. The API cannot constrain its output with a grammar, so a
constrained attempt forces a call instead. The API counts the tokens of prompts, but not of single
texts.
"""

from collections.abc import Sequence

from proxy import errors
from proxy.backends import http_backend
from proxy.backends.capabilities import Lacks
from proxy.backends.client import BackendModel, Description, Headers
from proxy.backends.counting import TokenCounter
from proxy.backends.refusals import Refusal, as_error
from proxy.backends.transport import BackendClient
from proxy.conversation.json import JsonObject
from proxy.conversation.requests import UpstreamRequest
from proxy.dialects.anthropic_messages.upstream.decode import EventReader, decode_error
from proxy.dialects.anthropic_messages.upstream.encode import encode_count, encode_request
from proxy.dialects.anthropic_messages.upstream.fields import ModelLimits
from proxy.dialects.lenient_json import as_positive, member
from proxy.dialects.sse import EventDecoder

OVERLOADED = 529  # Anthropic's HTTP status for an overloaded server
_USUAL_PAUSE = 5  # seconds before a retry, if the response has no Retry-After header


ADDRESS = "https://api.anthropic.com"
KEY_HEADER = "x-api-key"
VERSION_HEADER = {"anthropic-version": "2023-06-01"}
MESSAGES = "/v1/messages"

_ALL_MODELS = f"{http_backend.MODELS}?limit=1000"


class Anthropic(http_backend.HttpBackend):
    """Anthropic's API, without passthrough paths.

    The `connection` must add the headers `x-api-key` and `anthropic-version` to every request.
    """

    takes_tools = True

    def __init__(self, connection: BackendClient) -> None:
        super().__init__(connection)
        self._counter = TokenCounter(connection)
        self._listed: tuple[BackendModel, ...] | None = None

    async def prepare(
        self, upstream_request: UpstreamRequest, lacks: Lacks
    ) -> http_backend.OutgoingRequest:
        limits = await self._limits(upstream_request.request.model)
        return http_backend.OutgoingRequest(
            MESSAGES, encode_request(upstream_request, limits), upstream_request
        )

    def new_decoder(self) -> http_backend.ReplyDecoder:
        return http_backend.PieceDecoder(EventDecoder(), EventReader())

    def error_in(self, body: bytes) -> JsonObject:
        return decode_error(body)

    def meaning(self, refusal: Refusal) -> errors.BackendFailed | errors.ContextOverflow:
        if refusal.status == OVERLOADED or refusal.error.get("type") == "overloaded_error":
            seconds = refusal.retry_after.strip()
            # `int` raises ValueError for a number of thousands of digits
            is_number = seconds.isdecimal() and seconds.isascii() and len(seconds) < 10
            pause = int(seconds) if is_number else _USUAL_PAUSE
            return errors.BackendUnavailable(self.name, "is overloaded", retry_after=pause)
        return as_error(self.name, refusal)

    async def recover(
        self, attempt: http_backend.OutgoingRequest, error: errors.BackendFailed
    ) -> http_backend.OutgoingRequest:
        if not isinstance(error, errors.BackendRefused):
            raise error
        if (error.status, error.kind) != (404, "not_found_error"):
            raise error
        limits = await self._limits(attempt.upstream_request.request.model)
        known = tuple(model.id for model in self._listed or ())
        raise errors.UnknownModel(limits.model, known) from error

    async def count(self, upstream_request: UpstreamRequest, headers: Headers) -> int | None:
        try:
            body = encode_count(
                upstream_request, await self._limits(upstream_request.request.model)
            )
        except errors.InvalidRequest:  # the client gets this error when the request itself is sent
            return None
        return await self._counter.count_messages(body, headers)

    async def models(self) -> tuple[BackendModel, ...]:
        self._listed = self.read_models(await self.fetch(_ALL_MODELS))
        return self._listed

    async def describe_listed(self, served: Sequence[BackendModel], model: str) -> Description:
        entry = _find(model, served)
        sees = member(entry.details, "capabilities", "image_input", "supported") is True
        return Description(
            (entry.id,),
            window=as_positive(entry.details.get("max_input_tokens")),
            takes_tools=self.takes_tools,
            senses=("vision",) if sees else (),
            engine="Anthropic",
            lacks=self.name_lacks(model, is_only=False),
        )

    async def _limits(self, model: str) -> ModelLimits:
        """Return the limits of a model from the list of models, which is fetched only once."""
        if self._listed is None:
            try:
                await self.models()
            except errors.BackendFailed:
                # After a failure, the list stays empty until a client lists the models. Otherwise,
                # every request would wait for another attempt to fetch the list.
                self._listed = ()
        entry = _find(model, self._listed or ())
        if not (name := model or entry.id):
            raise errors.InvalidRequest(
                "A model name is required. GET /v1/models lists the available models.", "model"
            )
        details = entry.details
        longest, window = details.get("max_tokens"), details.get("max_input_tokens")
        return ModelLimits(name, as_positive(longest), as_positive(window))


def _find(model: str, served: Sequence[BackendModel]) -> BackendModel:
    return next(iter(http_backend.models_named(model, served)), BackendModel(model, {}))
