"""The record of a finished request, and the interface of its sinks.

Logs, metrics and traces are made only from this record. No sink is called while a reply is being
generated, and the code that runs a request does not depend on sinks. A record contains no bodies.
"""

from enum import Enum
from typing import Literal, Protocol, TypeAlias

import msgspec

from proxy.context.prefix import PrefixBroken, Reread
from proxy.facts import Fact, ReplyOutcome
from proxy.observability.trace_context import TraceContext

CHAT = "/v1/chat/completions"
CHAT_DIALECT = "chat"
RUNNING = "running"  # status of a running tool call
WAITING = "waiting"  # status of a tool call that waits for a person's approval
CLIENT_LEFT = 499  # nginx's status for a disconnected client; it is only logged, never sent

# The state of a request when its client disconnected.
Phase: TypeAlias = Literal[
    "receiving", "queued", "before_first_token", "between_attempts", "streaming"
]


class RequestStage(Enum):
    """The current activity of a running request."""

    RECEIVING = "receiving"
    LOADING = "loading"
    QUEUED = "queued"
    READING = "reading"
    ASKED_AGAIN = "asked_again"
    RUNNING_TOOL = "running_tool"
    WAITING_FOR_PERSON = "waiting_for_person"
    STREAMING = "streaming"

    def __init__(self, word: str) -> None:
        # attributes, because every request reads them, and hashing a member for a set is slow
        self.is_waiting = word in ("loading", "queued")
        self.is_running = not self.is_waiting and word != "receiving"


class AttemptRecord(msgspec.Struct, frozen=True, gc=False):
    """One generation: it began `begun` seconds after the request and took `seconds`.

    `kind`, `defect` and `error` are words of closed lists, e.g. "nudged", "invalid_arguments" and
    "timed_out". `defect` is set if the reply was rejected, and `error` is set if there was no
    reply. `span_id` is the parent of the engine's spans. `round` is the number of the tool round
    (from 1), or 0 for a request without operator tools. `model` is set if it is not the requested
    model.
    """

    kind: str
    begun: float
    seconds: float
    defect: str | None = None
    error: str | None = None
    span_id: int = 0
    round: int = 0
    model: str = ""


class ToolRecord(msgspec.Struct, frozen=True, gc=False):
    """One call of an operator's tool: it began `begun` seconds after the request.

    Before that, the call waited `waited` seconds for a person's approval. `status` is a word of a
    closed list, and `error` is a word of a closed list or an error code. `transport` and `protocol`
    are those of the MCP `server`. A running call has the status `RUNNING`, no server and 0 seconds.
    A call that waits for approval has the status `WAITING`.
    """

    server: str
    name: str
    call_id: str
    round: int
    begun: float
    seconds: float
    status: str
    error: str | None = None
    transport: str = ""
    protocol: str = ""
    span_id: int = 0
    waited: float = 0.0


class Tokens(msgspec.Struct, frozen=True, gc=False):
    """The token counts that the backend reported; None if it did not report them.

    `reading` are the seconds in which the backend read the uncached part of the prompt.
    """

    prompt: int | None = None
    cached: int | None = None
    output: int | None = None
    reading: float | None = None


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request to `path`. A field is None if the request ended before its value was known.

    `begun_at` is a Unix time; all other times are seconds. `queued` is the time of waiting for a
    slot or for the model; `first_token` is measured from the request's arrival. `dialect` is the
    API of the client, `model` is the name that the client sent, and `service` is the configured
    name of that model. `outcome` is set if the request was answered, and `left` is set if its
    client disconnected. `number` is unique on the board, unlike `id`, which clients may send twice.
    `client` is the name of the API key, if there are keys. `refusal` is the message of the error
    response, "" if there was none.
    """

    id: str
    begun_at: float
    seconds: float
    status: int
    path: str = CHAT
    dialect: str = CHAT_DIALECT
    model: str | None = None
    service: str | None = None
    backend: str | None = None
    stream: bool | None = None
    queued: float | None = None
    first_token: float | None = None
    tokens: Tokens = Tokens()
    finish_reason: str | None = None
    attempts: tuple[AttemptRecord, ...] = ()
    facts: tuple[Fact, ...] = ()
    outcome: ReplyOutcome | None = None
    left: Phase | None = None
    trace: TraceContext | None = None
    tools: tuple[ToolRecord, ...] = ()
    prefix_broken: PrefixBroken | None = None
    reread: Reread | None = None
    number: int = 0
    client: str | None = None
    refusal: str = ""
    priority: str = "normal"

    @property
    def overhead(self) -> float:
        """Return the seconds that were spent neither in the queue, nor in backends, nor in tools.

        Temper's work on a reply that is still arriving counts as time of the backend, because it
        does not delay the answer.
        """
        known = (self.queued or 0.0) + sum(attempt.seconds for attempt in self.attempts)
        known += _tool_seconds(self.tools)
        return max(0.0, self.seconds - known)

    @property
    def error(self) -> str | None:
        """The error of the last attempt; None if the request was answered."""
        return self.attempts[-1].error if self.attempts and self.outcome is None else None


def _tool_seconds(tools: tuple[ToolRecord, ...]) -> float:
    """Return the seconds of all tool rounds, including approvals.

    The calls of a round run concurrently, so the longest call determines the time of its round.
    """
    rounds: dict[int, tuple[float, float]] = {}
    for tool in tools:
        first, last = rounds.get(tool.round, (tool.begun, tool.begun))
        begun, ended = tool.begun - tool.waited, tool.begun + tool.seconds
        rounds[tool.round] = min(first, begun), max(last, ended)
    return sum(last - first for first, last in rounds.values())


class Sink(Protocol):
    """A receiver of the records of finished requests."""

    def take(self, record: RequestRecord) -> None:
        """Process one record; must neither block nor raise."""


class Load(Protocol):
    """Counts the waiting and running requests of one model."""

    def wait(self, by: int, priority: str = "normal") -> None:
        """Add to the number of requests of a `priority` that wait for a slot."""

    def run(self, by: int, share: float) -> None:
        """Add to the number of requests with a slot; `share` is their share of all slots' tokens.

        When a request ends, `by` and `share` are negative.
        """
