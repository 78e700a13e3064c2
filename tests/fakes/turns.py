"""Turns over a scripted backend, and tools with scripted results."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from proxy.backends.client import ReplyEvents
from proxy.conversation.replies import ReplyEvent, ReplyFinished, ToolCallStarted
from proxy.conversation.replies import ToolCallArgumentsDelta as Arguments
from proxy.conversation.tools import Tool, ToolCall
from proxy.errors import ContextOverflow
from proxy.inference.driver import run_turn
from proxy.inference.plan import Policy
from proxy.inference.preparation import begin, plan_request
from proxy.inference.turn import Turn
from proxy.tools.executor import Outcome, RoundContext
from proxy.tools.run import Ask
from tests.fakes.backend import ScriptedBackend
from tests.fakes.playbook import CountedIds


def calls(name: str, arguments: str = "{}") -> list[ReplyEvent]:
    """Return a reply that calls one tool."""
    call: list[ReplyEvent] = [ToolCallStarted(0, None, name), Arguments(0, arguments)]
    return [*call, ReplyFinished("tool_calls")]


@dataclass
class ScriptedTurns:
    """Starts turns on a backend that plays scripts; `answering` counts the running turns."""

    backend: ScriptedBackend
    policy: Policy = field(default_factory=Policy)
    begun: list[Ask] = field(default_factory=list)
    answering: int = 0
    shortenings: int = 1
    new_id: CountedIds = field(default_factory=CountedIds)

    async def begin(self, ask: Ask) -> Turn:
        self.begun.append(ask)
        return self._turn()

    async def shorten(self, overflow: ContextOverflow) -> Turn | None:
        self.shortenings -= 1
        return self._turn() if self.shortenings >= 0 else None

    async def answer(self, turn: Turn) -> ReplyEvents:
        self.answering += 1
        try:
            async with aclosing(run_turn(turn, self.backend, {})) as batches:
                async for batch in batches:
                    yield batch
        finally:
            self.answering -= 1

    def _turn(self) -> Turn:
        ask = self.begun[-1]
        plan = plan_request(ask.request, self.policy)
        return begin(plan, self.new_id, lambda: True, is_last=ask.is_last)


@dataclass
class ScriptedTools:
    """Tools that return the `texts` in order; a tool whose text is None never finishes."""

    tools: tuple[Tool, ...]
    texts: list[str | None]
    contexts: list[RoundContext] = field(default_factory=list)
    cancelled: int = 0
    running: asyncio.Event = field(default_factory=asyncio.Event)

    def specs(self) -> Sequence[Tool]:
        return self.tools

    async def execute(
        self, calls: Sequence[ToolCall], context: RoundContext
    ) -> tuple[Outcome, ...]:
        self.contexts.append(context)
        self.running.set()
        text = self.texts[len(self.contexts) - 1]
        if text is None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return tuple(Outcome(call, text or "") for call in calls)
