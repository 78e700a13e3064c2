"""What SDKs for chat completions take and give, as plain values; it imports none of them."""

from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

from proxy.backends.capabilities import directives
from proxy.backends.llama_server import acceptable, is_parse_failure
from proxy.backends.llama_server import directives as llama_server_directives
from proxy.backends.refusals import Refusal, as_error
from proxy.context.tokens import TokenBook
from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.requests import Question
from proxy.dialects.openai_chat.encode import encode_question
from proxy.dialects.openai_chat.replies import decode_error
from proxy.errors import BackendRefused

ENGINE = "the engine"
LLAMA_SERVER = "llama-server"

# What is not for whoever calls an SDK: it chooses the model and the stream itself, and the rest is
# llama-server's own, which SDKs do not take.
_NOT_ASKED = ("model", "stream", "stream_options", "return_progress", "cache_prompt")


@runtime_checkable
class Dumpable(Protocol):
    """A message or a completion as SDKs have them: a pydantic model."""

    def model_dump(self, *, mode: str, exclude_none: bool, warnings: bool) -> object: ...


@dataclass(frozen=True, slots=True)
class SdkRequests:
    """How one engine is spoken to, and what is learnt from what it says of its prompts."""

    engine: str
    window: int | None
    book: TokenBook

    def request(self, question: Question) -> JsonObject:
        """Write a question as the arguments of an SDK's call."""
        if self.engine == LLAMA_SERVER:
            question = acceptable(question)
            extra = llama_server_directives(question)
        else:
            extra = directives(question)
        body = cast("JsonObject", json.parse(encode_question(question, extra)))
        return {name: value for name, value in body.items() if name not in _NOT_ASKED}

    def learn(self, question: Question, said: JsonObject) -> None:
        usage = said.get("usage")
        total = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        if self.window is not None and isinstance(total, int) and total > 0:
            self.book.hear(question.messages, question.tools, total, self.window)

    def is_unreadable(self, error: Exception) -> bool:
        """Return whether a llama-server's own parser could not read what the model wrote."""
        response: object = getattr(error, "response", None)
        status: object = getattr(response, "status_code", None)
        if self.engine != LLAMA_SERVER or not isinstance(status, int):
            return False
        content: object = getattr(response, "content", b"")
        refusal = Refusal(status, decode_error(content if isinstance(content, bytes) else b""))
        meant = as_error(ENGINE, refusal)
        return isinstance(meant, BackendRefused) and is_parse_failure(meant)


def plain(value: object) -> JsonObject:
    """Return a message or a reply as plain values."""
    if isinstance(value, Dumpable):
        value = value.model_dump(mode="json", exclude_none=True, warnings=False)
    if not isinstance(value, dict):
        raise TypeError(f"expected a dictionary or an SDK's object, not {type(value).__name__}")
    return value


def is_over(said: JsonObject) -> bool:
    """Return whether nothing follows: a whole completion, or the chunk with the reason."""
    choices = said.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else {}
    return isinstance(first, dict) and bool(first.get("finish_reason") or "message" in first)
