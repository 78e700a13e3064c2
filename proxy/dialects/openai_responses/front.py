"""Responses as a front end: `POST /v1/responses`, and the store that goes with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from proxy.conversation import json
from proxy.conversation.replies import ReplyEvent, ReplyStarted
from proxy.dialects.front import Decoded, ErrorReply, IdsAndClock, Problem, Schemas, Sender
from proxy.dialects.openai_chat.encode import count_object, error_object
from proxy.dialects.openai_responses.decode import DecodedRequest, add_ids, decode_request
from proxy.dialects.openai_responses.response import Identity
from proxy.dialects.openai_responses.schema import responses_schemas
from proxy.dialects.openai_responses.store import ResponseStore, StoredResponse
from proxy.dialects.openai_responses.stream import (
    AnswerInProgress,
    ResponseBuilder,
    ResponseEncoder,
    is_good_end,
)


@dataclass(frozen=True, slots=True)
class ResponsesFront:
    """Speaks the Responses language; without a `store` every request has to bring everything."""

    stamp: IdsAndClock
    store: ResponseStore | None = None
    name: str = "responses"
    id_header: str = "x-request-id"

    def schemas(self) -> Schemas:
        return responses_schemas()

    def decode(self, body: bytes, sender: Sender) -> Decoded:
        read = decode_request(body, sender, self.store)
        answering = ResponseAnswering(read, self.stamp, self.store, sender.owner)
        return Decoded(read.request, answering, read.facts, read.accepts_prose, read.compaction)

    def decode_count(self, body: bytes, sender: Sender) -> Decoded:
        return self.decode(body, sender)

    def encode_count(self, tokens: int) -> bytes:
        return count_object(tokens)

    def error(self, problem: Problem, _: str) -> ErrorReply:
        return ErrorReply(problem.status, problem.headers, json.dump(error_object(problem)))

    def is_complete(self, end: bytes) -> bool:
        """Return whether a stream ended with a response."""
        return is_good_end(end)


@dataclass(frozen=True, slots=True)
class ResponseAnswering:
    """One answer; it is kept for the `owner` when it has ended well, unless nobody wants that."""

    read: DecodedRequest
    stamp: IdsAndClock
    store: ResponseStore | None
    owner: str

    def begin(self, first: ReplyEvent | None) -> ResponseEncoder:
        return ResponseEncoder(self._answer(first))

    def builder(self, first: ReplyEvent | None) -> ResponseBuilder:
        return ResponseBuilder(self._answer(first))

    def new_call_id(self) -> str:
        return f"call_{self.stamp.token()}"

    def _answer(self, first: ReplyEvent | None) -> AnswerInProgress:
        started = first if isinstance(first, ReplyStarted) else ReplyStarted()
        model = self.read.request.model or started.model or ""
        identity = Identity(f"resp_{self.stamp.token()}", int(self.stamp.now()), model)
        return AnswerInProgress(
            self.read.terms, identity, self.stamp, partial(self._keep, identity.id)
        )

    def _keep(self, response_id: str, output: Sequence[bytes], whole: bytes) -> None:
        terms = self.read.terms
        if self.store is None or not terms.is_stored:
            return
        inputs = add_ids(self.read.inputs, response_id)
        kept = StoredResponse(response_id, inputs, output, whole, terms.previous_id)
        self.store.keep(self.owner, kept)
