import pytest

from proxy.backends.refusals import (
    REDACTED,
    Confidential,
    Refusal,
    as_error,
    overflow_in,
    read_streamed_refusal,
)
from proxy.conversation.json import JsonObject, JsonValue
from proxy.errors import BackendRefused, BackendUnavailable, ContextOverflow

KEY = "canary-0123456789"
REMOVED = REDACTED.decode()


def test_a_secret_is_removed_wherever_it_occurs() -> None:
    body = f"{KEY} is wrong, {KEY}".encode()
    assert Confidential([KEY]).redact(body) == REDACTED + b" is wrong, " + REDACTED


def test_a_secret_that_begins_with_another_secret_is_removed_entirely() -> None:
    assert Confidential([KEY, f"{KEY}-more"]).redact(f"{KEY}-more".encode()) == REDACTED


def test_a_json_escaped_secret_is_removed() -> None:
    quoting = Confidential(['canary-"\\-0123456789'])
    assert quoting.redact(rb'{"a": "canary-\"\\-0123456789"}') == b'{"a": "' + REDACTED + b'"}'


@pytest.mark.parametrize("short", ["", "team-ai"])
def test_short_values_are_not_redacted(short: str) -> None:
    assert Confidential([short]).redact(b"the team-ai") == b"the team-ai"


def test_only_the_secret_is_removed_from_an_error() -> None:
    error = Confidential([KEY]).redact_error({"message": f"Gr\u00fc\u00dfe, {KEY}", "code": 401})
    assert error == {"message": f"Gr\u00fc\u00dfe, {REMOVED}", "code": 401}


@pytest.mark.parametrize(
    "message",
    [
        "",
        "Rate limit reached: 6000 tokens per minute. Please try again in 7 s.",
        "Too many requests.",
        "max_tokens must be at least 1, got 0.",
        "The model `x` does not exist.",
        "the context is cancelled",
    ],
)
def test_a_message_about_another_problem_is_not_an_overflow(message: str) -> None:
    assert overflow_in(message) is None


def test_only_the_beginning_of_a_long_message_is_searched_for_an_overflow() -> None:
    quoted = "maximum context length is 5 tokens"
    assert overflow_in("x" * 3000 + quoted) is None


WORDING = (
    "request (33009 tokens) exceeds the available context size (2048 tokens), try increasing it"
)


@pytest.mark.parametrize(
    ("error", "numbers"),
    [
        (
            {
                "code": 400,
                "message": WORDING,
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 33009,
                "n_ctx": 2048,
            },
            (33009, 2048),
        ),
        ({"code": "context_length_exceeded", "message": WORDING, "type": "x"}, (33009, 2048)),
        ({"code": "context_length_exceeded", "message": "Too long."}, (None, None)),
        ({"code": 400, "message": WORDING, "type": "invalid_request_error"}, (33009, 2048)),
        (
            {"code": "context_length_exceeded", "n_prompt_tokens": True, "n_ctx": "2048"},
            (None, None),
        ),
    ],
)
def test_an_overflow_has_the_prompt_size_and_the_window_if_reported(
    error: JsonObject, numbers: tuple[int | None, int | None]
) -> None:
    meaning = as_error("http://host", Refusal(400, error))

    assert isinstance(meaning, ContextOverflow)
    assert (meaning.prompt_tokens, meaning.window) == numbers
    assert "maximum context length" in str(meaning)


def test_a_loading_model_is_temporarily_unavailable() -> None:
    error: JsonObject = {"message": "Loading model", "type": "unavailable_error", "code": 503}

    meaning = as_error("http://host", Refusal(503, error))

    assert isinstance(meaning, BackendUnavailable)
    assert meaning.loading


def test_a_token_rate_limit_is_not_an_overflow() -> None:
    meaning = as_error("http://host", Refusal(429, {"message": WORDING}))

    assert isinstance(meaning, BackendRefused)


@pytest.mark.parametrize("error", [{}, {"message": None, "type": 5, "code": [1]}])
def test_an_error_without_a_message_is_reported_as_no_explanation(error: JsonObject) -> None:
    meaning = as_error("http://host", Refusal(502, error))

    assert isinstance(meaning, BackendRefused)
    assert (meaning.status, meaning.message, meaning.kind) == (502, "no explanation", "")


@pytest.mark.parametrize(
    ("code", "status"),
    [(400, 400), (429, 429), (599, 599), (200, 500), (600, 500), ("x", 500), (None, 500)],
)
def test_a_valid_code_of_an_error_in_a_stream_is_used_as_its_status(
    code: JsonValue, status: int
) -> None:
    assert read_streamed_refusal({"code": code}) == Refusal(status, {"code": code})


@pytest.mark.parametrize(
    ("message", "cleaned"),
    [
        (
            "[json.exception.out_of_range.403] key 'prompt' not found",
            "the field 'prompt' is missing",
        ),
        (
            "Field 'max_tokens': [json.exception.type_error.302] type must be number",
            "Field 'max_tokens': type must be number",
        ),
        ("The tool said: key 'a' not found", "The tool said: key 'a' not found"),
    ],
)
def test_names_of_json_exceptions_are_removed_from_messages(message: str, cleaned: str) -> None:
    meaning = as_error("http://host", Refusal(400, {"message": message}))
    assert cleaned in str(meaning)
    assert "json.exception" not in str(meaning)
