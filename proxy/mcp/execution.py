"""Which tools a request gets, and the calls of them: at once, bounded, with what is known of each.

Knows nothing of how servers are reached: a `ToolSource` does.
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
from proxy.mcp.specification import CallLimits, Ended
from proxy.observability.record import ToolRecord
from proxy.tools.executor import Outcome, RoundContext, Status

_CANCELLED = Ended("", Status.CANCELLED, "cancelled")
_NO_ARGUMENTS = Ended("Error: the arguments are no JSON object", Status.FAILED, "arguments")


class ToolSource(Protocol):
    """Where tools of the operator come from."""

    @property
    def names(self) -> tuple[str, ...]:
        """The servers there are, in the order of the settings."""

    def tools_of(self, server: str) -> tuple[ServedTool, ...] | None:
        """Return what a server offers; None while nobody knows, and when it is down."""

    def is_ready(self, server: str) -> bool:
        """Tell whether a server would take a call now."""

    def protocol_of(self, server: str) -> tuple[str, str]:
        """Return how a server is reached, and by which version of the protocol."""

    def condition_of(self, server: str) -> tuple[str, str]:
        """Return a server's state, and why it cannot be used, "" where it can."""

    async def call(
        self, tool: ServedTool, arguments: JsonObject, limits: CallLimits, meta: JsonObject
    ) -> Ended:
        """Call a tool once; nothing that it does raises."""


async def _nobody(_tool: ServedTool, _call: ToolCall, _arguments: JsonObject) -> Decision:
    return Decision.UNANSWERED


@dataclass(frozen=True, slots=True)
class OwnedTools:
    """The tools of the operator that one request may use: an `Executor`.

    `meta` makes what travels beside a call, `notice` is told of each call when it is over, by when
    it has `begun` on the monotonic clock, and `confirm` asks a person about those that need a yes:
    without one they are refused.
    """

    source: ToolSource
    offered: tuple[ServedTool, ...]
    limits: CallLimits = field(default_factory=CallLimits)
    meta: Callable[[ToolCall], JsonObject] = lambda _call: {}
    notice: Callable[[ToolRecord], None] = lambda _record: None
    clock: Callable[[], float] = time.monotonic
    confirm: Callable[[ServedTool, ToolCall, JsonObject], Awaitable[Decision]] = _nobody

    def specs(self) -> Sequence[Tool]:
        return tuple(one.tool for one in self.offered)

    async def execute(
        self, calls: Sequence[ToolCall], context: RoundContext
    ) -> tuple[Outcome, ...]:
        """Run the calls of one reply, several at once; the outcomes come in the calls' order."""
        longest = min(self.limits.result_chars, context.result_chars)
        limits = CallLimits(self.limits.parallel, self.limits.seconds, longest)
        gate = asyncio.Semaphore(limits.parallel)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(self._run(call, gate, limits, context)) for call in calls]
        return tuple(one.result() for one in running)

    async def _run(
        self, call: ToolCall, gate: asyncio.Semaphore, limits: CallLimits, context: RoundContext
    ) -> Outcome:
        tool = next(one for one in self.offered if one.tool.name == call.name)
        arguments, ended = _arguments(call), _CANCELLED
        asked: float | None = None
        begun: float | None = None
        try:
            if arguments is None:
                ended = _NO_ARGUMENTS
            else:
                decision = Decision.ALLOWED
                if tool.needs_yes:  # who is asked delays no other call
                    asked = self.clock()
                    decision = await self.confirm(tool, call, arguments)
                if decision.refusal is not None:
                    ended = decision.refusal
                else:
                    async with gate:
                        begun = self.clock()
                        ended = await self.source.call(tool, arguments, limits, self.meta(call))
        finally:
            now = self.clock()
            begun = now if begun is None else begun
            record = ToolRecord(
                tool.server,
                tool.own_name,
                call.id,
                context.round,
                begun,
                now - begun,
                ended.status.value,
                ended.error,
                *self.source.protocol_of(tool.server),
                waited=0.0 if asked is None else begun - asked,
            )
            self.notice(record)
        outcome = ended.outcome(call, record.seconds)
        context.finished(outcome)
        return outcome


def _arguments(call: ToolCall) -> JsonObject | None:
    try:
        arguments = json.parse(call.arguments or "{}")
    except ValueError:
        return None
    return arguments if isinstance(arguments, dict) else None


# To whom tools are offered: requests that ask, also those without tools, or all.
Offering: TypeAlias = Literal["asked", "toolless", "always"]


@dataclass(frozen=True, slots=True)
class OfferPolicy:
    """What the operator decided; no `owners` means everybody.

    `hosted` are the tools that clients declare as hosted, by the server and tool that do it.
    """

    offering: Offering = "asked"
    owners: frozenset[str] = frozenset()
    hosted: Mapping[str, tuple[str, str]] = field(default_factory=lambda: MappingProxyType({}))

    def admits(self, owner: str) -> bool:
        """Whether the owner of this key may use tools at all."""
        return not self.owners or owner in self.owners


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """Offers the tools of a `source` as the operator's `policy` has it."""

    policy: OfferPolicy
    source: ToolSource

    def tools_for(
        self, own: Sequence[Tool], wanted: Sequence[RequestedTools], owner: str
    ) -> tuple[ServedTool, ...]:
        """Return what stands behind a client's `own` tools, in the order of the settings.

        Of tools with one name the client's wins, then the first of those that are asked for. Raises
        `InvalidRequest` for a server that there is not, and `ToolServerUnavailable` for one that is
        named and not there.
        """
        if not self.policy.admits(owner):
            for one in wanted:  # who only declares a hosted tool does without
                if one.server:
                    raise ToolsNotAllowed(one.param)
            return ()
        offering = self.policy.offering
        is_alone = not own and not wanted
        is_for_all = offering == "always" or (offering == "toolless" and is_alone)
        asked = {(one.server, one.own_name) for each in wanted for one in self._select_wanted(each)}
        known = self._ready_tools()
        named = [one for one in known if (one.server, one.own_name) in asked]
        chosen: dict[str, ServedTool] = {}
        for one in (*named, *(known if is_for_all else ())):
            chosen.setdefault(one.tool.name, one)
        for tool in own:
            chosen.pop(tool.name, None)
        return tuple(one for one in known if chosen.get(one.tool.name) is one)

    def _ready_tools(self) -> list[ServedTool]:
        source = self.source
        return [one for server in source.names for one in source.tools_of(server) or ()]

    def _select_wanted(self, wanted: RequestedTools) -> Collection[ServedTool]:
        if not wanted.server:
            # agents declare one in every request: without the server they do without the tool
            named = self.policy.hosted[wanted.kind]
            return [one for one in self._ready_tools() if (one.server, one.own_name) == named]
        if wanted.server not in self.source.names:
            known = ", ".join(self.source.names)
            problem = f"There is no tool server {wanted.server!r}; there are: {known}."
            raise InvalidRequest(problem, f"{wanted.param}.server_label")
        tools = self.source.tools_of(wanted.server)
        if tools is None:
            raise ToolServerUnavailable(wanted.server)
        if not tools:
            problem = f"Nothing of the tool server {wanted.server!r} is offered."
            raise InvalidRequest(problem, f"{wanted.param}.server_label")
        if wanted.allowed is None:
            return tools
        names = {name for one in tools for name in (one.own_name, one.tool.name)}
        for place, name in enumerate(wanted.allowed):
            if name not in names:
                problem = f"The tool server {wanted.server!r} offers no tool {name!r}."
                raise InvalidRequest(problem, f"{wanted.param}.allowed_tools.{place}")
        return [one for one in tools if {one.own_name, one.tool.name} & {*wanted.allowed}]
