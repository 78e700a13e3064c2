"""Runs the calls of one request's tools: at once, bounded, each with what is known of it.

Knows nothing of how servers are reached: a `ToolSource` does.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool, ToolCall
from proxy.rounds.executor import RoundContext
from proxy.rounds.outcomes import Outcome, Status
from proxy.toolservers.calling import Called, Ended
from proxy.toolservers.definitions import ServedTool
from proxy.toolservers.specification import CallLimits

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

    async def call(
        self, tool: ServedTool, arguments: JsonObject, limits: CallLimits, meta: JsonObject
    ) -> Ended:
        """Call a tool once; nothing that it does raises."""


def _no_meta(_: ToolCall) -> JsonObject:
    return {}


@dataclass(frozen=True, slots=True)
class OwnedTools:
    """The tools of the operator that one request may use: an `Executor`.

    `meta` makes what travels beside a call, `notice` is told of each call when it is over.
    """

    source: ToolSource
    offered: tuple[ServedTool, ...]
    limits: CallLimits = field(default_factory=CallLimits)
    meta: Callable[[ToolCall], JsonObject] = _no_meta
    notice: Callable[[Called], None] = lambda _called: None
    clock: Callable[[], float] = time.monotonic

    def specs(self) -> Sequence[Tool]:
        """Return the tools, in the order of the settings."""
        return tuple(one.tool for one in self.offered)

    async def execute(
        self, calls: Sequence[ToolCall], context: RoundContext
    ) -> tuple[Outcome, ...]:
        """Run the calls of one reply, several at once; the outcomes come in the calls' order."""
        longest = min(self.limits.result_chars, context.result_chars)
        limits = CallLimits(self.limits.parallel, self.limits.seconds, longest)
        gate = asyncio.Semaphore(limits.parallel)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(self._run(call, gate, limits)) for call in calls]
        return tuple(one.result() for one in running)

    async def _run(self, call: ToolCall, gate: asyncio.Semaphore, limits: CallLimits) -> Outcome:
        async with gate:
            tool = next(one for one in self.offered if one.tool.name == call.name)
            begun, ended = self.clock(), Ended("", Status.CANCELLED, "cancelled")
            try:
                ended = await self._call(tool, call, limits)
            finally:
                seconds = self.clock() - begun
                self.notice(self._called(tool, call, ended).ran(begun, seconds))
            return ended.outcome(call, seconds)

    async def _call(self, tool: ServedTool, call: ToolCall, limits: CallLimits) -> Ended:
        try:
            arguments = json.parse(call.arguments or "{}")
        except ValueError:
            return _NO_ARGUMENTS
        if not isinstance(arguments, dict):
            return _NO_ARGUMENTS
        return await self.source.call(tool, arguments, limits, self.meta(call))

    def _called(self, tool: ServedTool, call: ToolCall, ended: Ended) -> Called:
        transport, protocol = self.source.protocol_of(tool.server)
        return Called(
            tool.server,
            tool.own_name,
            call.id,
            call.name,
            ended.status,
            error=ended.error,
            transport=transport,
            protocol=protocol,
        )
