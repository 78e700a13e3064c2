"""What an error of Anthropic's API means, whether it came as a status or amid a stream."""

from proxy.backends.refusals import Refusal, as_error
from proxy.errors import BackendFailed, BackendRefused, BackendUnavailable, ContextOverflow

OVERLOADED = 529
_OVERLOADED_TYPE = "overloaded_error"
_UNKNOWN_TYPE = "not_found_error"
_USUAL_PAUSE = 5  # seconds, where it does not say how long


def meaning(backend: str, refusal: Refusal) -> BackendFailed | ContextOverflow:
    """Return the error that a refusal means for us."""
    if refusal.status == OVERLOADED or refusal.error.get("type") == _OVERLOADED_TYPE:
        seconds = refusal.retry_after.strip()
        pause = int(seconds) if seconds.isdecimal() and seconds.isascii() else _USUAL_PAUSE
        return BackendUnavailable(backend, "is overloaded", retry_after=pause)
    return as_error(backend, refusal)


def is_unknown_model(refusal: BackendRefused) -> bool:
    """Tell whether there is nothing by the name of the model."""
    return refusal.status == 404 and refusal.kind == _UNKNOWN_TYPE
