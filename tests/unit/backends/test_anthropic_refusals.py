import pytest

from proxy.backends.anthropic_refusals import is_unknown_model, meaning
from proxy.backends.refusals import Refusal
from proxy.errors import BackendRefused, BackendUnavailable, ContextOverflow


def refused(status: int, kind: str, message: str = "no", retry_after: str = "") -> Exception:
    return meaning("http://host", Refusal(status, {"type": kind, "message": message}, retry_after))


@pytest.mark.parametrize(
    ("retry_after", "seconds"), [("7", 7), (" 7 ", 7), ("", 5), ("soon", 5), ("-1", 5), ("٣", 5)]
)
@pytest.mark.parametrize(
    ("status", "kind"), [(529, "overloaded_error"), (529, ""), (200, "overloaded_error")]
)
def test_an_overload_passes(status: int, kind: str, retry_after: str, seconds: int) -> None:
    error = refused(status, kind, retry_after=retry_after)
    assert isinstance(error, BackendUnavailable)
    assert error.retry_after == seconds
    assert not error.is_managed


def test_a_prompt_that_is_too_long_has_both_numbers() -> None:
    error = refused(
        400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"
    )
    assert isinstance(error, ContextOverflow)
    assert (error.prompt_tokens, error.window) == (210_000, 200_000)


def test_all_else_is_a_refusal_with_its_status() -> None:
    error = refused(429, "rate_limit_error", "tokens per minute", "9")
    assert isinstance(error, BackendRefused)
    assert (error.status, error.kind, error.retry_after) == (429, "rate_limit_error", "9")


def test_a_model_that_there_is_not_is_told_from_other_refusals() -> None:
    assert is_unknown_model(BackendRefused("b", 404, "model: x", kind="not_found_error"))
    assert not is_unknown_model(BackendRefused("b", 404, "File Not Found"))
    assert not is_unknown_model(BackendRefused("b", 400, "x", kind="not_found_error"))
