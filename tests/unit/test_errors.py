import pytest

from proxy import errors


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (errors.InvalidConfiguration("api.port", "expected a number"), "api.port: expected"),
        (errors.InvalidRequest("Expected an array."), "Expected an array."),
        (errors.InvalidRequest("Expected an array.", "messages"), "messages: Expected an array."),
        (
            errors.ContextOverflow("too long", 9, 8),
            "messages: This model's maximum context length is 8 tokens: too long",
        ),
        (
            errors.ContextOverflow("too long", None, None),
            "messages: This model's maximum context length is exceeded: too long",
        ),
        (
            errors.ContextOverflow("The maximum context length is 8 tokens.", 9, 8),
            "messages: The maximum context length is 8 tokens.",
        ),
        (
            errors.UnknownModel("x", ("a", "b")),
            "model: The model 'x' does not exist. Available: a, b.",
        ),
        (errors.UnknownModel("x", ()), "model: The model 'x' does not exist. Available: none."),
        (
            errors.UnknownModel("x", ("a",), "Pull it first: ollama pull x"),
            "model: The model 'x' does not exist. Available: a. Pull it first: ollama pull x",
        ),
        (
            errors.RequestTooLarge(9),
            "The request body is larger than 9 bytes (server.max_body_bytes)",
        ),
        (
            errors.RequestTimedOut(30),
            "The request body did not arrive within 30 s (server.body_seconds)",
        ),
        (
            errors.NotJson(),
            "content-type: The content type is not JSON. Send 'Content-Type: application/json'.",
        ),
        (
            errors.HostNotAllowed(),
            "host: Host not allowed. Use the server's address, or add the name to "
            "server.allowed_hosts.",
        ),
        (
            errors.KeyReused(),
            "idempotency-key: The key was already used for a different request. Use a new key per "
            "request.",
        ),
        (
            errors.QueueFull(9, 3),
            "The queue is full: 9 requests are waiting (server.max_waiting). Try again in 3 s.",
        ),
        (
            errors.NotAuthorized(),
            "The API key is missing. Send the server's API key as 'Authorization: Bearer <key>'.",
        ),
        (
            errors.NotAuthorized(was_sent=True),
            "The API key is not valid. Send the server's API key as 'Authorization: Bearer <key>'.",
        ),
        (
            errors.BackendUnavailable("http://b", "refused the connection"),
            "The backend http://b refused the connection.",
        ),
        (
            errors.BackendTimedOut("http://b", "was silent for 5 s"),
            "The backend http://b was silent for 5 s.",
        ),
        (errors.BackendRefused("http://b", 429, "busy"), "The backend http://b answered 429: busy"),
        (
            errors.BackendReplyInvalid("http://b", "sent no JSON"),
            "The backend http://b sent no JSON.",
        ),
        (
            errors.GuardrailsExhausted(3, "prose"),
            "No valid tool call after 3 attempts; last defect: prose",
        ),
        (errors.LaunchFailed("llama-server", "ended"), "llama-server ended"),
    ],
)
def test_every_error_has_its_message(error: errors.TemperError, message: str) -> None:
    assert str(error).startswith(message)


def test_the_details_of_errors_are_attributes() -> None:
    overflow = errors.ContextOverflow("too long", 9, 8)
    refused = errors.BackendRefused("b", 429, "busy", kind="rate_limit", retry_after="7")
    exhausted = errors.GuardrailsExhausted(3, "prose")
    failed = errors.NeverBecameReady("llama-server", "is slow", ("last", "lines"))

    assert (overflow.param, overflow.prompt_tokens, overflow.window) == ("messages", 9, 8)
    assert errors.InvalidConfiguration("a", "b").setting == "a"
    assert errors.RequestTooLarge(9).limit == 9
    assert errors.UnknownModel("x", ("a",)).known == ("a",)
    assert errors.BackendUnavailable("b", "is loading", loading=True).loading
    assert (refused.status, refused.kind, refused.retry_after) == (429, "rate_limit", "7")
    assert errors.BackendReplyInvalid("b", "spoke", b"raw").sample == b"raw"
    assert (exhausted.attempts, exhausted.defect) == (3, "prose")
    assert (failed.program, failed.log) == ("llama-server", ("last", "lines"))


def test_errors_about_servers_and_stopped_runs_have_messages_and_attributes() -> None:
    stopped = errors.RoundsExhausted({"rounds": 9}, "There were nine rounds")
    assert (stopped.result, str(stopped)) == ({"rounds": 9}, "There were nine rounds")
    assert errors.ToolServerUnavailable("search").server == "search"
    assert "state.url" in str(errors.StateUnavailable())
    assert "operator" in str(errors.RequestCancelled())
    assert "after it has restarted" in str(errors.ServerStopped())
    assert "key of anna" in str(errors.NotTheOperator("anna"))
    refused = (errors.ForeignOrigin(), errors.ToolsNotAllowed("tools.0"))
    assert [error.param for error in refused] == ["origin", "tools.0"]


def read_tree() -> dict[str, str]:
    """Read the tree in the module's docstring: the name of each error and of its parent."""
    parents: dict[str, str] = {}
    above: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if line == "TemperError":
            above = [line]
        elif "── " in line:
            depth = (len(line) - len(line.lstrip("│ ├─└"))) // 4
            name = line.lstrip("│ ├─└").split()[0]
            parents[name] = above[depth - 1]
            above[depth:] = [name]
    return parents


def test_the_tree_in_the_docstring_is_the_tree_of_classes() -> None:
    real = {
        kind.__name__: kind.__base__.__name__
        for kind in vars(errors).values()
        if isinstance(kind, type) and kind is not errors.TemperError and kind.__base__
    }

    assert read_tree() == real
    assert errors.TemperError.__base__ is Exception
