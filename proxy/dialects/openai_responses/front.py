"""Responses as a front end: `POST /v1/responses`, and the store that goes with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from proxy.conversation.replies import ReplyEvent, ReplyStarted
from proxy.dialects.front import Decoded, IdsAndClock, Schemas, Sender, StampedAnswering
from proxy.dialects.openai_chat.front import OpenAIFront
from proxy.dialects.openai_responses.decode import DecodedRequest, add_ids, decode_request
from proxy.dialects.openai_responses.response import ResponseState
from proxy.dialects.openai_responses.schema import responses_schemas
from proxy.dialects.openai_responses.store import ResponseStore, StoredResponse
from proxy.dialects.openai_responses.stream import (
    AnswerInProgress,
    ResponseEncoder,
    is_good_end,
)


@dataclass(frozen=True, slots=True)
class ResponsesFront(OpenAIFront):
    """Speaks the Responses language; without a `store` every request has to bring everything."""

    stamp: IdsAndClock
    store: ResponseStore | None = None
    name: str = "responses"

    def schemas(self) -> Schemas:
        return responses_schemas()

    def decode(self, body: bytes, sender: Sender) -> Decoded:
        read = decode_request(body, sender, self.store)
        answering = ResponseAnswering(read, self.stamp, self.store, sender.owner)
        return Decoded(read.request, answering, read.facts, read.accepts_prose, read.compaction)

    def is_complete(self, end: bytes) -> bool:
        return is_good_end(end)


@dataclass(frozen=True, slots=True)
class ResponseAnswering(StampedAnswering):
    """One answer; it is kept for the `owner` when it has ended well, unless nobody wants that."""

    read: DecodedRequest
    stamp: IdsAndClock
    store: ResponseStore | None
    owner: str

    def begin(self, first: ReplyEvent | None) -> ResponseEncoder:
        return ResponseEncoder(self.builder(first))

    def builder(self, first: ReplyEvent | None) -> AnswerInProgress:
        started = first if isinstance(first, ReplyStarted) else ReplyStarted()
        model = self.read.request.model or started.model or ""
        begun = ResponseState(f"resp_{self.stamp.token()}", int(self.stamp.now()), model)
        return AnswerInProgress(self.read.terms, begun, self.stamp, partial(self._keep, begun.id))

    def _keep(self, response_id: str, output: Sequence[bytes], whole: bytes) -> None:
        terms = self.read.terms
        if self.store is None or not terms.is_stored:
            return
        inputs = add_ids(self.read.inputs, response_id)
        kept = StoredResponse(response_id, inputs, output, whole, terms.previous_id)
        self.store.keep(self.owner, kept)
