"""Ollama's API as a front end: `POST /api/chat` and `/api/generate`."""

from dataclasses import dataclass

from proxy.conversation import json
from proxy.dialects.front import (
    Decoded,
    ErrorReply,
    IdentifiedAnswering,
    IdsAndClock,
    Problem,
    Schemas,
    Sender,
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
        stamp = self.stamp
        terms = encode.AnswerTerms(decoded.model, self.is_text, stamp, stamp.now(), stamp.call_id)
        load_answer = b""
        if decoded.only_loads:
            is_end = decoded.request.load.seconds == 0
            load_answer = terms.load_answer("unload" if is_end else "load")
        return Decoded(
            decoded.request,
            IdentifiedAnswering(
                lambda _: terms, encode.OllamaStream, encode.OllamaBuilder, stamp.call_id
            ),
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
