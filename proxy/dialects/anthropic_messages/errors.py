"""Errors as clients of the Messages language expect them: status, type and wording.

Claude Code reads some of it: only this wording of an overflow, alone and with both numbers, makes
it drop old turns before it summarises; with any other its summary is as long as what did not fit.
"""

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.dialects.front import ErrorReply, Problem

_OVERFLOW = "context_length_exceeded"
_KINDS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_NOT_AUTHORIZED = 401
_FIRST_SERVER_ERROR = 500


def error_object(problem: Problem, request_id: str) -> JsonObject:
    """Return `{"type": "error", "error": {"type", "message"}, "request_id"}`."""
    error: JsonObject = {"type": _kind(problem.status), "message": _message(problem)}
    return {"type": "error", "error": error, "request_id": request_id}


def error_reply(problem: Problem, request_id: str) -> ErrorReply:
    """Write an error that came before anything was sent."""
    headers = dict(problem.headers)
    if problem.status == _NOT_AUTHORIZED:  # which no retry makes better
        headers["x-should-retry"] = "false"
    return ErrorReply(problem.status, headers, json.dump(error_object(problem, request_id)))


def _kind(status: int) -> str:
    if status in _KINDS:
        return _KINDS[status]
    return "api_error" if status >= _FIRST_SERVER_ERROR else "invalid_request_error"


def _message(problem: Problem) -> str:
    if problem.code == _OVERFLOW:
        return _overflow(problem)
    path = f"{problem.param}: " if problem.param else ""
    return problem.message if problem.message.startswith(path) else path + problem.message


def _overflow(problem: Problem) -> str:
    tokens, window = problem.details.get("n_prompt_tokens"), problem.details.get("n_ctx")
    if not isinstance(tokens, int) or not isinstance(window, int):
        return "prompt is too long"
    # a prompt that fits but leaves no room for an answer is too long as well
    return f"prompt is too long: {max(tokens, window + 1)} tokens > {window} maximum"
