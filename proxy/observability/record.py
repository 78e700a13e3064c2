"""What is known of one request when it is over, and who wants to know it.

Everything that is logged, counted or traced is read from this record: no sink is asked while a
reply is being generated, and what runs for a request knows none of them. Bodies never come here.
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
WAITING = "waiting"  # that of one that waits for a person's yes
CLIENT_LEFT = 499  # as nginx writes it down; nobody is there to read it

# How far a request had come when its client left.
Phase: TypeAlias = Literal[
    "receiving", "queued", "before_first_token", "between_attempts", "streaming"
]


class RequestStage(Enum):
    """What a living request is doing."""

    RECEIVING = "receiving"
    LOADING = "loading"
    QUEUED = "queued"
    READING = "reading"
    ASKED_AGAIN = "asked_again"
    RUNNING_TOOL = "running_tool"
    WAITING_FOR_PERSON = "waiting_for_person"
    STREAMING = "streaming"

    def __init__(self, word: str) -> None:
        # asked of every request: a set would ask for the hash of a member by a call
        self.is_waiting = word in ("loading", "queued")
        self.is_running = not self.is_waiting and word != "receiving"


class AttemptRecord(msgspec.Struct, frozen=True, gc=False):
    """One generation: `begun` so many seconds after the request, over after `seconds`.

    `defect` is what was wrong with the reply, `error` what kept one from coming, both words of a
    closed list. `span_id` is what an engine that traces knows this attempt by. Where tools of the
    operator may run in between, `round` counts from 1; else it is 0.
    """

    kind: str
    begun: float
    seconds: float
    defect: str | None = None
    error: str | None = None
    span_id: int = 0
    round: int = 0


class ToolRecord(msgspec.Struct, frozen=True, gc=False):
    """One call of a tool of the operator: `begun` so many seconds after the request.

    Before that it had `waited` for a person's yes. `status` is how it ended and `error` what went
    wrong, words of a closed list or a code; `transport` and `protocol` are how the `server` is
    reached. While it runs it is `RUNNING`, of no server and no length; until a person has decided
    it is `WAITING`.
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
    """What a reply cost, as the backend counted; None where it did not tell."""

    prompt: int | None = None
    cached: int | None = None
    output: int | None = None


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request to `path`; None where it was not reached or not told.

    `begun_at` is a Unix time; all other times are seconds: `queued` was spent waiting for a slot
    or for the model to be loaded, `first_token` came so long after the request. `dialect` is the
    language that the client speaks, `model` its word, `service` the configured name that it stands
    for. `outcome` is known of requests that were answered, `left` of those whose client did not
    wait for it. `number` is the board's name for it: clients may choose the same id twice.
    `client` is the name of the API key that was sent, where there are keys. `refusal` is the
    message of the error that the client got, "" for none.
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

    @property
    def overhead(self) -> float:
        """Return the seconds that were neither spent in the queue nor while others worked.

        Others are the backend and tools, of which several may run at once. What is done to a reply
        while it arrives delays nobody and is part of the attempt.
        """
        elsewhere = (self.queued or 0.0) + sum(attempt.seconds for attempt in self.attempts)
        elsewhere += _together(self.tools)
        return max(0.0, self.seconds - elsewhere)

    @property
    def error(self) -> str | None:
        """Return what kept the answer from coming, if a backend did."""
        return self.attempts[-1].error if self.attempts and self.outcome is None else None


def _together(tools: tuple[ToolRecord, ...]) -> float:
    """Return how long tools ran, or people took: of one round as long as the first and the last."""
    rounds: dict[int, tuple[float, float]] = {}
    for one in tools:
        first, last = rounds.get(one.round, (one.begun, one.begun))
        rounds[one.round] = min(first, one.begun - one.waited), max(last, one.begun + one.seconds)
    return sum(last - first for first, last in rounds.values())


class Sink(Protocol):
    """Takes the records of requests that are over."""

    def take(self, record: RequestRecord) -> None:
        """Take one; must neither wait nor raise."""


class Load(Protocol):
    """Follows how many requests there are now, for one service."""

    def wait(self, by: int) -> None:
        """Note that so many requests more wait for a slot."""

    def run(self, by: int, share: float) -> None:
        """Note that so many more have one, and with them this share of all the slots' room."""
