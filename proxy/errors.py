"""All errors that Temper raises. A bad reply of the model is a defect, not an error: see `facts`.

The base class shows who has to act:

TemperError
├── InvalidConfiguration        the operator
├── InvalidRequest              the client
│   ├── ContextOverflow
│   ├── UnknownModel
│   ├── PreviousResponseUnknown
│   ├── RequestTooLarge
│   ├── RequestTimedOut
│   ├── NotJson
│   ├── HostNotAllowed
│   ├── NotAuthorized
│   ├── ToolsNotAllowed
│   ├── NotTheOperator
│   ├── ForeignOrigin
│   ├── KeyReused
│   └── QueueFull
├── BackendFailed               the backend failed
│   ├── BackendUnavailable
│   ├── BackendTimedOut
│   ├── BackendRefused
│   └── BackendReplyInvalid
├── RequestCancelled            an operator canceled the request
├── ServerStopped               Temper is shutting down
├── GuardrailsExhausted         the model gave no usable reply in all attempts
│   └── CallBrokeOff
├── ToolServerUnavailable       a tool server is down
├── StateUnavailable            the response store or the shared state of replicas is down
├── RunStopped                  an agent run ended without an answer
│   ├── RoundsExhausted
│   ├── ToolsFailed
│   ├── StepsSkipped
│   ├── NoValidReply
│   └── RunCancelled
├── ToolRetry                   raised by a tool: the model should call it differently
├── ToolFailed                  raised by a tool: the call was correct, but has no result
├── DownloadFailed              the network, the hub or the disk failed
└── ProcessFailed               a managed llama-server failed
    ├── LaunchFailed
    ├── NeverBecameReady
    └── ExitedUnexpectedly

The details of an error are attributes, from which its message is built. `api.errors` maps errors to
HTTP statuses.
"""

from proxy import bounds


class TemperError(Exception):
    """Base class of all errors that this package raises."""


class InvalidConfiguration(TemperError):
    """The value of `setting` is unusable; `problems` lists the errors if there are several."""

    def __init__(
        self, setting: str, problem: str, problems: "tuple[InvalidConfiguration, ...]" = ()
    ) -> None:
        self.setting, self.problem = _shorten(setting), problem if problems else _shorten(problem)
        self.problems = problems or (self,)
        super().__init__(f"{self.setting}: {self.problem}")


def _shorten(text: str) -> str:
    """Replace the middle of a long text by dots."""
    half = bounds.CHARACTERS // 2
    return text if len(text) <= bounds.CHARACTERS else f"{text[:half]} ... {text[-half:]}"


class InvalidRequest(TemperError):
    """The request is invalid; `param` is the path of the field, e.g. `messages.0.content`."""

    def __init__(self, problem: str, param: str | None = None) -> None:
        self.problem, self.param = problem, param
        super().__init__(f"{param}: {problem}" if param else problem)


_WINDOW_NAMED = "maximum context length"


class ContextOverflow(InvalidRequest):
    """The prompt exceeds the window.

    `prompt_tokens` and `window` are in tokens, None if the backend does not report them. `read` is
    the number of tokens that a backend read before it silently truncated the prompt.
    """

    def __init__(
        self,
        wording: str,
        prompt_tokens: int | None,
        window: int | None,
        *,
        read: int | None = None,
    ) -> None:
        self.prompt_tokens, self.window, self.read = prompt_tokens, window, read
        limit = f"{window} tokens" if window is not None else "exceeded"
        if _WINDOW_NAMED not in wording:  # clients search for these words of OpenAI's error
            wording = f"This model's {_WINDOW_NAMED} is {limit}: {wording}"
        super().__init__(wording, "messages")


class UnknownModel(InvalidRequest):
    """The model does not exist; `known` are the available ids, `remedy` says how to add a model."""

    def __init__(self, model: str, known: tuple[str, ...], remedy: str = "") -> None:
        self.model, self.known = model, known
        listed = ", ".join(known) or "none"
        problem = f"The model {model!r} does not exist. Available: {listed}."
        super().__init__(f"{problem} {remedy}".strip(), "model")


class PreviousResponseUnknown(InvalidRequest):
    """The previous response is unknown, expired, or belongs to another client."""

    def __init__(self, response_id: str) -> None:
        self.response_id = response_id
        problem = f"Previous response with id {response_id!r} not found."
        remedy = "Send the full conversation in `input`."
        super().__init__(f"{problem} {remedy}", "previous_response_id")


class RequestTooLarge(InvalidRequest):
    """The body is larger than `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        problem = f"The request body is larger than {limit} bytes (server.max_body_bytes)."
        super().__init__(f"{problem} Send a smaller request.")


class RequestTimedOut(InvalidRequest):
    """The body did not arrive within `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(
            f"The request body did not arrive within {seconds:g} s (server.body_seconds). "
            "Send the request again."
        )


class NotJson(InvalidRequest):
    """The content type is not JSON."""

    def __init__(self) -> None:
        problem = "The content type is not JSON. Send 'Content-Type: application/json'."
        super().__init__(problem, "content-type")


class HostNotAllowed(InvalidRequest):
    """The Host header is not allowed (protection against DNS rebinding)."""

    def __init__(self) -> None:
        problem = "Host not allowed. Use the server's address, or add the name to "
        super().__init__(f"{problem}server.allowed_hosts.", "host")


class NotAuthorized(InvalidRequest):
    """The API key is missing, or invalid if the client sent a key (`was_sent`)."""

    def __init__(self, *, was_sent: bool = False) -> None:
        problem = "The API key is not valid" if was_sent else "The API key is missing"
        remedy = "Send the server's API key as 'Authorization: Bearer <key>'."
        super().__init__(f"{problem}. {remedy}")


class ToolsNotAllowed(InvalidRequest):
    """This key may not use the operator's tools."""

    def __init__(self, param: str) -> None:
        problem = "This API key may not use the server's tools. Ask the operator (tools.owners)."
        super().__init__(problem, param)


class NotTheOperator(InvalidRequest):
    """This key may use the API, but not the dashboard."""

    def __init__(self, owner: str) -> None:
        problem = f"The key of {owner} may not open the dashboard. Use server.api_key, or add "
        super().__init__(f"{problem}{owner} to ui.owners.")


class ForeignOrigin(InvalidRequest):
    """A web page from another origin requested dashboard data."""

    def __init__(self) -> None:
        problem = "Requests from other origins are not allowed. Use the dashboard at /ui."
        super().__init__(problem, "origin")


class KeyReused(InvalidRequest):
    """The idempotency key was already used for a different request."""

    def __init__(self) -> None:
        problem = "The key was already used for a different request. Use a new key per request."
        super().__init__(problem, "idempotency-key")


class QueueFull(InvalidRequest):
    """The queue is full; a retry may succeed after `retry_after` seconds."""

    def __init__(self, waiting: int, retry_after: int) -> None:
        self.waiting, self.retry_after = waiting, retry_after
        problem = f"The queue is full: {waiting} requests are waiting (server.max_waiting)."
        super().__init__(f"{problem} Try again in {retry_after} s.")


class BackendFailed(TemperError):
    """The backend failed; `backend` is its address or name."""

    def __init__(self, backend: str, problem: str) -> None:
        self.backend, self.problem = backend, problem
        super().__init__(f"The backend {backend} {problem}.")


class BackendUnavailable(BackendFailed):
    """The connection to the backend failed or broke, or the backend is `loading` its model.

    `retry_after` is the expected time in seconds until the backend is available again. If the
    server `is_managed`, a `retry_after` of None means that the server will not be restarted.
    `is_unreached` means that the backend has not read the request, so the request can be sent to
    another server without being processed twice.
    """

    def __init__(
        self,
        backend: str,
        problem: str,
        *,
        loading: bool = False,
        is_managed: bool = False,
        retry_after: int | None = None,
        is_unreached: bool = False,
    ) -> None:
        self.loading, self.retry_after = loading, retry_after
        self.is_managed, self.is_unreached = is_managed, is_unreached
        super().__init__(backend, problem)


class BackendTimedOut(BackendFailed):
    """The backend timed out; `is_overall` means that all attempts together took too long."""

    def __init__(self, backend: str, problem: str, *, is_overall: bool = False) -> None:
        self.is_overall = is_overall
        super().__init__(backend, problem)


class BackendRefused(BackendFailed):
    """The backend returned an error; `param` is the request field that the error names, or "".

    If the engine failed to parse the model's output and quotes the output in its error,
    `failed_text` is the quoted output.
    """

    def __init__(
        self,
        backend: str,
        status: int,
        message: str,
        *,
        kind: str = "",
        param: str = "",
        retry_after: str = "",
    ) -> None:
        self.status, self.message = status, message
        self.failed_text: str | None = None
        self.kind, self.param, self.retry_after = kind, param, retry_after
        super().__init__(backend, f"answered {status}: {message}")


class BackendReplyInvalid(BackendFailed):
    """The backend violated its protocol; `sample` are received bytes for the debug log.

    `is_endless` means that the only problem was a missing end of the reply.
    """

    def __init__(
        self, backend: str, problem: str, sample: bytes = b"", *, is_endless: bool = False
    ) -> None:
        self.sample, self.is_endless = sample, is_endless
        super().__init__(backend, problem)


BackendSpokeNonsense = BackendReplyInvalid  # the name until 0.2.0


class RequestCancelled(TemperError):
    """An operator canceled the request."""

    def __init__(self) -> None:
        super().__init__("An operator of this server canceled the request.")


class ServerStopped(TemperError):
    """Temper is shutting down, and the grace period is over."""

    def __init__(self) -> None:
        super().__init__(
            "The server is shutting down. Send the request again after it has restarted."
        )


class GuardrailsExhausted(TemperError):
    """No attempt gave a usable reply.

    It is raised if the setting `guardrails.exhausted` is "error", or if the request has no tools.
    `objection` describes the error in the last call, and starts with the name of the tool.
    """

    def __init__(self, attempts: int, defect: str, objection: str = "") -> None:
        self.attempts, self.defect, self.objection = attempts, defect, objection
        about = f" ({objection})" if objection else ""
        missing = (
            "reply that the backend could parse" if defect == "unreadable" else "valid tool call"
        )
        super().__init__(f"No {missing} after {attempts} attempts; last defect: {defect}{about}")


class CallBrokeOff(GuardrailsExhausted):
    """A part of a call of `tool` was streamed to the client, but no attempt completed the call."""

    def __init__(self, attempts: int, defect: str, tool: str) -> None:
        super().__init__(attempts, defect)
        self.tool = tool

    def __str__(self) -> str:
        return (
            f"The call of {self.tool} is incomplete after {self.attempts} attempts "
            f"({self.defect}). Do not run it; send the request again."
        )


class ToolServerUnavailable(TemperError):
    """A tool server that the request names is down, or not ready yet."""

    def __init__(self, server: str) -> None:
        self.server = server
        super().__init__(f"The tool server {server!r} is not available. Try again later.")


class StateUnavailable(TemperError):
    """A store is unavailable; by default the state that replicas share."""

    def __init__(
        self, problem: str = "The shared state is unavailable (state.url). Try again later."
    ) -> None:
        super().__init__(problem)


class RunStopped(TemperError):
    """An agent run ended without an answer; `result` is the partial `RunResult`.

    `tool` is the tool that caused the end, or ""; its exception is the `__cause__`. `reply` is the
    last of `attempts` replies. `completed` are the required steps that the model has called, and
    `pending` are the required steps that the model has not called.
    """

    def __init__(self, result: object, problem: str, tool: str = "") -> None:
        self.result, self.tool = result, tool
        # typed as object, because this lowest layer cannot import `agents.results.RunResult`
        self.attempts: int = getattr(result, "attempts", 0)
        self.reply: str = getattr(result, "reply", "")
        self.completed: tuple[str, ...] = getattr(result, "completed", ())
        self.pending: tuple[str, ...] = getattr(result, "pending", ())
        super().__init__(problem)


class RoundsExhausted(RunStopped):
    """The limit of tool rounds was reached."""


class ToolsFailed(RunStopped):
    """Tools failed in too many consecutive rounds."""


class StepsSkipped(RunStopped):
    """The model skipped a required step, or called `tool` before its prerequisite."""


class NoValidReply(RunStopped):
    """No attempt gave a usable reply."""


class RunCancelled(RunStopped):
    """The run was canceled."""


class ToolRetry(TemperError):
    """Raised by a tool for an incorrect call; the model receives the message and may retry."""


class ToolFailed(TemperError):
    """Raised by a tool for a correct call that has no result; the model receives the message."""


class DownloadFailed(TemperError):
    """A model could not be downloaded; the message contains the reason and a remedy."""


class ProcessFailed(TemperError):
    """A managed llama-server failed; `log` are the last lines of its output.

    `is_lasting` means that a restart would fail in the same way.
    """

    def __init__(
        self, program: str, problem: str, log: tuple[str, ...] = (), *, is_lasting: bool = False
    ) -> None:
        self.program, self.problem = program, problem
        self.log, self.is_lasting = log, is_lasting
        super().__init__(f"{program} {problem}")


class LaunchFailed(ProcessFailed):
    """The server exited before it was ready."""


class NeverBecameReady(ProcessFailed):
    """The server did not become ready in time."""


class ExitedUnexpectedly(ProcessFailed):
    """The server exited while it was in use."""
