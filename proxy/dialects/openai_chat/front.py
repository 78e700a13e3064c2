"""Chat completions as a front end: the language that all others are held against."""

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.replies import ReplyEvent, ReplyStarted
from proxy.conversation.requests import Request
from proxy.dialects import sse
from proxy.dialects.front import (
    Decoded,
    ErrorReply,
    IdsAndClock,
    ListedModel,
    Page,
    Problem,
    Schemas,
    Sender,
)
from proxy.dialects.openai_chat.decode import decode_request
from proxy.dialects.openai_chat.encode import (
    ChunkEncoder,
    CompletionBuilder,
    Identity,
    count_object,
    error_object,
)
from proxy.dialects.openai_chat.schema import chat_schemas


class ChatCatalogue:
    """Lists models in OpenAI's shape, whose list has no pages; what is known of one is added."""

    def models(self, models: Sequence[ListedModel], page: Page) -> JsonObject:
        """Write the list."""
        del page
        return {"object": "list", "data": [self.model(model) for model in models]}

    def model(self, model: ListedModel) -> JsonObject:
        entry: JsonObject = {"created": 0, "owned_by": "temper", **model.details}
        return {**entry, "id": model.id, "object": "model"}


@dataclass(frozen=True, slots=True)
class ChatFront:
    """Speaks `POST /v1/chat/completions`."""

    stamp: IdsAndClock
    name: str = "chat"
    id_header: str = "x-request-id"

    def schemas(self) -> Schemas:
        return chat_schemas()

    def decode(self, body: bytes, sender: Sender) -> Decoded:
        del sender
        request = decode_request(body)
        return Decoded(request, ChatAnswering(request, self.stamp))

    def decode_count(self, body: bytes, sender: Sender) -> Decoded:
        """Read a request as if it were to be answered."""
        return self.decode(body, sender)

    def encode_count(self, tokens: int) -> bytes:
        return count_object(tokens)

    def error(self, problem: Problem, _: str) -> ErrorReply:
        return ErrorReply(problem.status, problem.headers, json.dump(error_object(problem)))

    def is_complete(self, end: bytes) -> bool:
        """Return whether a stream ended with its end mark."""
        return end.endswith(sse.DONE)


@dataclass(frozen=True, slots=True)
class ChatAnswering:
    """One answer to a chat request, identified as the backend did as far as it has."""

    request: Request
    stamp: IdsAndClock

    def begin(self, first: ReplyEvent | None) -> ChunkEncoder:
        return ChunkEncoder(self._identity(first), self.request.include_usage)

    def builder(self, first: ReplyEvent | None) -> CompletionBuilder:
        return CompletionBuilder(self._identity(first))

    def new_call_id(self) -> str:
        return f"call_{self.stamp.token()}"

    def _identity(self, first: ReplyEvent | None) -> Identity:
        started = first if isinstance(first, ReplyStarted) else ReplyStarted()
        made_id = started.id or f"chatcmpl-{self.stamp.token()}"
        created = int(self.stamp.now())
        return Identity.of(started, id=made_id, created=created, model=self.request.model)
