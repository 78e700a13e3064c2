"""What a backend's own error means, whether it came as a status or in the middle of a stream.

Statuses, types and codes decide, never wordings.
"""

from dataclasses import dataclass

from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import BackendFailed, BackendRefused, BackendUnavailable, ContextOverflow

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
    message = _text(error.get("message")) or "no explanation"
    kind = _text(error.get("type"))
    if not OVERFLOW_MARKS.isdisjoint({kind, _text(error.get("code"))}):
        return ContextOverflow(
            message, _tokens(error.get("n_prompt_tokens")), _tokens(error.get("n_ctx"))
        )
    if refusal.status == 503 and kind == "unavailable_error":
        return BackendUnavailable(backend, "is still loading its model", loading=True)
    return BackendRefused(
        backend, refusal.status, message, kind=kind, retry_after=refusal.retry_after
    )


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _tokens(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
