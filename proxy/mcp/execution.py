"""Selects the operator's tools for a request, and executes the calls of these tools.

`ToolSource` is the interface to the tool servers.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import RequestedTools, Tool, ToolCall
from proxy.errors import InvalidRequest, ToolServerUnavailable, ToolsNotAllowed
from proxy.mcp.confirmations import Decision
from proxy.mcp.definitions import ServedTool
from proxy.mcp.specification import CallLimits, ToolCallResult
from proxy.observability.record import ToolRecord
from proxy.tools.executor import Outcome, RoundContext, Status

_CANCELLED = ToolCallResult("", Status.CANCELLED, "cancelled")
_NO_ARGUMENTS = ToolCallResult(
    "Error: the arguments are not a JSON object", Status.FAILED, "arguments"
)


class CallSource(Protocol):
    """An object that calls tools."""

    def protocol_of(self, server: str) -> tuple[str, str]:
        """Return the transport of a server, and the version of its protocol."""

    async def call(
        self, tool: ServedTool, arguments: JsonObject, limits: CallLimits, meta: JsonObject
    ) -> ToolCallResult:
        """Call a tool once; a failure of the tool is a result, not an exception."""


class ToolSource(CallSource, Protocol):
    """The tool servers."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the servers, in the order of the settings."""

    def tools_of(self, server: str) -> tuple[ServedTool, ...] | None:
        """Return the offered tools of a server; None if it is not ready yet, or is down."""

    def is_ready(self, server: str) -> bool:
        """Return whether a server would accept a call now."""

    def condition_of(self, server: str) -> tuple[str, str]:
        """Return the state of a server, and its problem ("" if there is none)."""


async def _without_consent(_tool: ServedTool, _call: ToolCall, _arguments: JsonObject) -> Decision:
    return Decision.UNANSWERED


@dataclass(frozen=True, slots=True)
class OperatorTools:
    """The tools of the operator that one request may use: an `Executor`.

    `meta` returns the metadata to send with a call. `notice` receives the record of each finished
    call. `confirm` waits for a person's decision about a call that needs approval; without
    `confirm`, such calls are refused.
    """

    source: CallSource
    offered: tuple[ServedTool, ...]
    limits: CallLimits = field(default_factory=CallLimits)
    meta: Callable[[ToolCall], JsonObject] = lambda _call: {}
    notice: Callable[[ToolRecord], None] = lambda _record: None
    clock: Callable[[], float] = time.monotonic
    confirm: Callable[[ServedTool, ToolCall, JsonObject], Awaitable[Decision]] = _without_consent

    def specs(self) -> Sequence[Tool]:
        return tuple(served.tool for served in self.offered)

    async def execute(
        self, calls: Sequence[ToolCall], context: RoundContext
    ) -> tuple[Outcome, ...]:
        """Execute the calls of one reply concurrently; the outcomes are in the order of calls."""
        longest = min(self.limits.result_chars, context.result_chars)
        limits = CallLimits(self.limits.parallel, self.limits.seconds, longest)
        gate = asyncio.Semaphore(limits.parallel)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(self._run(call, gate, limits, context)) for call in calls]
        return tuple(task.result() for task in running)

    async def _run(
        self, call: ToolCall, gate: asyncio.Semaphore, limits: CallLimits, context: RoundContext
    ) -> Outcome:
        tool = next(served for served in self.offered if served.tool.name == call.name)
        arguments, result = _arguments(call), _CANCELLED
        waiting_since: float | None = None
        begun: float | None = None
        try:
            if arguments is None:
                result = _NO_ARGUMENTS
            else:
                decision = Decision.ALLOWED
                # before the semaphore, so that a call that waits for approval blocks no other call
                if tool.needs_approval:
                    waiting_since = self.clock()
                    decision = await self.confirm(tool, call, arguments)
                if decision.refusal is not None:
                    result = decision.refusal
                else:
                    async with gate:
                        begun = self.clock()
                        result = await self.source.call(tool, arguments, limits, self.meta(call))
        finally:
            now = self.clock()
            begun = now if begun is None else begun
            record = ToolRecord(
                tool.server,
                tool.upstream_name,
                call.id,
                context.round,
                begun,
                now - begun,
                result.status.value,
                result.error,
                *self.source.protocol_of(tool.server),
                waited=0.0 if waiting_since is None else begun - waiting_since,
            )
            self.notice(record)
        outcome = result.outcome(call, record.seconds)
        context.finished(outcome)
        return outcome


def _arguments(call: ToolCall) -> JsonObject | None:
    try:
        arguments = json.parse(call.arguments or "{}")
    except ValueError:
        return None
    return arguments if isinstance(arguments, dict) else None


# The requests that get the operator's tools. "asked": requests that name a tool server. "toolless":
# in addition, requests without any tools. "always": all requests. The default is "asked", because
# models choose worse among many tools: 95 tools confused a model of 30B (decision 0023).
Offering: TypeAlias = Literal["asked", "toolless", "always"]


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """Selects the tools of a `source` for each request, according to the settings.

    If `owners` is empty, every key may use tools. `hosted` maps hosted tools of client APIs, such
    as web_search, to a server and its tool.
    """

    source: ToolSource
    offering: Offering = "asked"
    owners: frozenset[str] = frozenset()
    hosted: Mapping[str, tuple[str, str]] = field(default_factory=lambda: MappingProxyType({}))

    def select_tools(
        self, client_tools: Sequence[Tool], requests: Sequence[RequestedTools], owner: str
    ) -> tuple[ServedTool, ...]:
        """Return the operator's tools to add to a request, in the order of the settings.

        If the client has a tool of the same name, the operator's tool is omitted. If several tools
        of the operator have the same name, a requested tool is preferred. Raises `InvalidRequest`
        for an unknown server, and `ToolServerUnavailable` if a requested server is down.
        """
        if self.owners and owner not in self.owners:
            # without permission, hosted tools are omitted silently, but a request that names a
            # server is refused
            for request in requests:
                if request.server:
                    raise ToolsNotAllowed(request.param)
            return ()
        is_toolless = not client_tools and not requests
        gets_all = self.offering == "always" or (self.offering == "toolless" and is_toolless)
        requested = {
            (tool.server, tool.upstream_name)
            for request in requests
            for tool in self._select_requested(request)
        }
        ready = self._ready_tools()
        requested_tools = [tool for tool in ready if (tool.server, tool.upstream_name) in requested]
        chosen: dict[str, ServedTool] = {}
        for served in (*requested_tools, *(ready if gets_all else ())):
            chosen.setdefault(served.tool.name, served)
        for client_tool in client_tools:  # a tool of the client is never hidden (decision 0023)
            chosen.pop(client_tool.name, None)
        return tuple(tool for tool in ready if chosen.get(tool.tool.name) is tool)

    def _ready_tools(self) -> list[ServedTool]:
        source = self.source
        return [tool for server in source.names for tool in source.tools_of(server) or ()]

    def _select_requested(self, request: RequestedTools) -> Collection[ServedTool]:
        if not request.server:
            # agents declare hosted tools in every request, so a missing server is not an error
            target = self.hosted[request.kind]
            return [
                tool for tool in self._ready_tools() if (tool.server, tool.upstream_name) == target
            ]
        if request.server not in self.source.names:
            known = ", ".join(self.source.names)
            problem = f"Unknown tool server {request.server!r}. Available: {known}."
            raise InvalidRequest(problem, f"{request.param}.server_label")
        tools = self.source.tools_of(request.server)
        if tools is None:
            raise ToolServerUnavailable(request.server)
        if not tools:
            problem = f"No tool of the tool server {request.server!r} is available."
            raise InvalidRequest(problem, f"{request.param}.server_label")
        if request.allowed is None:
            return tools
        names = {name for tool in tools for name in (tool.upstream_name, tool.tool.name)}
        for index, name in enumerate(request.allowed):
            if name not in names:
                problem = f"The tool server {request.server!r} has no tool {name!r}."
                raise InvalidRequest(problem, f"{request.param}.allowed_tools.{index}")
        return [tool for tool in tools if {tool.upstream_name, tool.tool.name} & {*request.allowed}]
