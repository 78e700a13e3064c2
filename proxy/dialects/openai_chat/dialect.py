"""Chat completions as a dialect; requests of all other dialects are converted to this format.

    {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    -> {"id": "chatcmpl-1", "object": "chat.completion", "model": "m", "usage": {...}, "choices":
        [{"index": 0, "message": {"role": "assistant", "content": "Hi!"}, "finish_reason": "stop"}]}

If Temper does not know a member of the request, it sends the member to the engine unchanged.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import ReplyStarted
from proxy.conversation.requests import Request
from proxy.dialects import dialect, sse
from proxy.dialects.lenient_json import ESTIMATED, as_object
from proxy.dialects.openai_chat import encode
from proxy.dialects.openai_chat.decode import decode_request
from proxy.dialects.openai_chat.schema import chat_schemas


class ChatCatalogue:
    """The model list in OpenAI's format, which has no pages; includes all known details."""

    def models(self, models: Sequence[dialect.ListedModel], page: dialect.Page) -> JsonObject:
        del page
        return {"object": "list", "data": [self.model(model) for model in models]}

    def model(self, model: dialect.ListedModel) -> JsonObject:
        entry: JsonObject = {"created": 0, "owned_by": "temper"}
        if model.window is not None:  # under both names that clients read: OpenRouter's and vLLM's
            entry |= {"context_length": model.window, "max_model_len": model.window}
        entry |= model.details
        return {**entry, "id": model.id, "object": "model"}


class OpenAIDialect(ABC):
    """The common part of OpenAI's APIs: errors, request ids and token counts."""

    __slots__ = ()
    id_header = "x-request-id"
    stream_type = sse.MEDIA_TYPE

    @abstractmethod
    def decode(self, body: bytes, client: dialect.Client) -> dialect.Decoded:
        """Read a request; raises `InvalidRequest`."""

    def decode_count(self, body: bytes, client: dialect.Client) -> dialect.Decoded:
        return self.decode(body, client)

    def encode_count(self, tokens: int, *, is_estimated: bool) -> bytes:
        count: JsonObject = {"object": "response.input_tokens", "input_tokens": tokens}
        return json.dump({**count, **(ESTIMATED if is_estimated else {})})

    def error(self, problem: dialect.Problem, _: str) -> dialect.ErrorReply:
        return dialect.ErrorReply(
            problem.status, problem.headers, json.dump(encode.error_object(problem))
        )


@dataclass(frozen=True, slots=True)
class ChatDialect(OpenAIDialect):
    """The dialect of `POST /v1/chat/completions`."""

    stamp: dialect.IdsAndClock
    name: str = "chat"

    def schemas(self) -> dialect.Schemas:
        return chat_schemas()

    def decode(self, body: bytes, client: dialect.Client) -> dialect.Decoded:
        del client
        request = decode_request(body)
        return dialect.Decoded(request, chat_answering(request, self.stamp))

    def is_complete(self, end: bytes) -> bool:
        return end.endswith(sse.DONE)


def chat_answering(request: Request, stamp: dialect.IdsAndClock) -> dialect.Answering:
    """Return the writers of a chat answer, with the engine's id and model if it sends them."""

    def identify(started: ReplyStarted) -> encode.Identity:
        return encode.Identity(
            started.id or f"chatcmpl-{stamp.token()}",
            int(stamp.now()) if started.created is None else started.created,
            started.model or request.model,
            started.system_fingerprint,
        )

    options = request.fields.get("stream_options", b"")
    has_usage = bool(options) and as_object(json.parse(options)).get("include_usage") is True
    stream = partial(encode.ChunkEncoder, include_usage=has_usage)
    return dialect.IdentifiedAnswering(identify, stream, encode.CompletionBuilder, stamp.call_id)
