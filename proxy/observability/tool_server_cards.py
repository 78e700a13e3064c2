"""What the dashboard shows of tool servers: a card for each, and calls that wait for a person.

What became of calls is counted from the records of requests, as metrics are. Whatever servers and
models wrote is visible.
"""

import msgspec

from proxy.observability.record import RequestRecord, ToolRecord
from proxy.observability.sentences import cut

_REFUSED = "refused"
_FAILURES = {
    "failed": "failed",
    "timed_out": "gave no result in time",
    "lost": "was lost as the server went away",
}


class PendingCall(msgspec.Struct, frozen=True):
    """A call that waits for a person's yes: `tool` of `server`, with `arguments` as visible JSON.

    `client` is the owner of the key that was sent, `request` the row that the call belongs to, ""
    where there is none.
    """

    id: str
    server: str
    tool: str
    arguments: str
    client: str
    request: str
    seconds_left: float


class ServerCalls(msgspec.Struct):
    """How many calls of a server's tools ended, and in which way; `failure` is the last one."""

    calls: int = 0
    failures: int = 0
    refused: int = 0
    failure: str = ""

    def take(self, tool: ToolRecord) -> None:
        """Count a call."""
        self.calls += 1
        self.refused += tool.status == _REFUSED
        if tool.status in _FAILURES:
            self.failures += 1
            why = f" ({cut(tool.error)})" if tool.error is not None else ""
            self.failure = f"{cut(tool.name)} {_FAILURES[tool.status]}{why}."


class ToolCalls:
    """What became of the calls of each tool server since the start."""

    def __init__(self) -> None:
        self._servers: dict[str, ServerCalls] = {}  # the operator names them, so they are few

    def take(self, record: RequestRecord) -> None:
        """Count the calls of a request that is over."""
        for tool in record.tools:
            self._servers.setdefault(tool.server, ServerCalls()).take(tool)

    def of(self, server: str) -> ServerCalls:
        """Return what became of the calls of one server."""
        return self._servers.get(server, ServerCalls())


class ToolServerCard(msgspec.Struct, frozen=True):
    """One tool server: its state, how many tools are offered, and what became of their calls.

    `asking` of the `tools` need a person's yes; both are None while nobody knows. `problem` is why
    it cannot be used, "" where it can.
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
