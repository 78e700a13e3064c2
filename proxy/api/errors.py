"""Errors as clients see them: the one place that gives an error its HTTP status.

The front end of the requested path writes the body.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from starlette.responses import Response
from starlette.types import Scope

from proxy import bounds, errors
from proxy.api.client_connection import ClientConnection
from proxy.api.fronts import CHAT
from proxy.conversation.json import JsonValue
from proxy.dialects.front import ErrorReply, Front, Problem
from proxy.errors import TemperError

_RETRY_SECONDS = "5"
_LONGEST_TYPO = 60  # characters that are compared with the paths there are
_EXAMINE = "Is its address right? `temper doctor` examines it."
_NO_RETRY = {"x-should-retry": "false"}
_SERVER_STATUSES_KEPT = (501, 503, 504)


@dataclass(frozen=True, slots=True)
class _Terms:
    """How a kind of error is reported to a client."""

    status: int
    code: str | None = None
    kind: str = "invalid_request_error"
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


_CLOSING = MappingProxyType({"connection": "close"})
_BEARER = MappingProxyType({"www-authenticate": "Bearer"})
_CLIENTS_FAULTS: Mapping[type[errors.InvalidRequest], _Terms] = {
    errors.ContextOverflow: _Terms(400, "context_length_exceeded"),
    errors.UnknownModel: _Terms(404, "model_not_found"),
    errors.RequestTooLarge: _Terms(413, "request_too_large", "request_too_large"),
    errors.RequestTimedOut: _Terms(408, "request_timeout", headers=_CLOSING),
    errors.NotJson: _Terms(415, "unsupported_media_type"),
    errors.HostNotAllowed: _Terms(403, "host_not_allowed", "permission_error"),
    errors.ForeignOrigin: _Terms(403, "foreign_origin", "permission_error"),
    errors.NotTheOperator: _Terms(403, "ui_not_allowed", "permission_error"),
    errors.NotAuthorized: _Terms(401, "invalid_api_key", "authentication_error", _BEARER),
    errors.PreviousResponseUnknown: _Terms(400, "previous_response_not_found"),
    errors.ToolsNotAllowed: _Terms(403, "tools_not_allowed", "permission_error"),
    errors.KeyReused: _Terms(422, "idempotency_key_reused"),
    errors.QueueFull: _Terms(429, "queue_full", "rate_limit_error"),
}

_MISSING: Mapping[type[TemperError], str] = {
    errors.ToolServerUnavailable: "tool_server_unavailable",
    errors.StateUnavailable: "state_unavailable",
    errors.ServerStopped: "server_stopping",
}


def describe(error: TemperError) -> Problem:
    """Translate an error; an unexpected one becomes an internal error without details."""
    match error:
        case errors.InvalidRequest():
            return _client_problem(error)
        case errors.BackendFailed():
            return _backend_problem(error)
        case errors.GuardrailsExhausted():
            is_open = isinstance(error, errors.CallBrokeOff)
            code = "call_broke_off" if is_open else "tool_call_unrepairable"
            return Problem(502, "server_error", str(error), code, headers=_NO_RETRY)
        case errors.RequestCancelled():
            code = "request_cancelled"
            return Problem(503, "server_error", str(error), code, headers=_NO_RETRY)
        case (
            errors.ProcessFailed()
            | errors.ToolServerUnavailable()
            | errors.StateUnavailable()
            | errors.ServerStopped()
        ):
            return _unavailable(str(error), _MISSING.get(type(error), "backend_unavailable"))
        case _:
            return Problem(500, "server_error", "Internal error; see the server's log.")


def error_reply(problem: Problem, scope: Scope) -> ErrorReply:
    state = scope.get("state", {})
    front: Front = state.get("front", CHAT)
    return front.error(problem, state.get("request_id", ""))


def error_response(problem: Problem, scope: Scope) -> Response:
    """Put a problem as the client of a request expects it."""
    reply = error_reply(problem, scope)
    return Response(reply.body, reply.status, dict(reply.headers), "application/json")


async def refuse(connection: ClientConnection, error: TemperError) -> None:
    problem = describe(error)
    connection.refusal = problem.message
    reply = error_reply(problem, connection.scope)
    await connection.respond(reply.status, reply.headers, reply.body)


DASHBOARD_PROBLEMS: Mapping[str, tuple[int, str]] = {
    "request_forgotten": (404, "This request is no longer kept: only the latest ones are."),
    "before_restart": (404, "Temper, or the worker that had it, was restarted since."),
    "recording_off": (404, "Exchanges are not kept: set recording.keep_bytes to keep some."),
    "not_understood": (404, "The client left, or was refused, before it was understood."),
    "not_over": (404, "The request is still being answered."),
    "too_large": (404, "The exchange was too large to be kept."),
    "dropped": (404, "The exchange was dropped to make room for later ones."),
    "request_over": (409, "The request is over already."),
    "confirmation_over": (404, "Nobody waits for this answer any more: it came too late."),
    "ui_read_only": (403, "The dashboard is for reading only (ui.read_only)."),
    "too_many_watchers": (503, f"{bounds.FEEDS} pages watch this server already: close one."),
}


def dashboard_problem(code: str) -> Problem:
    status, message = DASHBOARD_PROBLEMS[code]
    kind = "server_error" if status == 503 else "invalid_request_error"
    return Problem(status, kind, message, code)


def not_found(path: str, known: tuple[str, ...]) -> Problem:
    """Describe a route that does not exist, such as one below a base URL with `/v1` twice."""
    meant = difflib.get_close_matches(path[:_LONGEST_TYPO], known, n=1, cutoff=0.7)
    hint = f" Did you mean {meant[0]}?" if meant else ""
    message = f"There is no {path}.{hint} Available: {', '.join(known)}."
    return Problem(404, "invalid_request_error", message, "not_found")


def wrong_method(method: str, path: str, allowed: str) -> Problem:
    message = f"{path} does not take {method}. Use {allowed}."
    allow = {"allow": allowed}
    return Problem(405, "invalid_request_error", message, "method_not_allowed", headers=allow)


def _client_problem(error: errors.InvalidRequest) -> Problem:
    terms = _CLIENTS_FAULTS.get(type(error))
    message = error.problem if terms is not None else str(error)
    terms = terms or _Terms(400)
    headers, details = dict(terms.headers), dict[str, JsonValue]()
    if isinstance(error, errors.ContextOverflow):
        details = {"n_prompt_tokens": error.prompt_tokens, "n_ctx": error.window}
        details |= {} if error.read is None else {"n_read": error.read}
    elif isinstance(error, errors.QueueFull):
        headers["retry-after"] = str(error.retry_after)
    return Problem(
        terms.status, terms.kind, message, terms.code, error.param, headers, details=details
    )


def _backend_problem(error: errors.BackendFailed) -> Problem:
    match error:
        case errors.BackendUnavailable(loading=True):
            return _unavailable("Loading model", "model_loading")
        case (
            errors.BackendUnavailable(is_managed=True)
            | errors.BackendUnavailable(retry_after=int())
        ):
            # after how many seconds to retry, if that can help
            later = error.retry_after
            headers = _NO_RETRY if later is None else {"retry-after": str(later)}
            return Problem(503, "server_error", str(error), "backend_unavailable", headers=headers)
        case errors.BackendTimedOut():
            return Problem(504, "server_error", str(error), "backend_timeout")
        case errors.BackendRefused():
            return _refusal(error)
        case errors.BackendUnavailable():
            message = f"{error} {_EXAMINE}" if error.is_unreached else str(error)
            return Problem(502, "server_error", message, "backend_unavailable")
        case _:
            # where nothing has spoken as a backend does, the address may be wrong
            is_strange = isinstance(error, errors.BackendSpokeNonsense) and not error.is_endless
            message = f"{error} {_EXAMINE}" if is_strange else str(error)
            return Problem(502, "server_error", message, "backend_protocol_error")


def _unavailable(message: str, code: str) -> Problem:
    return Problem(503, "server_error", message, code, headers={"retry-after": _RETRY_SECONDS})


def _refusal(error: errors.BackendRefused) -> Problem:
    """Pass a backend's own error on: its status where it speaks to the client, else 502."""
    # a header's bytes come as text, and beyond ASCII there is no way back
    is_usable = error.retry_after and error.retry_after.isascii()
    headers = {"retry-after": error.retry_after} if is_usable else {}
    client_erred = 400 <= error.status < 500
    if not client_erred and error.status not in _SERVER_STATUSES_KEPT:
        return Problem(502, "server_error", str(error), "backend_error", headers=headers)
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    kind = error.kind or ("invalid_request_error" if client_erred else "server_error")
    param = error.param or None
    message = error.message
    if message.lstrip().startswith("<"):  # of a web server, or of what stands in between
        reason = f"answered {error.status} with a web page. {_EXAMINE}"
        message = f"The backend {error.backend} {reason}"
    return Problem(error.status, kind, message, param=param, headers=headers)
