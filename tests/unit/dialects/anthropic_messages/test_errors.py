import pytest
from anthropic.types import ErrorResponse

from proxy.conversation import json
from proxy.conversation.json import JsonValue
from proxy.dialects.anthropic_messages.errors import error_object, error_reply
from proxy.dialects.front import Problem


def overflow(**details: JsonValue) -> Problem:
    message = "This model's maximum context length is 8 tokens: too long"
    return Problem(
        400,
        "invalid_request_error",
        message,
        "context_length_exceeded",
        "messages",
        details=details,
    )


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (402, "billing_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (408, "invalid_request_error"),
        (413, "request_too_large"),
        (415, "invalid_request_error"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_every_status_has_its_kind(status: int, kind: str) -> None:
    reply = error_reply(Problem(status, "whatever", "No.", headers={"retry-after": "5"}), "req_1")
    assert reply.status == status
    assert json.parse(reply.body) == {
        "type": "error",
        "error": {"type": kind, "message": "No."},
        "request_id": "req_1",
    }
    final = {"x-should-retry": "false"} if status == 401 else {}
    assert reply.headers == {"retry-after": "5", **final}
    if status != 413:  # the SDK has an exception for it, and no type
        assert ErrorResponse.model_validate_json(reply.body).request_id == "req_1"


@pytest.mark.parametrize("message", ["Field required", "max_tokens: Field required"])
def test_the_field_to_blame_stands_once_before_the_problem(message: str) -> None:
    problem = Problem(400, "invalid_request_error", message, param="max_tokens")
    error = error_object(problem, "")["error"]
    assert error == {"type": "invalid_request_error", "message": "max_tokens: Field required"}


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (
            overflow(n_prompt_tokens=9000, n_ctx=8192),
            "prompt is too long: 9000 tokens > 8192 maximum",
        ),
        (
            overflow(n_prompt_tokens=8100, n_ctx=8192),
            "prompt is too long: 8193 tokens > 8192 maximum",
        ),
        (overflow(n_prompt_tokens=None, n_ctx=8192), "prompt is too long"),
        (overflow(n_prompt_tokens=9000), "prompt is too long"),
    ],
)
def test_an_overflow_has_the_only_words_that_claude_code_reads_numbers_from(
    problem: Problem, message: str
) -> None:
    error = error_object(problem, "")["error"]
    assert error == {"type": "invalid_request_error", "message": message}
