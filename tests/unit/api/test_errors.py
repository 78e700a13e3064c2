import pytest

from proxy import errors
from proxy.api.errors import describe, error_response, not_found, wrong_method
from proxy.conversation import json
from proxy.dialects.dialect import Problem
from proxy.errors import TemperError

LOADING = errors.BackendUnavailable("b", "is loading", loading=True)
RESTARTING = errors.BackendUnavailable("b", "crashed", is_managed=True, retry_after=3)
DOWN = errors.BackendUnavailable("b", "stays down", is_managed=True)


@pytest.mark.parametrize(
    ("error", "status", "code", "param"),
    [
        (errors.InvalidRequest("no", "messages.0"), 400, None, "messages.0"),
        (errors.ContextOverflow("long", 9, 8), 400, "context_length_exceeded", "messages"),
        (errors.UnknownModel("x", ("y",)), 404, "model_not_found", "model"),
        (errors.RequestTooLarge(10), 413, "request_too_large", None),
        (errors.RequestTimedOut(30), 408, "request_timeout", None),
        (errors.NotJson(), 415, "unsupported_media_type", "content-type"),
        (errors.HostNotAllowed(), 403, "host_not_allowed", "host"),
        (errors.NotAuthorized(), 401, "invalid_api_key", None),
        (errors.ToolsNotAllowed("tools.0"), 403, "tools_not_allowed", "tools.0"),
        (errors.ToolServerUnavailable("search"), 503, "tool_server_unavailable", None),
        (errors.StateUnavailable(), 503, "state_unavailable", None),
        (errors.KeyReused(), 422, "idempotency_key_reused", "idempotency-key"),
        (errors.BackendUnavailable("b", "is down"), 502, "backend_unavailable", None),
        (LOADING, 503, "model_loading", None),
        (RESTARTING, 503, "backend_unavailable", None),
        (DOWN, 503, "backend_unavailable", None),
        (errors.BackendTimedOut("b", "is slow"), 504, "backend_timeout", None),
        (errors.BackendReplyInvalid("b", "babbles"), 502, "backend_protocol_error", None),
        (errors.BackendFailed("b", "failed"), 502, "backend_protocol_error", None),
        (errors.BackendRefused("b", 401, "key"), 401, None, None),
        (errors.BackendRefused("b", 418, "teapot"), 418, None, None),
        (errors.BackendRefused("b", 422, "no", param="tools"), 422, None, "tools"),
        (errors.BackendRefused("b", 429, "slow"), 429, None, None),
        (errors.BackendRefused("b", 500, "oh"), 502, "backend_error", None),
        (errors.BackendRefused("b", 501, "oh"), 501, None, None),
        (errors.BackendRefused("b", 503, "oh"), 503, None, None),
        (errors.BackendRefused("b", 504, "oh"), 504, None, None),
        (errors.GuardrailsExhausted(3, "prose"), 502, "tool_call_unrepairable", None),
        (errors.ExitedUnexpectedly("s", "died"), 503, "backend_unavailable", None),
        (errors.InvalidConfiguration("a.b", "bad"), 500, None, None),
    ],
)
def test_each_exception_is_described_with_its_status_and_code_and_param(
    error: TemperError, status: int, code: str | None, param: str | None
) -> None:
    problem = describe(error)
    assert (problem.status, problem.code, problem.param) == (status, code, param)
    assert problem.message


@pytest.mark.parametrize(
    "error",
    [
        errors.BackendUnavailable("b", "cannot be reached", is_unreached=True),
        errors.BackendReplyInvalid("b", "sent no JSON"),
        errors.BackendRefused("b", 404, "\n<html>not found</html>"),
    ],
    ids=["unreachable", "no JSON", "a web page"],
)
def test_an_error_that_a_wrong_backend_url_may_cause_suggests_to_check_the_address(
    error: TemperError,
) -> None:
    message = describe(error).message
    assert message.startswith("The backend b ")
    assert message.endswith(". Check its address, or run `temper doctor`.")
    assert "html" not in message


@pytest.mark.parametrize(
    "error",
    [
        errors.BackendUnavailable("b", "broke off the connection"),
        errors.BackendReplyInvalid("b", "did not end", is_endless=True),
        errors.BackendRefused("b", 404, "there is no such model"),
    ],
    ids=["disconnected", "endless", "explained"],
)
def test_errors_of_a_reachable_backend_do_not_suggest_to_check_its_address(
    error: TemperError,
) -> None:
    assert "address" not in describe(error).message


def subclasses_without_subclasses(kind: type[TemperError]) -> list[type[TemperError]]:
    below = kind.__subclasses__()
    return [leaf for exception in below for leaf in subclasses_without_subclasses(exception)] or [
        kind
    ]


def test_the_list_of_error_classes_is_complete() -> None:
    described = {
        "InvalidConfiguration", "ContextOverflow", "UnknownModel", "RequestTooLarge",
        "RequestTimedOut", "NotJson", "HostNotAllowed", "NotAuthorized", "KeyReused",
        "QueueFull", "PreviousResponseUnknown", "BackendUnavailable", "BackendTimedOut",
        "BackendRefused", "NotTheOperator", "ForeignOrigin", "RequestCancelled",
        "ServerStopped",
        "BackendReplyInvalid", "CallBrokeOff", "LaunchFailed", "NeverBecameReady",
        "ExitedUnexpectedly", "ToolServerUnavailable", "ToolsNotAllowed", "StateUnavailable",
    }  # fmt: skip
    # raised in programs that embed Temper, and by `temper pull`; no client ever sees them
    embedded = {
        *subclasses_without_subclasses(errors.RunStopped),
        errors.ToolRetry,
        errors.ToolFailed,
    }
    embedded.add(errors.DownloadFailed)
    leaves = {kind.__name__ for kind in {*subclasses_without_subclasses(TemperError)} - embedded}
    assert leaves == described


def test_an_error_body_has_the_four_fields_that_openai_sdks_read() -> None:
    problem = describe(errors.InvalidRequest("no such thing", "tools"))
    response = error_response(problem, {})
    assert response.status_code == 400
    assert json.parse(bytes(response.body)) == {
        "error": {
            "message": "tools: no such thing",
            "type": "invalid_request_error",
            "param": "tools",
            "code": None,
        }
    }


def test_a_context_overflow_reports_the_prompt_size_and_the_window() -> None:
    details = describe(errors.ContextOverflow("long", 9, 8)).details
    assert (details["n_prompt_tokens"], details["n_ctx"]) == (9, 8)


@pytest.mark.parametrize(
    ("error", "name", "value"),
    [
        (LOADING, "retry-after", "5"),
        (errors.BackendRefused("b", 429, "slow", retry_after="7"), "retry-after", "7"),
        (errors.BackendRefused("b", 500, "slow", retry_after="7"), "retry-after", "7"),
        (errors.NotAuthorized(), "www-authenticate", "Bearer"),
        (errors.BackendRefused("b", 401, "key"), "www-authenticate", "Bearer"),
        (errors.GuardrailsExhausted(3, "prose"), "x-should-retry", "false"),
    ],
)
def test_an_error_has_the_response_header_that_its_cause_requires(
    error: TemperError, name: str, value: str
) -> None:
    assert describe(error).headers[name] == value


def test_an_upstream_retry_after_that_is_not_ascii_is_omitted() -> None:
    error = errors.BackendRefused("b", 429, "slow", retry_after="später")
    assert describe(error).headers == {}


def test_the_error_type_of_the_backend_is_kept() -> None:
    assert describe(errors.BackendRefused("b", 400, "no", kind="their_error")).kind == "their_error"
    assert describe(errors.BackendRefused("b", 503, "no")).kind == "server_error"


def test_the_error_for_an_unknown_path_lists_the_known_paths() -> None:
    assert not_found("/x", ("/a", "/b")).message == "There is no /x. Available: /a, /b."


@pytest.mark.parametrize("path", ["/v1/v1/messages", "/v1/message", "/messages"])
def test_the_error_for_an_unknown_path_suggests_the_closest_path(path: str) -> None:
    message = not_found(path, ("/v1/messages", "/v1/models/{model_id}")).message
    assert message.startswith(f"There is no {path}. Did you mean /v1/messages? Available: ")


def test_the_error_for_a_wrong_method_has_an_allow_header() -> None:
    problem = wrong_method("GET", "/a", "POST")
    assert isinstance(problem, Problem)
    assert (problem.status, problem.headers["allow"]) == (405, "POST")


def test_an_error_has_retry_after_only_if_the_managed_server_restarts() -> None:
    assert describe(RESTARTING).headers == {"retry-after": "3"}
    assert describe(DOWN).headers == {"x-should-retry": "false"}


def test_a_retry_after_of_the_backend_is_sent_with_503() -> None:
    problem = describe(errors.BackendUnavailable("b", "is overloaded", retry_after=7))
    assert (problem.status, problem.code) == (503, "backend_unavailable")
    assert problem.headers == {"retry-after": "7"}
