"""Ollama's API as a front end: `POST /api/chat` and `/api/generate`."""

from dataclasses import dataclass

from proxy.conversation import json
from proxy.conversation.replies import ReplyEvent
from proxy.dialects.front import (
    Decoded,
    ErrorReply,
    IdsAndClock,
    Problem,
    Schemas,
    Sender,
    StampedAnswering,
)
from proxy.dialects.ollama_chat.downstream import decode, encode, schema

_BLIND = "This model takes no pictures. Choose one that does."


@dataclass(frozen=True, slots=True)
class OllamaFront:
    """Speaks `/api/chat`, or with `is_text` `/api/generate`."""

    stamp: IdsAndClock
    is_text: bool = False
    name: str = "ollama"
    id_header: str = "x-request-id"
    stream_type: str = "application/x-ndjson"

    def schemas(self) -> Schemas:
        kind = schema.OllamaGenerateRequest if self.is_text else schema.OllamaChatRequest
        return schema.ollama_schemas(kind)

    def decode(self, body: bytes, sender: Sender) -> Decoded:
        del sender
        decoded = decode.decode_generate(body) if self.is_text else decode.decode_chat(body)
        answering = OllamaAnswering(decoded.model, self.is_text, self.stamp, self.stamp.now())
        load_answer = b""
        if decoded.only_loads:
            is_end = decoded.request.load.seconds == 0
            load_answer = answering.terms().load_answer("unload" if is_end else "load")
        return Decoded(
            decoded.request,
            answering,
            decoded.facts,
            blindness=_BLIND if decoded.has_pictures else "",
            load_answer=load_answer,
        )

    def decode_count(self, body: bytes, sender: Sender) -> Decoded:
        return self.decode(body, sender)

    def encode_count(self, tokens: int) -> bytes:
        return json.dump({"prompt_eval_count": tokens})

    def error(self, problem: Problem, request_id: str) -> ErrorReply:
        del request_id
        return encode.error_reply(problem)

    def is_complete(self, end: bytes) -> bool:
        return encode.DONE in end


@dataclass(frozen=True, slots=True)
class OllamaAnswering(StampedAnswering):
    """One answer, with the model's name as the client wrote it."""

    model: str
    is_text: bool
    stamp: IdsAndClock
    began: float

    def begin(self, first: ReplyEvent | None) -> encode.OllamaStream:
        del first
        return encode.OllamaStream(self.terms())

    def builder(self, first: ReplyEvent | None) -> encode.OllamaBuilder:
        del first
        return encode.OllamaBuilder(self.terms())

    def terms(self) -> encode.AnswerTerms:
        return encode.AnswerTerms(
            self.model, self.is_text, self.stamp, self.began, self.new_call_id
        )
