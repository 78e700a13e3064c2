"""Errors as clients see them: the only module that maps errors to HTTP statuses.

The dialect of the requested path writes the body.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from starlette.responses import Response
from starlette.types import Scope

from proxy import bounds, errors
from proxy.api.client_connection import ClientConnection
from proxy.api.dialects import CHAT
from proxy.conversation.json import JsonValue
from proxy.dialects.dialect import Dialect, ErrorReply, Problem
from proxy.errors import TemperError

_LONGEST_TYPO = 60  # characters that are compared with the existing paths
_EXAMINE = "Check its address, or run `temper doctor`."
_INTERNAL = "Internal error; see the server's log."
# These 5xx statuses of a backend are forwarded. All others become 502. A forwarded 500, for
# example, would present the backend's failure as Temper's own.
_FORWARDED_SERVER_STATUSES = (501, 503, 504)

_CLIENT, _SERVER, _DENIED = "invalid_request_error", "server_error", "permission_error"
_CLOSING = MappingProxyType({"connection": "close"})
_BEARER = MappingProxyType({"www-authenticate": "Bearer"})
_LATER = MappingProxyType({"retry-after": "5"})
_NEVER = MappingProxyType({"x-should-retry": "false"})  # OpenAI's and Anthropic's SDKs obey it


@dataclass(frozen=True, slots=True)
class _HttpError:
    """The HTTP status and the members of the error object for one kind of error."""

    status: int
    code: str | None = None
    kind: str = _CLIENT
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


# an error has the entry of its own class, or else of its nearest base class
_HTTP_ERRORS: Mapping[type, _HttpError] = {
    TemperError: _HttpError(500, kind=_SERVER),
    errors.InvalidRequest: _HttpError(400),
    errors.ContextOverflow: _HttpError(400, "context_length_exceeded"),
    errors.UnknownModel: _HttpError(404, "model_not_found"),
    errors.RequestTooLarge: _HttpError(413, "request_too_large", "request_too_large"),
    errors.RequestTimedOut: _HttpError(408, "request_timeout", headers=_CLOSING),
    errors.NotJson: _HttpError(415, "unsupported_media_type"),
    errors.HostNotAllowed: _HttpError(403, "host_not_allowed", _DENIED),
    errors.ForeignOrigin: _HttpError(403, "foreign_origin", _DENIED),
    errors.NotTheOperator: _HttpError(403, "ui_not_allowed", _DENIED),
    errors.NotAuthorized: _HttpError(401, "invalid_api_key", "authentication_error", _BEARER),
    errors.PreviousResponseUnknown: _HttpError(400, "previous_response_not_found"),
    errors.ToolsNotAllowed: _HttpError(403, "tools_not_allowed", _DENIED),
    errors.KeyReused: _HttpError(422, "idempotency_key_reused"),
    errors.QueueFull: _HttpError(429, "queue_full", "rate_limit_error"),
    errors.GuardrailsExhausted: _HttpError(502, "tool_call_unrepairable", _SERVER, _NEVER),
    errors.CallBrokeOff: _HttpError(502, "call_broke_off", _SERVER, _NEVER),
    errors.RequestCancelled: _HttpError(503, "request_cancelled", _SERVER, _NEVER),
    errors.ProcessFailed: _HttpError(503, "backend_unavailable", _SERVER, _LATER),
    errors.ToolServerUnavailable: _HttpError(503, "tool_server_unavailable", _SERVER, _LATER),
    errors.StateUnavailable: _HttpError(503, "state_unavailable", _SERVER, _LATER),
    errors.ServerStopped: _HttpError(503, "server_stopping", _SERVER, _LATER),
    errors.BackendFailed: _HttpError(502, "backend_protocol_error", _SERVER),
    errors.BackendUnavailable: _HttpError(502, "backend_unavailable", _SERVER),
    errors.BackendTimedOut: _HttpError(504, "backend_timeout", _SERVER),
}


def describe(error: TemperError) -> Problem:
    """Map an error to its HTTP response; a plain `TemperError` is sent without details."""
    if isinstance(error, errors.BackendRefused):
        return _pass_on(error)
    kind = next(base for base in type(error).__mro__ if base in _HTTP_ERRORS)
    http_error, message = _HTTP_ERRORS[kind], _INTERNAL if kind is TemperError else str(error)
    problem = Problem(
        http_error.status, http_error.kind, message, http_error.code, headers=http_error.headers
    )
    match error:
        case errors.InvalidRequest():
            return _add_details(error, problem, names_field=kind is not errors.InvalidRequest)
        case errors.BackendUnavailable():
            return _add_retry_advice(error, problem)
        case errors.BackendReplyInvalid(is_endless=False):
            return replace(problem, message=f"{error} {_EXAMINE}")  # the address may be wrong
        case _:
            return problem


def error_reply(problem: Problem, scope: Scope) -> ErrorReply:
    state = scope.get("state", {})
    dialect: Dialect = state.get("dialect", CHAT)
    return dialect.error(problem, state.get("request_id", ""))


def error_response(problem: Problem, scope: Scope) -> Response:
    """Write a problem in the dialect of the request's path."""
    reply = error_reply(problem, scope)
    return Response(reply.body, reply.status, dict(reply.headers), "application/json")


async def refuse(connection: ClientConnection, error: TemperError) -> None:
    problem = describe(error)
    connection.refusal = problem.message
    reply = error_reply(problem, connection.scope)
    await connection.respond(reply.status, reply.headers, reply.body)


DASHBOARD_PROBLEMS: Mapping[str, tuple[int, str]] = {
    "request_forgotten": (404, "This request is too old: only the latest requests are stored."),
    "before_restart": (404, "Temper, or the worker that handled the request, has been restarted."),
    "recording_off": (404, "Exchanges are not stored. Start Temper with --keep to store them."),
    "not_understood": (
        404,
        "The client disconnected, or was rejected, before the request was read.",
    ),
    "not_over": (404, "The request is still running."),
    "too_large": (404, "The exchange was too large to store."),
    "dropped": (404, "The exchange was dropped to make room for later exchanges."),
    "request_over": (409, "The request has already finished."),
    "confirmation_over": (404, "This call is no longer waiting for a decision."),
    "ui_read_only": (403, "The dashboard is read-only (ui.read_only)."),
    "too_many_watchers": (503, f"{bounds.FEEDS} dashboard pages are already open. Close one."),
}


def dashboard_problem(code: str) -> Problem:
    status, message = DASHBOARD_PROBLEMS[code]
    kind = "server_error" if status == 503 else "invalid_request_error"
    return Problem(status, kind, message, code)


def not_found(path: str, known: tuple[str, ...]) -> Problem:
    """Describe an unknown path, such as `/v1/v1/models` after a base URL that ends with `/v1`."""
    meant = difflib.get_close_matches(path[:_LONGEST_TYPO], known, n=1, cutoff=0.7)
    hint = f" Did you mean {meant[0]}?" if meant else ""
    message = f"There is no {path}.{hint} Available: {', '.join(known)}."
    return Problem(404, "invalid_request_error", message, "not_found")


def wrong_method(method: str, path: str, allowed: str) -> Problem:
    message = f"{path} does not support {method}. Use {allowed}."
    allow = {"allow": allowed}
    return Problem(405, "invalid_request_error", message, "method_not_allowed", headers=allow)


def _add_details(error: errors.InvalidRequest, problem: Problem, *, names_field: bool) -> Problem:
    """Set `param` to the invalid field, and add the details of the kind of error.

    With `names_field`, the response names the field separately, so the message does not name it.
    """
    problem = replace(problem, param=error.param)
    if names_field:
        problem = replace(problem, message=error.problem)
    match error:
        case errors.ContextOverflow(prompt_tokens=prompt, window=window, read=read):
            details: dict[str, JsonValue] = {"n_prompt_tokens": prompt, "n_ctx": window}
            return replace(problem, details=details | ({} if read is None else {"n_read": read}))
        case errors.QueueFull():
            return replace(problem, headers={"retry-after": str(error.retry_after)})
        case _:
            return problem


def _add_retry_advice(error: errors.BackendUnavailable, problem: Problem) -> Problem:
    """Say whether, and when, the client should retry while the backend is unavailable."""
    retry_after = error.retry_after
    if error.loading:  # llama-server's words; its clients wait when they receive them
        code, message = "model_loading", "Loading model"
        return replace(problem, status=503, code=code, message=message, headers=_LATER)
    if error.is_managed or retry_after is not None:
        headers = _NEVER if retry_after is None else {"retry-after": str(retry_after)}
        return replace(problem, status=503, headers=headers)
    return replace(problem, message=f"{error} {_EXAMINE}") if error.is_unreached else problem


def _pass_on(error: errors.BackendRefused) -> Problem:
    """Forward a backend's error; a 5xx status outside `_FORWARDED_SERVER_STATUSES` becomes 502."""
    # received headers are decoded as Latin-1, but in a response only ASCII values can be encoded
    is_usable = error.retry_after and error.retry_after.isascii()
    headers = {"retry-after": error.retry_after} if is_usable else {}
    client_erred = 400 <= error.status < 500
    if not client_erred and error.status not in _FORWARDED_SERVER_STATUSES:
        return Problem(502, "server_error", str(error), "backend_error", headers=headers)
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    kind = error.kind or ("invalid_request_error" if client_erred else "server_error")
    param = error.param or None
    message = error.message
    if message.lstrip().startswith("<"):  # HTML of a web server, or of a proxy before the backend
        reason = f"answered {error.status} with a web page. {_EXAMINE}"
        message = f"The backend {error.backend} {reason}"
    return Problem(error.status, kind, message, param=param, headers=headers)
