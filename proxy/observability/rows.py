"""The contents of the dashboard: a row for each request, a card for each tool server.

Rows and cards are created from records, and are the JSON of `/ui/api`, which `temper top` reads as
well. Text of clients, models and tools is cut and escaped, so that a row is small and cannot
control a terminal.
"""

import msgspec

from proxy.context.prefix import PrefixBroken, Reread
from proxy.facts import Compacted
from proxy.observability.record import (
    RUNNING,
    WAITING,
    AttemptRecord,
    RequestRecord,
    Tokens,
    ToolRecord,
)
from proxy.observability.sentences import attempt_sentence, cut, problem_sentence, sentences

OVER = "over"


class AttemptRow(msgspec.Struct, frozen=True):
    """One generation; `begun` is in seconds since the request arrived.

    `how` is a sentence about the kind, and `told` is a sentence about the problem ("" if there was
    none).
    """

    kind: str
    begun: float
    seconds: float
    defect: str | None
    error: str | None
    how: str
    told: str
    model: str = ""


class ToolRow(msgspec.Struct, frozen=True):
    """One call of a tool that Temper ran; `seconds` is None until it is over.

    A call waits `waited` seconds until a person approves it; `begun` is its start after that.
    """

    server: str
    name: str
    begun: float
    seconds: float | None
    status: str
    waited: float = 0.0


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One request; `phase` is a value of `RequestStage` or `over`, `progress` is between 0 and 1.

    `cache` is the first difference from the conversation's previous prompt. `reread` says which
    cached tokens the engine read again, and why. `problem` is the message of an error response, or
    "".
    """

    id: str
    request_id: str
    at: float
    path: str
    dialect: str
    model: str | None
    service: str | None
    client: str
    priority: str
    stream: bool | None
    phase: str
    progress: float | None = None
    seconds: float
    status: int | None
    outcome: str | None
    left: str | None
    repairs: tuple[str, ...]
    attempts: tuple[AttemptRow, ...]
    tools: tuple[ToolRow, ...]
    first_token: float | None
    queued: float | None
    tokens: Tokens
    context: Compacted | None
    cache: PrefixBroken | None
    reread: Reread | None = None
    finish_reason: str | None
    backend: str | None
    trace: str | None
    has_exchange: bool = False
    problem: str = ""


def row_of(
    record: RequestRecord, name: str, *, phase: str = OVER, progress: float | None = None
) -> Row:
    """Make the row of a finished request, or of a running request in this `phase`."""
    broken, reread = record.prefix_broken, record.reread
    return Row(
        id=name,
        request_id=cut(record.id),
        at=record.begun_at,
        path=cut(record.path),
        dialect=record.dialect,
        model=_cut(record.model),
        service=record.service,
        client=cut(record.client or ""),
        priority=record.priority,
        stream=record.stream,
        phase=phase,
        progress=progress,
        seconds=_round_seconds(record.seconds),
        status=record.status if phase == OVER else None,
        outcome=record.outcome.value if record.outcome is not None else None,
        left=record.left if phase == OVER else None,
        repairs=sentences(record.facts),
        # a turn has few attempts, but a run of tools may have hundreds
        attempts=tuple(map(_attempt, record.attempts[:12])),
        tools=tuple(map(_tool, record.tools[:100])),
        first_token=_round_or_none(record.first_token),
        queued=_round_or_none(record.queued),
        tokens=record.tokens,
        context=next((fact for fact in record.facts if isinstance(fact, Compacted)), None),
        cache=broken
        and msgspec.structs.replace(broken, reason=cut(broken.reason, 400), role=cut(broken.role)),
        reread=reread and msgspec.structs.replace(reread, reason=cut(reread.reason, 400)),
        finish_reason=_cut(record.finish_reason),
        backend=_cut(record.backend),
        trace=f"{record.trace.trace_id:032x}" if record.trace is not None else None,
        problem=cut(record.refusal),
    )


def _attempt(attempt: AttemptRecord) -> AttemptRow:
    return AttemptRow(
        kind=cut(attempt.kind),
        begun=_round_seconds(attempt.begun),
        seconds=_round_seconds(attempt.seconds),
        defect=_cut(attempt.defect),
        error=_cut(attempt.error),
        how=attempt_sentence(attempt.kind),
        told=problem_sentence(attempt.defect, attempt.error),
        model=cut(attempt.model),
    )


def _tool(tool: ToolRecord) -> ToolRow:
    seconds = None if tool.status in (RUNNING, WAITING) else _round_seconds(tool.seconds)
    begun, waited = _round_seconds(tool.begun), _round_seconds(tool.waited)
    return ToolRow(cut(tool.server), cut(tool.name), begun, seconds, cut(tool.status), waited)


def _cut(text: str | None) -> str | None:
    return None if text is None else cut(text)


def _round_or_none(seconds: float | None) -> float | None:
    return None if seconds is None else _round_seconds(seconds)


def _round_seconds(seconds: float) -> float:
    return round(seconds, 4)


# the status of a failed call -> the end of a sentence about the call
_FAILURES = {
    "failed": "failed",
    "timed_out": "returned no result in time",
    "lost": "was lost: the server disconnected",
}


class PendingCall(msgspec.Struct, frozen=True):
    """A call that waits for a person's approval; `arguments` is JSON, escaped for a terminal.

    `client` is the name of the API key, and `request` is the name of the request's row. They are ""
    if there is no key or no row.
    """

    id: str
    server: str
    tool: str
    arguments: str
    client: str
    request: str
    seconds_left: float


class ServerCalls(msgspec.Struct):
    """The number of calls of a server's tools; `failure` describes the last failure."""

    calls: int = 0
    failures: int = 0
    refused: int = 0
    failure: str = ""

    def count(self, tool: ToolRecord) -> None:
        self.calls += 1
        self.refused += tool.status == "refused"
        if tool.status in _FAILURES:
            self.failures += 1
            reason = f" ({cut(tool.error)})" if tool.error is not None else ""
            self.failure = f"{cut(tool.name)} {_FAILURES[tool.status]}{reason}."


class ToolCalls:
    """The counts of the calls of each tool server since the start."""

    def __init__(self) -> None:
        self._servers: dict[str, ServerCalls] = {}  # bounded: the operator configures the servers

    def count(self, record: RequestRecord) -> None:
        for tool in record.tools:
            self._servers.setdefault(tool.server, ServerCalls()).count(tool)

    def of(self, server: str) -> ServerCalls:
        return self._servers.get(server, ServerCalls())


class ToolServerCard(msgspec.Struct, frozen=True):
    """One tool server: its state, the number of its tools, and the counts of their calls.

    `tools` is the number of tools, and `asking` is the number of tools that need a person's
    approval. Each number is None while it is unknown. `problem` says why the server is unusable, ""
    if it is usable.
    """

    name: str
    state: str
    problem: str
    transport: str
    protocol: str
    tools: int | None
    asking: int | None
    calls: int
    failures: int
    refused: int
    failure: str
