"""Runs the calls of one request's tools: at once, bounded, each with what is known of it.

Knows nothing of how servers are reached: a `ToolSource` does.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from proxy.conversation import json
from proxy.conversation.json import JsonObject
from proxy.conversation.tools import Tool, ToolCall
from proxy.mcp.confirmations import Decision
from proxy.mcp.definitions import ServedTool
from proxy.mcp.specification import Called, CallLimits, Ended
from proxy.tool_rounds.executor import Outcome, RoundContext, Status

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

    `meta` makes what travels beside a call, `notice` is told of each call when it is over, and
    `confirm` asks a person about those that need a yes: without one they are refused.
    """

    source: ToolSource
    offered: tuple[ServedTool, ...]
    limits: CallLimits = field(default_factory=CallLimits)
    meta: Callable[[ToolCall], JsonObject] = lambda _call: {}
    notice: Callable[[Called], None] = lambda _called: None
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
            transport, protocol = self.source.protocol_of(tool.server)
            called = Called(
                tool.server,
                tool.own_name,
                call.id,
                call.name,
                ended.status,
                begun,
                now - begun,
                ended.error,
                transport,
                protocol,
                0.0 if asked is None else begun - asked,
            )
            self.notice(called)
        outcome = ended.outcome(call, called.seconds)
        context.finished(outcome)
        return outcome


def _arguments(call: ToolCall) -> JsonObject | None:
    try:
        arguments = json.parse(call.arguments or "{}")
    except ValueError:
        return None
    return arguments if isinstance(arguments, dict) else None
