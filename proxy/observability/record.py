"""What is known of one request when it is over, and the sinks that take it.

All that is logged, counted or traced is read from this record: no sink is called while a reply is
being generated, and the code that runs a request knows none of them. It never contains bodies.
"""

from enum import Enum
from typing import Literal, Protocol, TypeAlias

import msgspec

from proxy.context.prefix import PrefixBroken
from proxy.facts import Fact, ReplyOutcome
from proxy.observability.trace_context import TraceContext

CHAT = "/v1/chat/completions"
CHAT_DIALECT = "chat"
RUNNING = "running"  # the status of a call that is not over
WAITING = "waiting"  # of a call that waits for a person's approval
CLIENT_LEFT = 499  # nginx's status for this; nobody is there to read it

# How far a request had come when its client left.
Phase: TypeAlias = Literal[
    "receiving", "queued", "before_first_token", "between_attempts", "streaming"
]


class RequestStage(Enum):
    """What a running request is doing."""

    RECEIVING = "receiving"
    LOADING = "loading"
    QUEUED = "queued"
    READING = "reading"
    ASKED_AGAIN = "asked_again"
    RUNNING_TOOL = "running_tool"
    WAITING_FOR_PERSON = "waiting_for_person"
    STREAMING = "streaming"

    def __init__(self, word: str) -> None:
        # asked of every request; a set would call the hash of a member
        self.is_waiting = word in ("loading", "queued")
        self.is_running = not self.is_waiting and word != "receiving"


class AttemptRecord(msgspec.Struct, frozen=True, gc=False):
    """One generation: `begun` this many seconds after the request, lasting `seconds`.

    `defect` is what was wrong with the reply, `error` what prevented one, both words of closed
    lists. `span_id` identifies this attempt to an engine that traces. Where the operator's tools
    may run in between, `round` counts from 1; otherwise it is 0.
    """

    kind: str
    begun: float
    seconds: float
    defect: str | None = None
    error: str | None = None
    span_id: int = 0
    round: int = 0


class ToolRecord(msgspec.Struct, frozen=True, gc=False):
    """One call of an operator's tool: `begun` this many seconds after the request.

    Before that it `waited` for a person's approval. `status` is how it ended and `error` what went
    wrong, words of closed lists or a code. `transport` and `protocol` say how the `server` is
    reached. A call that runs has the status `RUNNING`, no server and no length; one that waits for
    a person has `WAITING`.
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
    """What a reply cost, as the backend counted; None if it did not say."""

    prompt: int | None = None
    cached: int | None = None
    output: int | None = None


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request to `path`; None where something was not reached or is unknown.

    `begun_at` is a Unix time. All other times are seconds: `queued` was spent waiting for a slot or
    for the model, `first_token` passed since the request arrived. `dialect` is the client's
    language, `model` the name it sent, `service` the configured name that it stands for. `outcome`
    is set if the request was answered, `left` if its client did not wait. `number` is the board's:
    clients may use the same id twice. `client` is the name of the API key, if there are keys.
    `refusal` is the message of the error that the client got, "" for none.
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
    number: int = 0
    client: str | None = None
    refusal: str = ""
    priority: str = "normal"

    @property
    def overhead(self) -> float:
        """Return the seconds that were spent neither in the queue nor while others worked.

        Others are the backend and tools, several of which may run at once. Work on a reply that is
        arriving delays nobody and counts as part of the attempt.
        """
        elsewhere = (self.queued or 0.0) + sum(attempt.seconds for attempt in self.attempts)
        elsewhere += _together(self.tools)
        return max(0.0, self.seconds - elsewhere)

    @property
    def error(self) -> str | None:
        """Return why the backend gave no answer, if it failed."""
        return self.attempts[-1].error if self.attempts and self.outcome is None else None


def _together(tools: tuple[ToolRecord, ...]) -> float:
    """Return how long tools ran or people took, counting calls of one round once."""
    rounds: dict[int, tuple[float, float]] = {}
    for one in tools:
        first, last = rounds.get(one.round, (one.begun, one.begun))
        rounds[one.round] = min(first, one.begun - one.waited), max(last, one.begun + one.seconds)
    return sum(last - first for first, last in rounds.values())


class Sink(Protocol):
    """Takes the records of requests that are over."""

    def take(self, record: RequestRecord) -> None:
        """Take one record; must neither wait nor raise."""


class Load(Protocol):
    """Follows how many requests one service has at the moment."""

    def wait(self, by: int, priority: str = "normal") -> None:
        """Add to the number of requests of a `priority` that wait for a slot."""

    def run(self, by: int, share: float) -> None:
        """Add to the number that have one; `share` is their share of all slots' tokens."""
