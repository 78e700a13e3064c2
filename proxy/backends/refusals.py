"""What a backend's own error means, whether it came as a status or in the middle of a stream.

Statuses, types and codes decide; only where engines have none for it, their wordings do.
"""

import re
from dataclasses import dataclass

from proxy.backends.overflow import Lengths, overflow_in
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import BackendFailed, BackendRefused, BackendUnavailable, ContextOverflow

_EXCEPTION = re.compile(r"\[json\.exception\.\w+\.\d+\] ?")
_MISSING = re.compile(r"key '([^']*)' not found")

OVERFLOW_MARKS = frozenset({"exceed_context_size_error", "context_length_exceeded"})


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as a backend gave it; `error` is the object with `message`, `type` and `code`."""

    status: int
    error: JsonObject
    retry_after: str = ""


def streamed_refusal(error: JsonObject) -> Refusal:
    """Make a refusal of an error that came after the status: its code stands in for it."""
    code = error.get("code")
    is_status = isinstance(code, int) and 400 <= code <= 599
    return Refusal(code if isinstance(code, int) and is_status else 500, error)


def as_error(backend: str, refusal: Refusal) -> BackendFailed | ContextOverflow:
    """Return the error that a refusal means for us."""
    error = refusal.error
    message = _readable(_text(error.get("message"))) or "no explanation"
    kind = _text(error.get("type"))
    lengths = _overflow(refusal, message)
    if lengths is not None:
        return ContextOverflow(message, lengths.prompt, lengths.window)
    if refusal.status == 503 and kind == "unavailable_error":
        return BackendUnavailable(backend, "is still loading its model", loading=True)
    return BackendRefused(
        backend,
        refusal.status,
        message,
        kind=kind,
        param=_text(error.get("param")),
        retry_after=refusal.retry_after,
    )


def _overflow(refusal: Refusal, message: str) -> Lengths | None:
    """Tell by how much a prompt was too long, if that is what the refusal is about."""
    error = refusal.error
    said = overflow_in(message)
    if OVERFLOW_MARKS.isdisjoint({_text(error.get("type")), _text(error.get("code"))}):
        # "tokens" in a 429 are those of a minute
        return None if refusal.status == 429 else said
    told = said or Lengths()
    prompt, window = _tokens(error.get("n_prompt_tokens")), _tokens(error.get("n_ctx"))
    return Lengths(prompt or told.prompt, window or told.window)


def _readable(message: str) -> str:
    """Take out what only the programmers of a JSON library understand: llama.cpp passes it on."""
    plain = _EXCEPTION.sub("", message)
    return _MISSING.sub(r"the field '\1' is missing", plain) if plain != message else message


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _tokens(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
