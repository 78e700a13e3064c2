"""The turns of a run; between turns, Temper runs tools of the operator or of a program.

`api.tool_run` and agents use this module. A plain chat has one turn and does not import it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from proxy.conversation.replies import ReplyEvent, TextDelta
from proxy.conversation.requests import Request
from proxy.errors import ContextOverflow
from proxy.inference.turn import MayRetry, Turn
from proxy.serving.request_preparation import (
    MOST_SHORTENINGS,
    Planned,
    RequestPreparation,
    Resolved,
)
from proxy.serving.rereading import WatchedPrompt

if TYPE_CHECKING:
    from proxy.tools.run import Ask


@dataclass(slots=True, kw_only=True)
class RunTurns:
    """Plans and fits each turn of a run like a separate request.

    `resolved` is the first request. The `upstream` headers are sent to the backend. `workers` is
    the number of processes that share the slots. `watched` is the prompt of the latest turn.
    """

    preparation: RequestPreparation
    resolved: Resolved
    upstream: dict[str, str]
    may_retry: MayRetry
    workers: int = 1
    turns: list[Turn] = field(default_factory=list)
    watched: WatchedPrompt | None = None
    _planned: Planned | None = None
    _is_begun: bool = False
    _is_last: bool = False
    _has_shown_text: bool = False
    _shortenings: int = 0

    @property
    def planned(self) -> Planned:
        assert self._planned is not None  # noqa: S101 - the run has begun
        return self._planned

    def begin_with(self, planned: Planned, turn: Turn) -> None:
        """Use a turn that was already fitted as the first turn of the run."""
        self._planned = planned
        self.turns.append(turn)
        self._is_begun = True

    async def plan(self, request: Request) -> Planned:
        return await self.preparation.plan(self.resolved.with_request(request), self.upstream)

    async def begin(self, ask: "Ask") -> Turn:
        self._is_last, self._shortenings, self._has_shown_text = ask.is_last, 0, False
        if self._is_begun:  # `begin_with` set the first turn
            self._is_begun = False
            return self.turns[-1]
        planned = self._planned = await self.plan(ask.request)
        service, known = planned.service, planned.known
        # while the tools ran, the server may have been restarted with another number of slots
        service.resize(known, self.workers)
        self.watched = service.fitting.watch_prompt(known.model, planned.plan)
        turn = await self.preparation.fit(planned, self.may_retry, is_last=self._is_last)
        self.turns.append(turn)
        return turn

    async def shorten(self, overflow: ContextOverflow) -> Turn | None:
        """Shorten the prompt of a turn after the backend rejected it; None if that is impossible.

        A turn whose text was already sent to the client cannot be replaced.
        """
        if self._has_shown_text or self._shortenings == MOST_SHORTENINGS:
            return None
        self._shortenings += 1
        turn = await self.preparation.shorten(
            self.planned, self.may_retry, overflow, is_last=self._is_last
        )
        if turn is not None:
            self.turns[-1] = turn
        return turn

    def note(self, batch: Sequence[ReplyEvent]) -> None:
        """Record that the client has received these events."""
        if not self._has_shown_text:
            self._has_shown_text = any(isinstance(event, TextDelta) for event in batch)
