"""Everything that can go wrong outside the model. A misbehaving model is a verdict, not an error.

Each base class answers whose fault it was:

TemperError
├── InvalidConfiguration        the operator's
├── InvalidRequest              the client's
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
├── BackendFailed               the backend's
│   ├── BackendUnavailable
│   ├── BackendTimedOut
│   ├── BackendRefused
│   └── BackendSpokeNonsense
├── RequestCancelled            nobody's: an operator has ended the request
├── ServerStopped               nobody's: Temper was told to stop before it had answered
├── GuardrailsExhausted         the model's, after every attempt
│   └── CallBrokeOff
├── ToolServerUnavailable       a tool server's
├── StateUnavailable            that of the store of responses, or of what replicas share
├── RunStopped                  a run's, that ended without what was asked of it
│   ├── RoundsExhausted
│   ├── ToolsFailed
│   ├── StepsSkipped
│   ├── NoValidReply
│   └── RunCancelled
├── ToolRetry                   a tool's, told to the model: call it otherwise
├── ToolFailed                  a tool's, told to the model: there is nothing to be had
└── ProcessFailed               a server that we started
    ├── LaunchFailed
    ├── NeverBecameReady
    └── ExitedUnexpectedly

Facts are attributes and the message is made from them; HTTP statuses live in `api.errors`.
"""

from proxy import bounds


class TemperError(Exception):
    """Base of every error that this package raises on purpose."""


class InvalidConfiguration(TemperError):
    """A setting cannot be used; `setting` is its name, and `problems` has each of several."""

    def __init__(
        self, setting: str, problem: str, problems: "tuple[InvalidConfiguration, ...]" = ()
    ) -> None:
        self.setting, self.problem = _shorten(setting), problem if problems else _shorten(problem)
        self.problems = problems or (self,)
        super().__init__(f"{self.setting}: {self.problem}")


def _shorten(text: str) -> str:
    """Leave out the middle of a sentence that quotes too much."""
    half = bounds.CHARACTERS // 2
    return text if len(text) <= bounds.CHARACTERS else f"{text[:half]} ... {text[-half:]}"


class InvalidRequest(TemperError):
    """A client sent something unusable; `param` names the field, e.g. `messages.0.content`."""

    def __init__(self, problem: str, param: str | None = None) -> None:
        self.problem, self.param = problem, param
        super().__init__(f"{param}: {problem}" if param else problem)


_WINDOW_NAMED = "maximum context length"


class ContextOverflow(InvalidRequest):
    """The prompt is longer than the window; both in tokens, None if the backend does not say.

    `read` is how much a backend has read if it silently dropped the rest.
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
        if _WINDOW_NAMED not in wording:  # clients look for these words; some engines say them
            wording = f"This model's {_WINDOW_NAMED} is {limit}: {wording}"
        super().__init__(wording, "messages")


class UnknownModel(InvalidRequest):
    """No such model; `known` lists the available ids, `remedy` says how to get others."""

    def __init__(self, model: str, known: tuple[str, ...], remedy: str = "") -> None:
        self.model, self.known = model, known
        listed = ", ".join(known) or "none"
        problem = f"The model {model!r} does not exist. Available: {listed}."
        super().__init__(f"{problem} {remedy}".strip(), "model")


class PreviousResponseUnknown(InvalidRequest):
    """The response to continue is unknown, forgotten, or belongs to somebody else."""

    def __init__(self, response_id: str) -> None:
        self.response_id = response_id
        problem = f"Previous response with id {response_id!r} not found. Send the whole `input`."
        super().__init__(problem, "previous_response_id")


class RequestTooLarge(InvalidRequest):
    """The body is larger than the server accepts; `limit` in bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(f"The request body is larger than {limit} bytes (server.max_body_bytes)")


class RequestTimedOut(InvalidRequest):
    """The body did not arrive within `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(
            f"The request body did not arrive within {seconds:g} s (server.body_seconds)"
        )


class NotJson(InvalidRequest):
    """The body is not declared to be JSON."""

    def __init__(self) -> None:
        super().__init__("Send JSON, and say so: 'Content-Type: application/json'", "content-type")


class HostNotAllowed(InvalidRequest):
    """The server was called by a name that is not its own."""

    def __init__(self) -> None:
        problem = "This server does not go by that name: call it by its address, or have its "
        super().__init__(f"{problem}operator add the name to server.allowed_hosts", "host")


class NotAuthorized(InvalidRequest):
    """No key was sent, or a wrong one if there `was_sent` any."""

    def __init__(self, *, was_sent: bool = False) -> None:
        wrong = "The API key that was sent is not valid. " if was_sent else ""
        super().__init__(f"{wrong}Send the server's API key as 'Authorization: Bearer <key>'")


class ToolsNotAllowed(InvalidRequest):
    """The owner of this key may not use the tools of a server."""

    def __init__(self, param: str) -> None:
        super().__init__("The tools of this server are not for the owner of this key.", param)


class NotTheOperator(InvalidRequest):
    """The dashboard was requested with a key that opens only the API."""

    def __init__(self, owner: str) -> None:
        problem = f"The dashboard is not for the key of {owner}: use server.api_key, or have the "
        super().__init__(f"{problem}operator add the name to ui.owners")


class ForeignOrigin(InvalidRequest):
    """A web page of another origin requested the dashboard's data."""

    def __init__(self) -> None:
        super().__init__("Only the dashboard's own page may ask for this", "origin")


class KeyReused(InvalidRequest):
    """An idempotency key was reused for another request."""

    def __init__(self) -> None:
        problem = "This key was sent with another request before: use a new one for each request"
        super().__init__(problem, "idempotency-key")


class QueueFull(InvalidRequest):
    """Too many requests wait already; there may be room in `retry_after` seconds."""

    def __init__(self, waiting: int, retry_after: int) -> None:
        self.waiting, self.retry_after = waiting, retry_after
        problem = f"{waiting} requests wait for the model already (server.max_waiting)"
        super().__init__(f"{problem}: try again in {retry_after} s")


class BackendFailed(TemperError):
    """The backend failed; `backend` is its address or name."""

    def __init__(self, backend: str, problem: str) -> None:
        self.backend, self.problem = backend, problem
        super().__init__(f"The backend {backend} {problem}.")


class BackendUnavailable(BackendFailed):
    """No connection, or it broke; `loading` if the backend said it is still loading its model.

    It is there again in `retry_after` seconds, where that is known; one that `is_managed` is a
    managed server and stays down where it is None. The request was not read by one that
    `is_unreached`.
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
    """The backend was silent for too long; `is_overall` if everything together took too long."""

    def __init__(self, backend: str, problem: str, *, is_overall: bool = False) -> None:
        self.is_overall = is_overall
        super().__init__(backend, problem)


class BackendRefused(BackendFailed):
    """The backend's own error, as it came; `param` is the field that it blames, "" for none.

    `failed_text` is what the model wrote, where the error quotes it.
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


class BackendSpokeNonsense(BackendFailed):
    """The backend broke its own protocol; `sample` is for the debug log only.

    It `is_endless` if the only problem was that the reply did not end.
    """

    def __init__(
        self, backend: str, problem: str, sample: bytes = b"", *, is_endless: bool = False
    ) -> None:
        self.sample, self.is_endless = sample, is_endless
        super().__init__(backend, problem)


class RequestCancelled(TemperError):
    """An operator ended a request while it was being answered."""

    def __init__(self) -> None:
        super().__init__("An operator of this server has ended the request.")


class ServerStopped(TemperError):
    """Temper was told to stop and could not wait for the answer."""

    def __init__(self) -> None:
        super().__init__("This server is stopping. Send the request again once it runs.")


class GuardrailsExhausted(TemperError):
    """No attempt gave a usable reply, and the operator wants an error then.

    The `objection` names the tool, and what was wrong with its last call.
    """

    def __init__(self, attempts: int, defect: str, objection: str = "") -> None:
        self.attempts, self.defect, self.objection = attempts, defect, objection
        about = f" ({objection})" if objection else ""
        super().__init__(
            f"No valid tool call after {attempts} attempts; the last one: {defect}{about}"
        )


class CallBrokeOff(GuardrailsExhausted):
    """The client saw the beginning of a call of `tool`, but it never became valid."""

    def __init__(self, attempts: int, defect: str, tool: str) -> None:
        super().__init__(attempts, defect)
        self.tool = tool

    def __str__(self) -> str:
        return (
            f"The call of {self.tool} broke off: after {self.attempts} attempts the model has not "
            f"completed it ({self.defect}). Nothing of it should be run; send the request again"
        )


class ToolServerUnavailable(TemperError):
    """A requested tool `server` is not available, or not yet."""

    def __init__(self, server: str) -> None:
        self.server = server
        super().__init__(f"The tool server {server!r} is not available")


class StateUnavailable(TemperError):
    """A store cannot be used, by default the shared one: its contents are unknown."""

    def __init__(
        self, problem: str = "What is shared with other replicas cannot be read now (state.url)"
    ) -> None:
        super().__init__(problem)


class RunStopped(TemperError):
    """A run ended otherwise than with an answer; `result` is all that it has.

    `tool` is the one that it is about, "" where there is none; its own error is the `__cause__`.
    `attempts` were made at the last reply, which was `reply`. Of the required steps some are
    `completed`, others `pending`.
    """

    def __init__(self, result: object, problem: str, tool: str = "") -> None:
        self.result, self.tool = result, tool
        self.attempts: int = getattr(result, "attempts", 0)
        self.reply: str = getattr(result, "reply", "")
        self.completed: tuple[str, ...] = getattr(result, "completed", ())
        self.pending: tuple[str, ...] = getattr(result, "pending", ())
        super().__init__(problem)


class RoundsExhausted(RunStopped):
    """The limit of tool rounds was reached."""


class ToolsFailed(RunStopped):
    """Tools failed in one round after another."""


class StepsSkipped(RunStopped):
    """The model refused to take a required step."""


class NoValidReply(RunStopped):
    """No reply of the model was usable."""


class RunCancelled(RunStopped):
    """The run was cancelled."""


class ToolRetry(TemperError):
    """Raised by a tool that was called incorrectly; the message tells the model how to call it."""


class ToolFailed(TemperError):
    """Raised by a tool that was called correctly but has no result; nobody made a mistake."""


class ProcessFailed(TemperError):
    """A server that we started failed; `log` holds its last lines.

    It `is_lasting` if another start would end the same way.
    """

    def __init__(
        self, program: str, problem: str, log: tuple[str, ...] = (), *, is_lasting: bool = False
    ) -> None:
        self.program, self.problem = program, problem
        self.log, self.is_lasting = log, is_lasting
        super().__init__(f"{program} {problem}")


class LaunchFailed(ProcessFailed):
    """It ended before it was ready."""


class NeverBecameReady(ProcessFailed):
    """It runs but did not become ready in time."""


class ExitedUnexpectedly(ProcessFailed):
    """It ended while it was being used."""
